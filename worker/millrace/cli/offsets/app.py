# ruff: noqa: ARG001  `debug` is acted on by its callback
"""`millrace offsets` as the user sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.options import Debug, Format, Kafka, Manifest, Output, Secrets, State

offsets = typer.Typer(
    help="Show the offsets of a local run, set them elsewhere, write lost ones anew. See docs/offsets.md.",
    no_args_is_help=True,
)

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="earliest|latest|OFFSET|TIME",
        help="Where to: the first offset, the end, an offset, or the first message at or after a time "
        "(2026-01-31T00:00:00Z).",
        show_default=False,
    ),
]
FromGroup = Annotated[
    bool,
    typer.Option(
        "--from-group", help="To the offsets of the consumer group, as `kafka-consumer-groups` has set them."
    ),
]
Partitions = Annotated[
    str | None,
    typer.Option(metavar="0,3-5", help="Only these partitions.", show_default="all"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Again = Annotated[
    bool,
    typer.Option("--again", help="Also where a collector has had the rows of these messages already."),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Also claims that another pipeline or run holds. It is fenced."),
]


@offsets.command(epilog="Example: `millrace offsets show pipeline.yaml`")
def show(
    manifest: Manifest,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Show each partition's claim, the consumer group's offset beside it, and what the log holds."""
    from millrace.cli.offsets.commands import Place
    from millrace.cli.offsets.commands import show as command

    command(Place(manifest, kafka, state, secrets), output is Output.JSON)


@offsets.command(
    epilog="Example: `millrace offsets reset pipeline.yaml --to earliest --partitions 0,3-5 --dry-run`"
)
def reset(
    manifest: Manifest,
    to: To = None,
    from_group: FromGroup = False,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    again: Again = False,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Set where the next run goes on. Needs the run stopped.

    Messages below the new offsets are not processed; those from there on are, also if they were before.
    """
    from millrace.cli.offsets.commands import Place
    from millrace.cli.offsets.commands import reset as command
    from millrace.cli.offsets.requests import Request

    request = Request(to, from_group, partitions, dry_run, again)
    command(Place(manifest, kafka, state, secrets), request, output is Output.JSON)


@offsets.command(epilog="Example: `millrace offsets repair pipeline.yaml --from-group`")
def repair(
    manifest: Manifest,
    to: To = None,
    from_group: FromGroup = False,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    again: Again = False,
    take_over: TakeOver = False,
    kafka: Kafka = None,
    state: State = None,
    secrets: Secrets = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Write claims anew that are lost or belong to another (exit codes 10 and 11). Needs the run stopped.

    Claims that are as they should be are left alone.
    """
    from millrace.cli.offsets.commands import Place
    from millrace.cli.offsets.commands import repair as command
    from millrace.cli.offsets.requests import Request

    request = Request(to, from_group, partitions, dry_run, again, take_over)
    command(Place(manifest, kafka, state, secrets), request, output is Output.JSON)


@offsets.command("in-pod", hidden=True)
def in_pod(
    errand: Annotated[str, typer.Option(help="What to do, as JSON.")],
    manifest: Annotated[Path, typer.Option(help="As a worker has it.")],
    epoch_file: Annotated[Path, typer.Option(help="As a worker has it.")],
    secrets: Secrets = None,
) -> None:
    """What `kubectl millrace offsets` has done by a pod of its own."""
    from millrace.cli.errand.in_pod import carry_out
    from millrace.cli.offsets.in_pod import Mounted, do

    raise typer.Exit(carry_out(lambda _say: do(errand, Mounted(manifest, epoch_file, secrets))))
