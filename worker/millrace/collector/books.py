"""The books of a collector: kept after each batch, and what follows from them.

Each batch's report says how far it has read and what marks it has met. Of that, in this order, become
1. the positions (`positions`), in a file;
2. the watermark, for Spark to close windows by (`control`): the least of what all partitions promise, less the lateness;
3. the offsets of the collector's consumer group, for any tool that shows lag;
4. the floor (`floor`), below which records of the channel are deleted.

A kill between any two of these, or before the first, costs nothing. The positions are brought up with what Spark has
committed at the next start; the watermark follows from them, and is told then. What is deleted belongs to windows that
are closed *and* written, by a batch that is committed, and that as the positions in the file have it.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from millrace.clock import Clock
from millrace.collector import floor, positions
from millrace.collector.control import Control
from millrace.collector.positions import Positions
from millrace.collector.progress import BatchProgress
from millrace.collector.spec import JobSpec
from millrace.connectivity.ports import Admin, Cluster, KafkaError, OffsetAndMetadata

DELETE_EVERY = 60.0  # s between two deletions,
DELETE_AT = 10_000  # unless so many offsets may go
_AGAIN = 1.0  # s until something is tried again that the broker has refused
_KAFKA_SECONDS = 10.0
_START_SECONDS = 30.0  # for what ends the attempt, if it is not answered


class Books:
    """Not thread-safe. What the broker refuses is tried again: `look_after` between batches."""

    def __init__(
        self,
        spec: JobSpec,
        cluster: Cluster,
        admin: Admin,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._spec, self._cluster, self._admin, self._clock, self._log = spec, cluster, admin, clock, log
        self._checkpoint, self._window = Path(spec.checkpoint), spec.query.window
        self.positions: Positions = {}
        self.control = Control(self._checkpoint)
        self._untold: float | None = None  # when telling the watermark is to be tried again
        self._uncommitted: dict[int, int] = {}  # offsets that the group has not yet,
        self._commit_again = 0.0  # and when that is to be tried again
        self._beginnings: dict[int, int] = {}  # offsets below which nothing is left
        self._deleted = clock.monotonic()
        self._owed: int | None = (
            None  # up to which event time windows are closed whose records are still to go
        )

    def open(self) -> None:
        """At the start of a job, before Spark's. Raises MillraceError."""
        spec = self._spec
        self.control.open()
        self.positions = positions.resumed(
            self._checkpoint, self._cluster, spec.channel, spec.group, self._window, self._clock
        )
        positions.write(self._checkpoint, self.positions)
        spans = self._admin.spans(spec.channel, range(spec.partitions), _START_SECONDS)
        self._beginnings = {partition: span.beginning for partition, span in spans.items()}
        self._tell()

    def enter(self, batch: BatchProgress) -> None:
        """A batch is done. Raises MillraceError."""
        spec = self._spec
        gaps = positions.gaps(self.positions, batch)
        found = positions.catch_up(gaps, self._cluster, spec.channel, spec.group, self._clock) if gaps else {}
        self.positions = positions.after(self.positions, batch, self._window, found)
        positions.write(self._checkpoint, self.positions)
        self._tell()
        self._uncommitted.update(batch.ends)
        self._commit()
        if batch.watermark is not None:
            self._delete(batch.watermark)
        if batch.late:
            self._log.error(
                "rows are lost: they came too late for windows that were closed before their partition was known",
                groups=batch.late,
                batch=batch.batch,
                todo="see docs/collector.md, added partitions",
            )

    def look_after(self) -> None:
        """Try again what is owed. Call it now and then."""
        now = self._clock.monotonic()
        if self._untold is not None and now >= self._untold:
            self._tell()
        if self._uncommitted and now >= self._commit_again:
            self._commit()
        if self._owed is not None and now - self._deleted >= DELETE_EVERY:
            self._delete(self._owed)  # no batch may come for long

    def close(self) -> None:
        """At the end of a job: what is owed to others is tried once more."""
        if self._uncommitted:
            self._commit()

    def _tell(self) -> None:
        self._untold = None
        if self._window is None:
            return
        known = positions.watermark(self.positions, self._spec.partitions, self._window)
        if known is None or known <= (self.control.told or 0):
            return
        try:
            partitions = self._partitions()
        except KafkaError as error:
            self._log.warning("the watermark can't be told yet", error=str(error))
            self._untold = self._clock.monotonic() + _AGAIN
            return
        known = positions.watermark(self.positions, partitions, self._window)
        if known is not None:
            self.control.tell(known)

    def _partitions(self) -> int:
        """How many the channel has by now. One that was added holds back windows from the moment it is there; but in a
        bounded run, which began without it, nothing comes in it.
        """
        if self._spec.until_end:
            return self._spec.partitions
        found = self._admin.describe_topic(self._spec.channel, _KAFKA_SECONDS)
        return max(self._spec.partitions, found.partitions if found is not None else 0)

    def _commit(self) -> None:
        offsets = {partition: OffsetAndMetadata(end) for partition, end in self._uncommitted.items()}
        try:
            self._admin.commit_offsets(self._spec.group, self._spec.channel, offsets, _KAFKA_SECONDS)
        except KafkaError as error:
            # only others look at these offsets: no reason to fail
            self._log.warning("progress could not be committed", error=str(error))
            self._commit_again = self._clock.monotonic() + _AGAIN
        else:
            self._uncommitted.clear()

    def _delete(self, closed: int) -> None:
        """closed: windows that end by it are written."""
        if self._window is None:
            return
        floors = {
            p: offset
            for p, position in self.positions.items()
            if (offset := floor.floor(position.history, closed, self._window)) is not None
        }
        higher = floor.rising(floors, self._beginnings)
        count = sum(offset - self._beginnings.get(p, 0) for p, offset in higher.items())
        now = self._clock.monotonic()
        self._owed = closed if higher else None
        if not higher or (count < DELETE_AT and now - self._deleted < DELETE_EVERY):
            return
        self._deleted = now
        try:
            self._admin.delete_records(self._spec.channel, higher, _KAFKA_SECONDS)
        except KafkaError as error:
            self._log.warning("records of the channel could not be deleted", error=str(error))
            return
        self._owed = None
        self._beginnings.update(higher)
        self.positions = {
            p: position
            if p not in higher
            else positions.Position(position.offset, position.time, floor.above(position.history, higher[p]))
            for p, position in self.positions.items()
        }
        self._log.info("records deleted whose windows are written", offsets=count)
