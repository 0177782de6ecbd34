# ruff: noqa: ARG001  `debug` is acted on by its callback
"""`kubectl millrace offsets` as the user sees it."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.kubectl.options import Context, Kubeconfig, Name, Namespace, kubectl_of
from millrace.cli.offsets.app import Again, DryRun, FromGroup, Partitions, TakeOver, To
from millrace.cli.options import Debug, Format, Output

offsets = typer.Typer(
    help="Show a pipeline's offsets, set them elsewhere, write lost ones anew. See docs/offsets.md.",
    no_args_is_help=True,
)

Timeout = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Wait so long for workers to end, and again for the pod that asks Kafka.",
    ),
]


@offsets.command(epilog="Example: `kubectl millrace offsets show flight-delays`")
def show(
    name: Name,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Show each partition's claim, the consumer group's offset beside it, and what the log holds."""
    from millrace.cli.kubectl.errand.sending import Place
    from millrace.cli.kubectl.offsets.course import show as command

    command(Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout), output is Output.JSON)


@offsets.command(
    epilog="Example: `kubectl millrace offsets reset flight-delays --to 2026-01-31T00:00:00Z --dry-run`"
)
def reset(
    name: Name,
    to: To = None,
    from_group: FromGroup = False,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    again: Again = False,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Set where the pipeline goes on: its workers are stopped for it, and started again.

    Messages below the new offsets are not processed; those from there on are, also if they were before.
    """
    from millrace.cli.kubectl.errand.sending import Place
    from millrace.cli.kubectl.offsets.course import reset as command
    from millrace.cli.offsets.requests import Request

    request = Request(to, from_group, partitions, dry_run, again)
    command(
        Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout), request, output is Output.JSON
    )


@offsets.command(epilog="Example: `kubectl millrace offsets repair flight-delays --from-group`")
def repair(
    name: Name,
    to: To = None,
    from_group: FromGroup = False,
    partitions: Partitions = None,
    dry_run: DryRun = False,
    again: Again = False,
    take_over: TakeOver = False,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Write claims anew that are lost or belong to another (Stalled: ClaimLost, ForeignClaim).

    Claims that are as they should be are left alone.
    """
    from millrace.cli.kubectl.errand.sending import Place
    from millrace.cli.kubectl.offsets.course import repair as command
    from millrace.cli.offsets.requests import Request

    request = Request(to, from_group, partitions, dry_run, again, take_over)
    command(
        Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout), request, output is Output.JSON
    )
