"""What is read of a ConsumerPipeline and of its workers' pods. Whatever is absent, of an older or newer version, is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class WorkerShare(msgspec.Struct, frozen=True, rename="camel"):
    """What a worker owns, as the claims say. `index` -1: parked with the operator."""

    index: int
    partitions: str
    lag: int | None = None


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One run of the collector's job."""

    number: int
    started: str = ""
    ended: str | None = None
    outcome: str | None = None
    message: str | None = None


class Collector(msgspec.Struct, frozen=True, rename="camel"):
    attempts: tuple[Attempt, ...] = ()
    failures: int | None = None
    lag: int | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    epoch: int | None = None
    partitions: int | None = None
    lag: int | None = None
    workers: tuple[WorkerShare, ...] = ()
    selector: str | None = None
    conditions: tuple[Condition, ...] = ()
    collector: Collector | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class Source(msgspec.Struct, frozen=True, rename="camel"):
    topic: str = ""


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    replicas: int = 1
    suspend: bool = False
    source: Source = Source()


class Pipeline(msgspec.Struct, frozen=True, rename="camel"):
    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    def condition(self, kind: str) -> Condition | None:
        return next((c for c in self.status.conditions if c.type == kind), None)

    @property
    def observed(self) -> bool:
        """Whether the status is about the spec as it is now."""
        return self.status.observed_generation == self.metadata.generation


class PodView(msgspec.Struct, frozen=True, rename="camel"):
    """A worker's pod. `state`: Running, or why it waits or ended, as kubectl's own column has it."""

    name: str
    index: int
    ready: bool
    state: str
    restarts: int
    node: str


def pipeline_of(tree: Mapping[str, object]) -> Pipeline:
    return msgspec.convert(tree, Pipeline)


def pods_of(trees: Sequence[object]) -> list[PodView]:
    """By index."""
    found = (_pod(msgspec.convert(tree, _Pod)) for tree in trees)
    return sorted(found, key=lambda pod: (pod.index, pod.name))


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Waiting | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    labels: Mapping[str, str] = {}
    deletion_timestamp: str | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMetadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


def _pod(pod: _Pod) -> PodView:
    ordinal = pod.metadata.labels.get("apps.kubernetes.io/pod-index") or pod.metadata.name.rpartition("-")[2]
    state = pod.status.reason or pod.status.phase or "Unknown"
    for container in pod.status.container_statuses:
        held = container.state.waiting or container.state.terminated
        state = held.reason if held is not None and held.reason else state
    if pod.metadata.deletion_timestamp is not None:
        state = "Terminating"
    return PodView(
        name=pod.metadata.name,
        index=int(ordinal) if ordinal.isdigit() else 0,
        ready=any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions),
        state=state,
        restarts=sum(container.restart_count for container in pod.status.container_statuses),
        node=pod.spec.node_name,
    )
