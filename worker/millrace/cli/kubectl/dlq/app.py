# ruff: noqa: ARG001  `debug` is acted on by its callback
"""`kubectl millrace dlq` as the user sees it: the options of `millrace dlq`, but for those that say where a local run is."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.dlq.app import (
    Again,
    At,
    AtMost,
    Before,
    DryRun,
    Everything,
    Limit,
    Partition,
    Reason,
    Sent,
    Since,
    Stage,
    To,
    Until,
    Yes,
    place_of,
)
from millrace.cli.kubectl.options import Context, Kubeconfig, Name, Namespace, kubectl_of
from millrace.cli.options import Debug, Format, Output

dlq = typer.Typer(
    help="Look at a pipeline's dead letters, send them again, delete them. See docs/dead-letters.md.",
    no_args_is_help=True,
)

Timeout = Annotated[
    int, typer.Option(min=1, metavar="SECONDS", help="Wait so long for the pod that asks Kafka.")
]


@dlq.command(
    "list", epilog="Example: `kubectl millrace dlq list flight-delays --stage score --reason 'no rate'`"
)
def list_(
    name: Name,
    stage: Stage = None,
    reason: Reason = None,
    partition: Partition = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 1000,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """List dead letters: where each came from, which stage gave it up, and why."""
    from millrace.cli.dlq.in_pod import Choice
    from millrace.cli.kubectl.dlq.course import list_letters as command
    from millrace.cli.kubectl.errand.sending import Place

    place = Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout)
    choice = Choice(tuple(stage or ()), reason, tuple(partition or ()), since, until)
    command(place, choice, limit, output is Output.JSON)


@dlq.command(epilog="Example: `kubectl millrace dlq show flight-delays 0:17`")
def show(
    name: Name,
    at: At,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Show one dead letter whole: key, headers, value."""
    from millrace.cli.kubectl.dlq.course import show_letter as command
    from millrace.cli.kubectl.errand.sending import Place

    place = Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout)
    command(place, *place_of(at), output is Output.JSON)


@dlq.command(epilog="Example: `kubectl millrace dlq replay flight-delays --stage score --dry-run`")
def replay(
    name: Name,
    to: To = None,
    stage: Stage = None,
    reason: Reason = None,
    partition: Partition = None,
    since: Since = None,
    until: Until = None,
    limit: AtMost = None,
    again: Again = False,
    dry_run: DryRun = False,
    timeout: Timeout = 3600,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Send the messages of dead letters again, without the headers that made letters of them.

    Each once: what was sent is remembered in the same transaction, so a command that was killed goes on where it stopped.
    """
    from millrace.cli.dlq.in_pod import Choice, Replay
    from millrace.cli.kubectl.dlq.course import replay_letters as command
    from millrace.cli.kubectl.errand.sending import Place

    place = Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout)
    choice = Choice(tuple(stage or ()), reason, tuple(partition or ()), since, until)
    command(place, Replay(choice, to, again, limit, dry_run), output is Output.JSON)


@dlq.command(epilog="Example: `kubectl millrace dlq purge flight-delays --replayed`")
def purge(
    name: Name,
    everything: Everything = False,
    replayed: Sent = False,
    before: Before = None,
    yes: Yes = False,
    timeout: Timeout = 180,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Delete dead letters up to a point of each partition, for good."""
    from millrace.cli.dlq.purging import Which
    from millrace.cli.kubectl.dlq.course import purge_letters as command
    from millrace.cli.kubectl.errand.sending import Place

    place = Place.of(kubectl_of(namespace, context, kubeconfig), name, timeout)
    which = Which.of(everything=everything, replayed=replayed, before=before)
    command(place, which, yes=yes, as_json=output is Output.JSON)
