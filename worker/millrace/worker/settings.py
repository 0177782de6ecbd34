"""The one place where a worker's settings are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millrace.worker.stuck import STUCK_AFTER

DRAIN = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is. None: not given; see `millrace worker --help`.

    Attributes:
        live_within: seconds without progress of the loop after which /livez fails. A batch of up to 500 messages is
            one step, so it must be longer than the slowest batch takes.
        stuck_after: seconds that a call of a stage's function may take before it is told of as stuck.
        drain: seconds in which what was taken is brought to its end when told to stop.
        parent: process id to end with.
        until: file with the ends of a bounded run (engine.bounds); nothing beyond them is processed.
    """

    manifest: Path
    epoch_file: Path
    index: int
    secrets: Path | None = None
    bootstrap: str | None = None
    http: str | None = None
    status_file: Path | None = None
    code: Path | None = None
    live_within: float = 300.0
    stuck_after: float = STUCK_AFTER
    drain: float = DRAIN
    parent: int | None = None
    until: Path | None = None
