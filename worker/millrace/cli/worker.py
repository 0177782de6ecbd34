"""`millrace worker`."""

from __future__ import annotations

import sys
from pathlib import Path


def worker(
    manifest: Path,
    epoch_file: Path,
    index: int,
    secrets: Path | None,
    kafka: str | None,
    http: str | None,
    status_file: Path | None,
    code: Path | None,
    live_within: float,
    stuck_after: float,
    parent: int | None,
    until: Path | None,
) -> None:
    if parent is not None:
        from millrace.worker.orphan import die_with

        die_with(parent)
    from millrace.worker.process import run
    from millrace.worker.settings import Settings

    sys.exit(
        run(
            Settings(
                manifest=manifest,
                epoch_file=epoch_file,
                index=index,
                secrets=secrets,
                bootstrap=kafka,
                http=http,
                status_file=status_file,
                code=code,
                live_within=live_within,
                stuck_after=stuck_after,
                parent=parent,
                until=until,
            )
        )
    )
