# ruff: noqa: ARG001  `debug` is acted on by its callback
"""The commands of `kubectl millrace` as the user sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.kubectl.dlq.app import dlq
from millrace.cli.kubectl.offsets.app import offsets
from millrace.cli.kubectl.options import Context, Kubeconfig, Name, Namespace, kubectl_of
from millrace.cli.options import Debug, Format, Output

app = typer.Typer(
    name="kubectl millrace",
    help="Pipelines on a cluster. Cluster, login and namespace are kubectl's.",
    epilog="Exit codes: docs/exit-codes.md.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(dlq, name="dlq")
app.add_typer(offsets, name="offsets")


@app.command(epilog="Example: `kubectl millrace status flight-delays --watch`")
def status(
    name: Annotated[
        str | None, typer.Argument(help="The ConsumerPipeline.", show_default="all of the namespace")
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List those of all namespaces.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every two seconds.")] = False,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask", help="Ask each worker what it has done since it started (needs the right to pods/proxy)."
        ),
    ] = False,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Show how pipelines are, or one of them with conditions, workers and what they own, and its collector."""
    from millrace.cli.kubectl.status import status as command

    kubectl = kubectl_of(namespace, context, kubeconfig)
    command(kubectl, name, everywhere=everywhere, watch=watch, ask=ask, as_json=output is Output.JSON)


@app.command(epilog="Example: `kubectl millrace plan flight-delays --to 4`")
def plan(
    name: Name,
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="M", help="Show what moves.", show_default=False)
    ] = None,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Show which worker is to own which partition, and what another number of replicas would move."""
    from millrace.cli.kubectl.status import pipeline
    from millrace.cli.plan import plan as command
    from millrace.errors import ExitCode, MillraceError

    one = pipeline(kubectl_of(namespace, context, kubeconfig), name)
    if not one.status.partitions or not one.spec.replicas:
        raise MillraceError(
            f"pipeline {name} owns no partitions yet"
            if one.spec.replicas
            else f"pipeline {name} wants no workers",
            remedy="`millrace plan --partitions P --replicas N --to M` needs no pipeline",
            code=ExitCode.USAGE,
        )
    command(None, one.status.partitions, one.spec.replicas, to, output is Output.JSON)


@app.command(epilog="Example: `kubectl millrace logs flight-delays --stage score --follow`")
def logs(
    name: Name,
    stage: Annotated[
        str | None, typer.Option(help="Only what is about this stage.", show_default="all")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as they write, for the workers there are now.")
    ] = False,
    tail: Annotated[int, typer.Option(min=-1, help="Lines of each worker; -1: all there are.")] = 500,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only of the last, as 5m or 2h.", show_default=False),
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the workers' processes before the last restart.")
    ] = False,
    output: Format = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Show the logs of all workers as one, in the order of time. -o json: one object a line."""
    from millrace.cli.kubectl.logs import Wanted
    from millrace.cli.kubectl.logs import logs as command

    wanted = Wanted(stage, follow, tail, since, previous)
    command(kubectl_of(namespace, context, kubeconfig), name, wanted, output is Output.JSON)


@app.command(epilog="Example: `kubectl millrace pause flight-delays`")
def pause(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Stop all workers and keep their place (spec.suspend)."""
    from millrace.cli.kubectl.changes import suspend

    suspend(kubectl_of(namespace, context, kubeconfig), name, suspended=True)


@app.command(epilog="Example: `kubectl millrace resume flight-delays`")
def resume(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Let a paused pipeline go on (spec.suspend)."""
    from millrace.cli.kubectl.changes import suspend

    suspend(kubectl_of(namespace, context, kubeconfig), name, suspended=False)


@app.command(epilog="Example: `kubectl millrace restart flight-delays`")
def restart(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Start all workers anew, one after the other; each drains before it ends, and nothing is lost."""
    from millrace.cli.kubectl.changes import restart as command

    command(kubectl_of(namespace, context, kubeconfig), name)


@app.command(epilog="Example: `kubectl millrace validate -f pipeline.yaml`")
def validate(
    filename: Annotated[
        Path,
        typer.Option("--filename", "-f", metavar="FILE", help="The ConsumerPipeline.", show_default=False),
    ],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    debug: Debug = False,
) -> None:
    """Check a manifest here, then ask the cluster whether it would take it. Changes nothing."""
    from millrace.cli.kubectl.changes import validate as command

    command(kubectl_of(namespace, context, kubeconfig), filename)
