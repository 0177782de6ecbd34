"""The broker that a pipeline's dead letters are in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.clock import SystemClock
from millrace.connectivity.ports import Cluster
from millrace.errors import ExitCode, MillraceError
from millrace_api import ConsumerPipeline


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
    from millrace.worker.cluster import connect
    from millrace.worker.manifest import read

    pipeline = read(place.manifest).pipeline
    dead_letter = pipeline.spec.dead_letter
    if dead_letter is None:
        raise MillraceError(
            f"pipeline {pipeline.metadata.name} has no dead-letter topic",
            where="spec.deadLetter",
            remedy="add spec.deadLetter; without it a message that can't be processed stops the worker",
            code=ExitCode.MANIFEST,
        )
    with _bootstrap(pipeline, place.kafka, place.state) as bootstrap:
        cluster = connect(pipeline, bootstrap=bootstrap, secrets=place.secrets, client_id="millrace-dlq")
        yield DeadLetters(cluster, dead_letter.topic, f"{pipeline.group_id}.dlq.replay", SystemClock())


@contextmanager
def _bootstrap(pipeline: ConsumerPipeline, kafka: str | None, state: Path | None) -> Iterator[str | None]:
    """The broker to ask: the one given, else that of the last run from here, else the manifest's. An embedded one is asked
    as it runs, and started for the moment otherwise.
    """
    from millrace.local.session import KafkaChoice, state_of

    choice = KafkaChoice.parse(kafka)
    directory = state_of(pipeline, state)
    if choice.bootstrap is not None and state is None:
        yield choice.bootstrap
        return
    record = directory.record()
    if (
        record is None and not choice.embedded and state is None
    ):  # no run from here: the manifest's broker is meant
        yield None
        return
    if record is None:
        raise MillraceError(
            f"no run has used the state directory {directory.path}",
            where=str(directory.path),
            remedy="give the --state of a run, or --kafka HOST:PORT",
            code=ExitCode.USAGE,
        )
    if record.kafka == "external" or directory.in_use() is not None:
        yield choice.bootstrap or record.bootstrap
        return
    from millrace.local.broker.embedded import EmbeddedBroker

    with directory.locked(), EmbeddedBroker(directory.broker, port=choice.port) as broker:
        yield broker.bootstrap
