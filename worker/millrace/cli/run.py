"""`millrace run`."""

from __future__ import annotations

import sys
from pathlib import Path

from millrace.cli.failure import debugging


def run(
    manifest: Path,
    replicas: int | None,
    kafka: str | None,
    until_end: bool,
    state: Path | None,
    secrets: Path | None,
    plain: bool,
    picture: Path | None,
    spark_ui: bool,
) -> None:
    import faulthandler
    import signal

    from millrace.local.run import summary
    from millrace.local.session import Request, carry_out

    faulthandler.enable()  # a crash in C says where it was
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # `kill -USR1`: where is it?

    code, snapshot = carry_out(
        Request(manifest, replicas, kafka, until_end, state, secrets, plain, picture, debugging(), spark_ui)
    )
    if snapshot is not None:
        sys.stdout.write(summary(snapshot) + "\n")
    sys.exit(code)
