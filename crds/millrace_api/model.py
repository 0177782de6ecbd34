"""What all models of the manifest have in common."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Frozen; camelCase in the manifest, snake_case in Python; unknown keys are errors; no value is converted.

    A key without a value (`deadLetter:`) counts as absent, as it does at the API server, which prunes such nulls
    before it fills in defaults.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=False,
        serialize_by_alias=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _prune_nulls(cls, data: object) -> object:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data
