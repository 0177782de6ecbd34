"""What the collector says of itself: a file, written whole after each batch, for whoever launched it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace.worker.files import write_whole
from millrace.worker.status import Failure

STARTING, RUNNING, ENDED, STOPPED, FAILED = "starting", "running", "ended", "stopped", "failed"


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    Attributes:
        started, updated: seconds since the Unix epoch.
        state: starting | running | ended (all that it was to do is done) | stopped | failed.
        version: of the checkpoint.
        attempt: how many of this stage the one who launches has started, this one among them; restarts: how many of
            them because the one before had failed.
        batch: the last batch that is done; batches: how many this process has done.
        seconds: that the last batch took; busy: that all batches of this process took.
        rows: of the channel read by this process; rows_per_second: in the last batch that had any.
        written: rows of results written by this process.
        state_rows: groups whose window is open.
        watermark: event time up to which windows are closed, microseconds since the epoch.
        offsets, latest: partition -> how far the channel is read, and its end when Spark last looked.
        late: groups with rows that Spark has dropped by its watermark, in this process; 0, unless partitions were added.
        http: HOST:PORT of health and metrics; ui: address of Spark's own UI. "" if there is none.
    """

    pid: int
    started: float
    updated: float
    state: str
    version: int = 1
    attempt: int = 1
    restarts: int = 0
    batch: int | None = None
    batches: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    rows: int = 0
    rows_per_second: float = 0.0
    written: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: int | None = None
    offsets: dict[int, int] = {}
    latest: dict[int, int] = {}
    late: int = 0
    http: str = ""
    ui: str = ""
    error: Failure | None = None


def write(status: CollectorStatus, path: Path) -> None:
    """Raises MillraceError (DISK)."""
    write_whole(path, msgspec.json.encode(status))


def read(path: Path) -> CollectorStatus | None:
    """None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CollectorStatus)
    except FileNotFoundError:
        return None
