"""The Kafka of a local run, for commands that look at it or change it while no run is on, or beside one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.connectivity.ports import Cluster
from millrace.errors import ExitCode, MillraceError
from millrace.local.session import KafkaChoice, state_of
from millrace.local.state import RunRecord, StateDirectory
from millrace.worker.cluster import connect
from millrace_api import ConsumerPipeline


@dataclass(frozen=True, slots=True)
class Visit:
    """The broker that the runs of a state directory use.

    Attributes:
        running: process id of the run that is on; None: none is.
    """

    state: StateDirectory
    record: RunRecord
    cluster: Cluster
    running: int | None


@contextmanager
def visit(
    pipeline: ConsumerPipeline,
    *,
    kafka: str | None,
    state: Path | None,
    secrets: Path | None,
    alone: bool,
    client_id: str,
) -> Iterator[Visit]:
    """An embedded broker is asked as it runs, and started for the moment otherwise.

    Args:
        kafka, state, secrets: as `millrace run` has them.
        alone: keep runs off as long as this lasts.

    Raises: MillraceError: USAGE if no run has used the state directory; BUSY, with `alone`, if one is on; what starting a
    broker raises. ManifestError if the directory belongs to another pipeline.
    """
    choice, directory = KafkaChoice.parse(kafka), state_of(pipeline, state)
    record = directory.record()
    if record is None:
        raise MillraceError(
            f"no run has used the state directory {directory.path}",
            where=str(directory.path),
            remedy="give the --state of a run; its default is .millrace/<name of the pipeline>, here",
            code=ExitCode.USAGE,
        )
    with ExitStack() as stack:
        running = directory.in_use()
        embedded = record.kafka == "embedded"
        if alone or (embedded and running is None):
            stack.enter_context(directory.locked())
        record = directory.belong_to(
            pipeline=pipeline.metadata.name,
            group_id=pipeline.group_id,
            topic=pipeline.spec.source.topic,
            kafka=record.kafka if kafka is None else "embedded" if choice.embedded else "external",
            manifest=record.manifest,
        )
        bootstrap = choice.bootstrap or record.bootstrap
        if embedded and running is None:
            from millrace.local.broker.embedded import EmbeddedBroker

            broker = stack.enter_context(EmbeddedBroker(directory.broker, port=choice.port))
            bootstrap = broker.bootstrap
        the_manifests = not embedded and choice.bootstrap is None
        the_manifests &= bootstrap in ("", pipeline.spec.kafka.bootstrap_servers)
        cluster = connect(
            pipeline, bootstrap=None if the_manifests else bootstrap, secrets=secrets, client_id=client_id
        )
        yield Visit(directory, record, cluster, running)
