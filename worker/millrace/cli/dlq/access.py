"""The broker that a pipeline's dead letters are in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millrace.clock import SystemClock
from millrace.connectivity.ports import Cluster
from millrace.errors import ExitCode, MillraceError
from millrace_api import ConsumerPipeline

CLIENT: Final = "millrace-dlq"


@dataclass(frozen=True, slots=True)
class Place:
    """What the options of a command say of it."""

    manifest: Path
    kafka: str | None
    state: Path | None
    secrets: Path | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where they are.

    Attributes:
        topic: theirs.
        replay_group: the group that keeps the account of those that were sent again. No stage's is called so: a stage's name
            has no dots.
    """

    cluster: Cluster
    topic: str
    replay_group: str
    clock: SystemClock


@contextmanager
def dead_letters(place: Place) -> Iterator[DeadLetters]:
    """Raises MillraceError: the pipeline has none, the broker or the credentials are not there."""
    from millrace.worker.manifest import read

    pipeline = read(place.manifest).pipeline
    topic = _topic(pipeline)
    with _cluster(pipeline, place) as cluster:
        yield _of(pipeline, topic, cluster)


def beside_workers(manifest: Path, secrets: Path | None) -> DeadLetters:
    """Where the manifest says, from a place that has what a worker has. Raises as `dead_letters`."""
    from millrace.worker.cluster import connect
    from millrace.worker.manifest import read

    pipeline = read(manifest).pipeline
    topic = _topic(pipeline)
    return _of(pipeline, topic, connect(pipeline, bootstrap=None, secrets=secrets, client_id=CLIENT))


def _of(pipeline: ConsumerPipeline, topic: str, cluster: Cluster) -> DeadLetters:
    return DeadLetters(cluster, topic, f"{pipeline.group_id}.dlq.replay", SystemClock())


def _topic(pipeline: ConsumerPipeline) -> str:
    dead_letter = pipeline.spec.dead_letter
    if dead_letter is None:
        raise MillraceError(
            f"pipeline {pipeline.metadata.name} has no dead-letter topic",
            where="spec.deadLetter",
            remedy="add spec.deadLetter; without it a message that can't be processed stops the worker",
            code=ExitCode.MANIFEST,
        )
    return dead_letter.topic


@contextmanager
def _cluster(pipeline: ConsumerPipeline, place: Place) -> Iterator[Cluster]:
    """That of the runs from here; where there was none, or another broker is named, that one."""
    from millrace.local.session import KafkaChoice, state_of
    from millrace.local.visit import visit
    from millrace.worker.cluster import connect

    choice = KafkaChoice.parse(place.kafka)
    no_run = not choice.embedded and state_of(pipeline, None).record() is None
    if place.state is None and (choice.bootstrap is not None or no_run):
        yield connect(pipeline, bootstrap=choice.bootstrap, secrets=place.secrets, client_id=CLIENT)
        return
    with visit(
        pipeline,
        kafka=place.kafka,
        state=place.state,
        secrets=place.secrets,
        alone=False,
        client_id=CLIENT,
    ) as visited:
        yield visited.cluster
