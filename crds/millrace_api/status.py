"""The status of a ConsumerPipeline, written by the operator only, after the conventions of kstatus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millrace_api.forms import TopicName
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
    lag: int | None = Field(
        default=None,
        ge=0,
        description="Messages that wait in these partitions: two digits of it, renewed when the whole lag is.",
    )


class AttemptView(Model):
    """One run of the collector's job: a driver's pod, `<pipeline>.<stage>.<number>`."""

    number: int = Field(
        ge=1, description="Its number. It is written here before anything of the attempt is made."
    )
    digest: str = Field(max_length=64, description="Hash of what the driver is made of.")
    generation: int = Field(ge=0, description="The metadata.generation at which it was begun.")
    started: str = Field(max_length=40, description="When it was begun (RFC 3339, UTC).")
    uid: str | None = Field(
        default=None, max_length=64, description="Of the driver's pod; absent: it has not been seen yet."
    )
    stopping: str | None = Field(
        default=None, max_length=28, description="Why it was asked to stop, as one word; absent: it was not."
    )
    ended: str | None = Field(
        default=None,
        max_length=40,
        description="When its end was seen (RFC 3339, UTC); absent: it has not ended.",
    )
    outcome: str | None = Field(
        default=None,
        max_length=28,
        pattern=r"^[A-Za-z][A-Za-z0-9]*$",
        description="How it ended, as one word for programs.",
    )
    message: str | None = Field(default=None, max_length=512, description="How it ended, for people.")


class CollectorView(Model):
    """The collector's job and how it goes."""

    attempts: Annotated[
        tuple[AttemptView, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["number"]},
        ),
    ] = Field(
        default=(), max_length=8, description="The last five, the newest last. At most one has not ended."
    )
    failures: int | None = Field(
        default=None, ge=0, description="How many of the last attempts failed in a row; absent: none."
    )
    lag: int | None = Field(
        default=None,
        ge=0,
        description="Offsets of the channel that are not read yet, roughly, as `lag` of the source is: rows, marks, and "
        "one for the end of each transaction.",
    )


class TopicView(Model):
    """A topic that was made for the pipeline."""

    name: TopicName = Field(description="Name of the topic.")
    id: str | None = Field(
        default=None,
        max_length=64,
        description="Kafka's id of it; absent until it is known. A topic of another id was made by somebody else.",
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
    collector: CollectorView | None = Field(
        default=None, description="The Spark job of the collect stage; absent where there is none."
    )
    topics: Annotated[
        tuple[TopicView, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(
        default=(),
        max_length=16,
        description="Topics that were made for the pipeline: those that deletionPolicy Delete deletes. Written down "
        "before they are made.",
    )
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
