"""When a job that ends by itself is done: pure. It is asked after each batch, and while there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from millrace.channel import wire
from millrace.collector.positions import Positions, watermark
from millrace.collector.progress import BatchProgress
from millrace.collector.spec import JobSpec

IDLE_SECONDS = 4.0  # without a batch until there is none to come: some intervals of a bounded job


class Ending(Protocol):
    def after(self, batch: BatchProgress, positions: Positions, now: float, /) -> bool:
        """Whether all is done with this batch. positions: with it; now: seconds on the monotonic clock."""

    def idle(self, now: float, active: Callable[[], bool], /) -> bool:
        """Whether all is done, though no batch says so. active: asks Spark whether a batch is under way."""


class Never:
    """A job that runs until it is asked to stop."""

    def after(self, _batch: BatchProgress, _positions: Positions, _now: float, /) -> bool:
        return False

    def idle(self, _now: float, _active: Callable[[], bool], /) -> bool:
        return False


class AllClosed(Never):
    """A batch had the end marks of all partitions as its watermark, left no window open, and read all that there was.

    What a function keeps is its own affair; and without event time there is no watermark, only the marks.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._closed = last_watermark(spec)
        self._partitions, self._declared = range(spec.partitions), spec.query.function is None

    def after(self, batch: BatchProgress, positions: Positions, _now: float, /) -> bool:
        if any(batch.ends.get(p, 0) < end for p, end in batch.latest.items()):
            return False
        if self._closed is None:
            return all(p in positions and positions[p].time == wire.END for p in self._partitions)
        if self._declared and batch.state_rows:
            return False
        return batch.watermark is not None and batch.watermark >= self._closed


def last_watermark(spec: JobSpec) -> int | None:
    """The watermark that closes all windows, by the end marks of all partitions; None without event time."""
    window = spec.query.window
    return None if window is None else _millis(wire.END - window.late_after)


class AllTaken:
    """What the channel held at the start is read, and the windows that it closes are written.

    They are closed by the second batch after the one that has read it all (`control`). Where that can't be told from
    event times, it has been long enough without a batch.

    Args:
        ends: of the channel at the start.
        positions: of the checkpoint at the start.
    """

    def __init__(self, ends: Mapping[int, int], positions: Positions, spec: JobSpec) -> None:
        self._ends = ends
        self._partitions, self._window = spec.partitions, spec.query.window
        self._read = {p: position.offset for p, position in positions.items()}
        self._quiet_since: float | None = None

    def after(self, batch: BatchProgress, positions: Positions, now: float, /) -> bool:
        self._read.update(batch.ends)
        self._quiet_since = now
        if not self._has_read():
            return False
        if self._window is None:
            return True  # nothing waits for event time
        closed = watermark(positions, self._partitions, self._window)
        # None: a partition has no mark yet, and there may be more to come of the batches before
        return closed is not None and (batch.watermark or 0) >= _millis(closed)

    def idle(self, now: float, active: Callable[[], bool], /) -> bool:
        if self._quiet_since is None or not self._has_read() or active():
            self._quiet_since = now
        return now - self._quiet_since >= IDLE_SECONDS

    def _has_read(self) -> bool:
        return all(self._read.get(p, 0) >= end for p, end in self._ends.items())


def _millis(micros: int) -> int:
    """Spark's watermarks are whole milliseconds."""
    return micros // 1000 * 1000
