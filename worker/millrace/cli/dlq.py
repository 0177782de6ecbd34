"""`millrace dlq list`: what is in a pipeline's dead-letter topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from millrace.cli.letters import Letter, read_letters
from millrace.errors import ExitCode, MillraceError
from millrace_api import ConsumerPipeline


def list_letters(
    manifest: Path, kafka: str | None, state: Path | None, secrets: Path | None, limit: int, as_json: bool
) -> None:
    from millrace.worker.cluster import connect
    from millrace.worker.manifest import read

    pipeline = read(manifest).pipeline
    dead_letter = pipeline.spec.dead_letter
    if dead_letter is None:
        raise MillraceError(
            f"pipeline {pipeline.metadata.name} has no dead-letter topic",
            where="spec.deadLetter",
            remedy="add spec.deadLetter; without it a message that can't be processed stops the worker",
            code=ExitCode.MANIFEST,
        )
    with _bootstrap(pipeline, kafka, state) as bootstrap:
        cluster = connect(pipeline, bootstrap=bootstrap, secrets=secrets, client_id="millrace-dlq")
        letters = read_letters(cluster, dead_letter.topic, limit)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(letters)).decode() + "\n")
    else:
        _print(letters, dead_letter.topic, limit)


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


def _print(letters: list[Letter], topic: str, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty())
    if not letters:
        console.print(f"no dead letters in {topic}")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("at", "from", "stage", "reason"):
        table.add_column(head, overflow="fold", no_wrap=head != "reason")
    for letter in letters:
        origin = f"{letter.source_topic}/{letter.source_partition}:{letter.source_offset}"
        table.add_row(
            f"{letter.partition}:{letter.offset}", Text(origin), Text(letter.stage), Text(letter.reason)
        )
    console.print(table)
    if len(letters) == limit:
        console.print(Text(f"the first {limit}; see more with --limit", style="dim"))
