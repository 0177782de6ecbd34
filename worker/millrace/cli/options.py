"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.failure import debugging


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


Manifest = Annotated[Path, typer.Argument(help="The ConsumerPipeline, a YAML file.", show_default=False)]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show tracebacks.", callback=lambda on: debugging(on) if on else on, is_eager=True
    ),
]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
Kafka = Annotated[
    str | None,
    typer.Option(
        metavar="embedded|HOST:PORT",
        help="`embedded[:PORT]`: a broker of this run's own. HOST:PORT: instead of the manifest's bootstrapServers.",
        show_default="the manifest's bootstrapServers",
    ),
]
Secrets = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Credentials: a directory with the key names of the Secret (username, password, ca.crt, ...).",
        show_default=False,
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="State directory: broker, epoch, status and logs of this run.",
        show_default=".millrace/<name>",
    ),
]
