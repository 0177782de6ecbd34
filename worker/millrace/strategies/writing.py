"""Writing a batch's records to a producer that may be full in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Protocol

from millrace.connectivity.ports import BufferFull, Record, RecordTooLarge, Row
from millrace.engine.batch import Batch
from millrace.errors import StageFailed
from millrace.ownership.provenance import origin_headers, without
from millrace.strategies.addressing import Addressed

_Headers = list[tuple[str, bytes | None]] | None

_OUTPUT: Callable[[object], object] = attrgetter("output")
_ADDRESS: Callable[[object], tuple[bytes | None, bytes | None, _Headers, int]] = attrgetter(
    "value", "key", "headers", "partition"
)


class Sink(Protocol):
    """Where rows go: a producer."""

    def produce_all(self, rows: Sequence[Row], first: int) -> int: ...


class Writing:
    """The rows of one batch on their way out. Each is handed over once: what the sink has not taken is tried again, what
    it has taken is not.

    Attributes:
        written: how many were taken.
    """

    def __init__(self, batch: Batch, records: Sequence[Record], rows: Iterable[Row]) -> None:
        self.batch = batch
        self._records, self._rows = records, list(rows)
        self.written = 0

    def go_on(self, sink: Sink) -> bool:
        """Hand over what is left, as far as the sink takes it. Returns whether all of it was taken.

        Raises RecordTooLarge at a row that it never will; `written` is that row's index.
        """
        try:
            while self.written < len(self._rows):
                self.written = sink.produce_all(self._rows, self.written)
        except BufferFull:
            return False
        return True

    def cut(self, stage: str, error: RecordTooLarge) -> tuple[Batch | None, StageFailed]:
        """At a row that is too large: the part of the batch before its message, and the failure. There is no such part
        if another row of the same message, or of those it was batched with, was written already: what was written then
        must not count.
        """
        record = self._records[self.written]
        failure = StageFailed(
            error.what,
            stage=stage,
            partition=record.partition(),
            offset=record.offset(),
            remedy=error.remedy
            or "raise message.max.bytes in kafka.properties and max.message.bytes of the topic",
        )
        failure.__cause__ = error
        part = self.batch.before(record.offset())
        if self.written and self._records[self.written - 1].offset() >= part.end:
            return None, failure
        return part, failure


def output_rows(
    topic: str, batch: Batch, *, beside: bool = False, writer: str | None = None
) -> Iterable[Row]:
    """The values of a batch, encoded by now, with key, headers and timestamp of the source record they were made of, or as
    they are `Addressed`.
    beside: the values are `formats.Beside`, for a stage comes after this one. writer: with a header that says of each where
    it comes from and that this transactional id wrote it (`ownership.provenance`).
    """
    found: Sequence[object] = list(map(_OUTPUT, batch.values)) if beside else batch.values
    records = batch.records
    if not records:
        return ()
    kind = type(records[0])
    timestamps = [milliseconds if known else 0 for known, milliseconds in map(kind.timestamp, records)]
    keys: Iterable[bytes | None] = map(kind.key, records)
    headers: Iterable[_Headers] = map(kind.headers, records)
    partitions: Iterable[int] = repeat(-1)
    values: Iterable[bytes | None] = found  # type: ignore[assignment]
    if isinstance(found[0], Addressed):
        values, keys, headers, partitions = zip(*map(_ADDRESS, found), strict=True)
    if writer is not None:
        origins = origin_headers(writer, batch.partition, list(map(kind.offset, records)))
        headers = [
            [origin, *without(kept)] if kept else [origin]
            for origin, kept in zip(origins, headers, strict=True)
        ]
    return zip(repeat(topic), values, keys, headers, partitions, timestamps)
