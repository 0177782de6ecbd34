"""The ConsumerPipeline itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from millrace_api.forms import DnsLabel, PipelineName
from millrace_api.model import Model
from millrace_api.rules import broken_rules
from millrace_api.spec import Spec
from millrace_api.status import Status

GROUP: Final = "millrace.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "millrace.dev/v1alpha1"
KIND: Final = "ConsumerPipeline"
RESTARTED: Final = f"{GROUP}/restarted-at"
"""Annotation of a pipeline: workers that were started under another value of it are started anew."""

# What an API server adds to metadata; a manifest taken from a cluster has them, and they say nothing to a pipeline.
SERVER_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    }
)


class ObjectMeta(Model):
    """The part of Kubernetes' ObjectMeta that is read here."""

    name: PipelineName = Field(description="Name of the pipeline, unique in its namespace.")
    namespace: DnsLabel = Field(default="default", description="Namespace of the pipeline. Default: default.")
    uid: str | None = Field(default=None, max_length=128, description="Given by the API server.")
    generation: int | None = Field(default=None, ge=0, description="Given by the API server.")
    labels: Mapping[str, Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict, max_length=256, description="Labels of the object."
    )
    annotations: Mapping[str, Annotated[str, Field(max_length=262_144)]] = Field(
        default_factory=dict, max_length=256, description="Annotations of the object."
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_the_servers_fields(cls, data: object) -> object:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if key not in SERVER_METADATA}
        return data


class ConsumerPipeline(Model):
    """A Kafka topic, the chain of stages its messages pass through, and how many workers do it."""

    api_version: Literal["millrace.dev/v1alpha1"] = Field(description="millrace.dev/v1alpha1")
    kind: Literal["ConsumerPipeline"] = Field(description="ConsumerPipeline")
    metadata: ObjectMeta = Field(description="Name, namespace, labels and annotations of the pipeline.")
    spec: Spec = Field(description="What the author of the pipeline wants.")
    status: Status | None = Field(
        default=None, description="What the operator has observed; written by it only."
    )

    @property
    def group_id(self) -> str:
        """The consumer group that mirrors the progress, for people and their tools."""
        return self.spec.source.group_id or f"{self.metadata.namespace}.{self.metadata.name}"

    @property
    def claims_group(self) -> str:
        """The reserved consumer group that holds the claims: the source of truth for offsets."""
        return f"{self.group_id}.claims"

    def channel(self, stage: str) -> str:
        """The topic between the chain and the collector of a collect stage."""
        return f"{self.collector_group(stage)}.channel"

    def collector_group(self, stage: str) -> str:
        """The consumer group to which the collector of a collect stage commits its progress."""
        return f"{self.group_id}.{stage}"

    @model_validator(mode="after")
    def _follows_the_rules(self) -> Self:
        for problem in broken_rules(self.model_dump(include={"metadata", "spec"}, exclude_none=True)):
            raise PydanticCustomError(
                "rule", "{path}: {message}", {"path": problem.path, "message": problem.message}
            )
        return self
