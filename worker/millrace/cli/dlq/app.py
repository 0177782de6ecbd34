# ruff: noqa: ARG001  `debug` is acted on by its callback
"""The commands of `millrace dlq` as the user sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.options import Debug, Format, Kafka, Manifest, Output, Secrets, State

dlq = typer.Typer(help="Look at dead letters, send them again, delete them.", no_args_is_help=True)

Stage = Annotated[
    list[str] | None,
    typer.Option("--stage", metavar="NAME", help="Only of this stage; may be repeated.", show_default="all"),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="REGEX", help="Only with a reason that it is found in.", show_default="all"
    ),
]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="N",
        help="Only from this source partition; may be repeated.",
        show_default="all",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only written at or after (RFC 3339).", show_default="all"),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only written before (RFC 3339).", show_default="all"),
]
Limit = Annotated[int, typer.Option(min=1, help="At most so many, the oldest of each partition first.")]
At = Annotated[
    str,
    typer.Argument(
        metavar="PARTITION:OFFSET", help="Where it is, as `list` says under `at`.", show_default=False
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="Where to send them.", show_default="where each came from"),
]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.", show_default="all")]
Again = Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Everything = Annotated[bool, typer.Option("--all", help="All that are there.")]
Sent = Annotated[
    bool, typer.Option("--replayed", help="Up to the first of each partition that was not replayed.")
]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="TIME", help="Written before (RFC 3339).", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@dlq.command(
    "list", epilog="Example: `millrace dlq list pipeline.yaml --stage score --reason 'no rate' -o json`"
)
def list_(
    manifest: Manifest,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    stage: Stage = None,
    reason: Reason = None,
    partition: Partition = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 1000,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """List dead letters: where each came from, which stage gave it up, and why."""
    from millrace.cli.dlq.access import Place
    from millrace.cli.dlq.chosen import Chosen
    from millrace.cli.dlq.listing import list_letters as command

    chosen = Chosen.of(stage or (), reason, partition or (), since, until)
    command(Place(manifest, kafka, state, secrets), chosen, limit, output is Output.JSON)


@dlq.command(epilog="Example: `millrace dlq show pipeline.yaml 0:17`")
def show(
    manifest: Manifest,
    at: At,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Show one dead letter whole: key, headers, value."""
    from millrace.cli.dlq.access import Place
    from millrace.cli.dlq.listing import show_letter as command

    command(Place(manifest, kafka, state, secrets), *place_of(at), output is Output.JSON)


@dlq.command(epilog="Example: `millrace dlq replay pipeline.yaml --stage score --reason 'no rate' --dry-run`")
def replay(
    manifest: Manifest,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    to: To = None,
    stage: Stage = None,
    reason: Reason = None,
    partition: Partition = None,
    since: Since = None,
    until: Until = None,
    limit: AtMost = None,
    again: Again = False,
    dry_run: DryRun = False,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Send the messages of dead letters again, without the headers that made letters of them.

    Each once: what was sent is remembered in the same transaction, so a command that was killed goes on where it stopped.
    """
    from millrace.cli.dlq.access import Place
    from millrace.cli.dlq.chosen import Chosen
    from millrace.cli.dlq.replaying import replay_letters as command

    command(
        Place(manifest, kafka, state, secrets),
        Chosen.of(stage or (), reason, partition or (), since, until),
        to=to,
        again=again,
        limit=limit,
        dry_run=dry_run,
        as_json=output is Output.JSON,
    )


@dlq.command(epilog="Example: `millrace dlq purge pipeline.yaml --replayed --yes`")
def purge(
    manifest: Manifest,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    everything: Everything = False,
    replayed: Sent = False,
    before: Before = None,
    yes: Yes = False,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Delete dead letters up to a point of each partition, for good."""
    from millrace.cli.dlq.access import Place
    from millrace.cli.dlq.purging import purge_letters as command

    place = Place(manifest, kafka, state, secrets)
    command(
        place, everything=everything, replayed=replayed, before=before, yes=yes, as_json=output is Output.JSON
    )


@dlq.command("in-pod", hidden=True)
def in_pod(
    errand: Annotated[str, typer.Option(help="What to do, as JSON.")],
    manifest: Annotated[Path, typer.Option(help="As a worker has it.")],
    secrets: Secrets = None,
) -> None:
    """What `kubectl millrace dlq` has done by a pod of its own."""
    from millrace.cli.dlq.in_pod import do
    from millrace.cli.errand.in_pod import carry_out

    raise typer.Exit(carry_out(lambda say: do(errand, manifest, secrets, say)))


def place_of(at: str) -> tuple[int, int]:
    """Partition and offset. Raises typer.BadParameter."""
    partition, _, offset = at.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{at!r} is not PARTITION:OFFSET, for example 0:17")
    return int(partition), int(offset)
