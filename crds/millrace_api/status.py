"""The status of a ConsumerPipeline, written by the operator only, after the conventions of kstatus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millrace_api.model import Model


class Condition(Model):
    """One observation (metav1.Condition). Ready is always there; Reconciling and Stalled only while True."""

    type: str = Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$", description="What is observed.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    reason: str = Field(
        max_length=28,
        pattern=r"^[A-Za-z][A-Za-z0-9]*$",
        description="Why, as one word for programs.",
    )
    message: str = Field(default="", max_length=4096, description="Why, for people, and what to do.")
    last_transition_time: str = Field(
        max_length=40, description="When `status` last changed (RFC 3339, UTC)."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that this was observed at."
    )


class WorkerView(Model):
    """A worker and what it owns."""

    index: int = Field(ge=-1, description="Index of the worker; -1: what is parked with the operator.")
    partitions: str = Field(
        max_length=1024, description="Partitions whose claims name it, for example 0-3, 7."
    )


class Status(Model):
    """What the operator has observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that this status describes."
    )
    replicas: int | None = Field(
        default=None, ge=0, description="Number of workers that exist; read by the scale subresource."
    )
    epoch: int | None = Field(default=None, ge=0, description="Number of the epoch that the workers go by.")
    partitions: int | None = Field(
        default=None, ge=0, description="Partitions of the source that have an owner."
    )
    lag: int | None = Field(
        default=None,
        ge=0,
        description="Messages of the source that wait, roughly: two digits of it, renewed when it has changed by half. "
        "Exact figures are metrics.",
    )
    workers: Annotated[
        tuple[WorkerView, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["index"]},
        ),
    ] = Field(default=(), max_length=32, description="The first 32 workers: what each owns.")
    ready_replicas: int | None = Field(default=None, ge=0, description="Number of workers that are ready.")
    selector: str | None = Field(
        default=None,
        max_length=1024,
        description="Label selector of the workers' pods, as a string; read by the scale subresource.",
    )
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(
        default=(),
        max_length=16,
        description="Ready, SourceReady, WorkersReady and CollectorReady; Degraded, Reconciling and Stalled only while True.",
    )
