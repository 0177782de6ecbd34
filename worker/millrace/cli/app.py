# ruff: noqa: ARG001  `debug` and `version` are acted on by their callbacks
"""The commands as the user sees them: names, options, help. What they do is in a module each, imported when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.dlq.app import dlq
from millrace.cli.offsets.app import offsets
from millrace.cli.options import Debug, Format, Kafka, Manifest, Output, Secrets, State

app = typer.Typer(
    name="millrace",
    help="Kafka consumers written as one manifest and a few Python functions.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 manifest, 4 function, 5 broker unreachable, 6 credentials, "
    "7 topic, 8 stage failed, 9 dead-letter limit, 10 claim lost, 11 foreign claim, 12 busy, 13 disk, 14 setup, "
    "15 superseded, 16 offset gone, 17 out of memory, 18 checkpoint, 19 data, 130 interrupted. See docs/exit-codes.md.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(dlq, name="dlq")
app.add_typer(offsets, name="offsets")


SparkUi = Annotated[
    bool,
    typer.Option("--spark-ui", help="Serve Spark's own UI of the collector; `millrace status` shows where."),
]


def show_version() -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        found = version_of("millrace")
    except PackageNotFoundError:  # run from a source tree that is not installed
        found = "from source"
    typer.echo(f"millrace {found}")
    raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version.",
            callback=lambda on: show_version() if on else on,
            is_eager=True,
        ),
    ] = False,
) -> None: ...


@app.command(epilog="Example: `millrace run pipeline.yaml --kafka embedded --replicas 3 --until-end`")
def run(
    manifest: Manifest,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Worker processes.", show_default="spec.replicas")
    ] = None,
    kafka: Kafka = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when the input that is there at the start is done.")
    ] = False,
    state: State = None,
    secrets: Secrets = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Plain lines instead of the live view (as without a terminal).")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(hidden=True, help="Save the live view in mid-run as an SVG.")
    ] = None,
    spark_ui: SparkUi = False,
    debug: Debug = False,
) -> None:
    """Run a pipeline on this machine: worker processes, and a broker if you like.

    Ctrl-C drains: what was taken is finished and committed, then all ends in order; a second Ctrl-C ends at once.
    A later run with the same state directory goes on where this one stopped, also with another number of replicas.
    """
    from millrace.cli.run import run as command

    command(manifest, replicas, kafka, until_end, state, secrets, plain, picture, spark_ui)


@app.command(epilog="Example: `millrace validate pipeline.yaml && millrace run pipeline.yaml`")
def validate(
    manifest: Manifest,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the functions' modules are.", show_default="the manifest's folder"
        ),
    ] = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Check a manifest, and that its functions can be imported and called. Needs no broker."""
    from millrace.cli.validate import validate as command

    command(manifest, code, output is Output.JSON)


@app.command(
    epilog="Examples: `millrace plan --partitions 12 --replicas 3 --to 4`, `millrace plan pipeline.yaml -o json`"
)
def plan(
    manifest: Annotated[
        Path | None, typer.Argument(help="Take partitions and replicas from here.", show_default=False)
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="P", help="Partitions of the source.", show_default="source.create"),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Workers.", show_default="spec.replicas")
    ] = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to", min=1, metavar="M", help="Show what moves when N becomes M.", show_default=False
        ),
    ] = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Show which worker owns which partition, and what a change of replicas would move."""
    from millrace.cli.plan import plan as command

    command(manifest, partitions, replicas, to, output is Output.JSON)


@app.command(epilog="Example: `millrace status --state .millrace/flight-delays -o json`")
def status(
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="State directory of the run.", show_default="the only one in .millrace"
        ),
    ] = None,
    output: Format = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Show a local run: partitions by owner with lag, stages, dead letters. Also after it ended."""
    from millrace.cli.status import status as command

    command(state, output is Output.JSON)


@app.command(epilog="Example: `millrace worker --manifest pipeline.yaml --epoch-file epoch.json --index 0`")
def worker(
    manifest: Annotated[Path, typer.Option(metavar="FILE", help="The ConsumerPipeline.", show_default=False)],
    epoch_file: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The epoch, as the control plane publishes it.", show_default=False
        ),
    ],
    index: Annotated[int, typer.Option(min=0, help="This worker's index in the group.", show_default=False)],
    secrets: Secrets = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Bootstrap servers.", show_default="the manifest's bootstrapServers"
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR:PORT", help="Serve /livez /readyz /metrics /status.", show_default="not served"
        ),
    ] = None,
    status_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the status snapshot here.", show_default="none")
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the functions' modules are.", show_default="the manifest's folder"
        ),
    ] = None,
    live_within: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="/livez fails when the loop made no progress for so long."),
    ] = 300.0,
    stuck_after: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="A stage is told of as stuck when a call in it takes longer."
        ),
    ] = 60.0,
    parent: Annotated[int | None, typer.Option(hidden=True, help="End with this parent process.")] = None,
    until: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='End of a bounded run: JSON, {"ends": {"0": OFFSET, ...}}. Nothing from there on is processed.',
            show_default="no end",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run one worker of a group. `millrace run` and the operator start these; you seldom do.

    SIGTERM and SIGINT drain: what was taken is finished and committed within the deadline; a second one ends at once.
    """
    from millrace.cli.worker import worker as command

    command(
        manifest,
        epoch_file,
        index,
        secrets,
        kafka,
        http,
        status_file,
        code,
        live_within,
        stuck_after,
        parent,
        until,
    )


@app.command(
    epilog="Example: `millrace collector --manifest pipeline.yaml --storage /storage --secrets /secrets`"
)
def collector(
    manifest: Annotated[Path, typer.Option(metavar="FILE", help="The ConsumerPipeline.", show_default=False)],
    storage: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Where checkpoints and relative sink paths are kept.", show_default=False
        ),
    ],
    stage: Annotated[
        str | None, typer.Option(metavar="NAME", help="The collect stage.", show_default="the only one")
    ] = None,
    secrets: Secrets = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Bootstrap servers.", show_default="the manifest's bootstrapServers"
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR:PORT", help="Serve /livez /readyz /metrics /status.", show_default="not served"
        ),
    ] = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where status, Spark's log and its event log are kept.",
            show_default="collector/ in the storage",
        ),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the functions' modules are.", show_default="the manifest's folder"
        ),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Take what the channel holds at the start, and end.")
    ] = False,
    until_end: Annotated[
        bool,
        typer.Option("--until-end", help="End when all partitions have ended and all windows are closed."),
    ] = False,
    spark_ui: SparkUi = False,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of Spark for the place that it runs in, such as spark.master. It wins over the manifest's. "
            "May be given more than once.",
            show_default=False,
        ),
    ] = None,
    attempt: Annotated[int, typer.Option(min=1, hidden=True, help="Number of this attempt.")] = 1,
    restarts: Annotated[int, typer.Option(min=0, hidden=True, help="Attempts after a failure.")] = 0,
    debug: Debug = False,
) -> None:
    """Run one attempt of a pipeline's collector. `millrace run` and the operator do this for you; you seldom do.

    SIGTERM and SIGINT stop it when the batch under way is done; a second one ends it at once. Python and JVM are gone
    when it returns.
    """
    from millrace.cli.collector import Request
    from millrace.cli.collector import collector as command

    command(
        Request(
            manifest,
            storage,
            stage,
            secrets,
            kafka,
            http,
            notes,
            code,
            pending,
            until_end,
            spark_ui,
            conf or (),
            attempt,
            restarts,
        )
    )
