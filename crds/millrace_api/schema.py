"""The models as one plain JSON schema tree, and how to walk it.

pydantic's own schema is not structural in Kubernetes' sense: it has $ref, anyOf with null, const and titles. `resolved`
takes all that out. It is what the CRD, the editors' schema and the explanations of errors are all made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from pydantic import BaseModel

from millrace_api.pipeline import ConsumerPipeline
from millrace_api.problems import PathParts

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Schema: TypeAlias = "dict[str, Json]"

# In pydantic's output, and meant for readers of Python or of no one.
_DROPPED = frozenset({"title", "$defs"})


def resolved(model: type[BaseModel]) -> Schema:
    """The schema of a model without references, alternatives or titles. Made anew at each call: callers may change it.

    Raises:
        TypeError: the model says something that a structural schema can't, such as a union.
    """
    raw: Schema = model.model_json_schema(by_alias=True, mode="validation")
    definitions = raw.get("$defs", {})
    if not isinstance(definitions, dict):
        raise TypeError(f"$defs of {model.__name__} is not an object")
    return _resolve(raw, definitions)


@cache
def manifest_schema() -> Mapping[str, Json]:
    """The schema of the whole manifest; shared, not to be changed."""
    return resolved(ConsumerPipeline)


def node_at(parts: PathParts) -> Schema | None:
    """The schema of the field at a path of the manifest; None if the schema has no such place."""
    node: Json = dict(manifest_schema())
    for part in parts:
        if not isinstance(node, dict):
            return None
        if isinstance(part, int):
            node = node.get("items")
        else:
            properties = node.get("properties")
            inside = properties.get(part) if isinstance(properties, dict) else None
            node = inside if inside is not None else node.get("additionalProperties")
    return node if isinstance(node, dict) else None


def keys_at(parts: PathParts) -> list[str]:
    """Names of the fields that an object at a path may have."""
    node = node_at(parts)
    properties = node.get("properties") if node is not None else None
    return list(properties) if isinstance(properties, dict) else []


def _resolve(node: Schema, definitions: Schema) -> Schema:
    merged = dict(node)
    while "$ref" in merged or "anyOf" in merged:
        merged = _one_step(merged, definitions)
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    default = merged.get("default")
    if isinstance(default, dict):  # a field that is not there is no null
        merged["default"] = {name: value for name, value in default.items() if value is not None}
    if merged.get("default") in (None, "", [], {}):
        merged.pop("default", None)  # nothing, "", [] and {} are what an absent field means anyway
    if merged.get("additionalProperties") is False:
        del merged["additionalProperties"]
    if "patternProperties" in merged:
        merged |= _keyed(merged.pop("patternProperties"))
    out: Schema = {}
    for key, value in merged.items():
        if key in _DROPPED:
            continue
        if key == "properties" and isinstance(value, dict):
            out[key] = {name: _resolve(_object(inside), definitions) for name, inside in value.items()}
        elif key in ("items", "additionalProperties", "propertyNames") and isinstance(value, dict):
            out[key] = _resolve(value, definitions)
        elif key in ("allOf", "oneOf", "discriminator", "prefixItems"):
            raise TypeError(f"a structural schema has no {key}")
        else:
            out[key] = value
    return out


def _one_step(node: Schema, definitions: Schema) -> Schema:
    """Follow a reference, or take the one alternative that is not null. What stands beside it wins (the description
    of a field over that of its model).
    """
    beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
    if "$ref" in node:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        return {**_object(definitions[name]), **beside}
    choices = node["anyOf"]
    real = [choice for choice in choices if choice != {"type": "null"}] if isinstance(choices, list) else []
    if len(real) != 1:
        raise TypeError(f"a structural schema has no alternatives: {choices}")
    return {**_object(real[0]), **beside}


def _keyed(by_pattern: Json) -> Schema:
    """A mapping whose keys have a pattern: JSON schema can say it in two ways, of which the API server has neither."""
    if not isinstance(by_pattern, dict) or len(by_pattern) != 1:
        raise TypeError(f"a structural schema has no patternProperties: {by_pattern}")
    [(pattern, values)] = by_pattern.items()
    return {"additionalProperties": values, "propertyNames": {"type": "string", "pattern": pattern}}


def _object(node: Json) -> Schema:
    if not isinstance(node, dict):
        raise TypeError(f"not a schema: {node!r}")
    return node
