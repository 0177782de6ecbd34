"""Partitions: append-only logs in which transactions leave their markers.

An offset is given to every record and to every marker, so a committed transaction of three records fills four offsets.
A read_committed reader goes no further than the last stable offset, the first offset of any transaction that is not
finished, and passes over markers and the records of aborted transactions.

A partition knows of a producer id only whether something of it is open: the next marker of that id decides about all of it,
whichever transaction it was written in. Usually that is one; if a marker was forgotten (docs/adr/0007), more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from millrace.connectivity.ports import Headers, OffsetOutOfRange, Span


class Outcome(Enum):
    """What became of the transaction that a record belongs to."""

    PENDING = "pending"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Fateful:
    """What is open of one producer id in a partition: shared by all its records, so that one marker decides for them.

    `promised` is what the coordinator has told the producer where it forgot the marker; no client can see it.
    """

    first: int
    outcome: Outcome = Outcome.PENDING
    promised: Outcome = Outcome.PENDING


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A record in the shape of confluent_kafka.Message: fields are methods."""

    _topic: str
    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: tuple[tuple[str, bytes | None], ...]
    _timestamp_ms: int

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (1, self._timestamp_ms)


@dataclass(slots=True)
class _Entry:
    record: MemoryRecord | None  # None: a transaction's marker
    transaction: Fateful | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A record on its way to the log."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int
    timestamp_ms: int

    @property
    def size(self) -> int:
        """Bytes, about as Kafka counts them: overhead of a record batch included."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.value or b"") + len(self.key or b"") + headers + 70


class PartitionLog:
    """The log of one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._entries: list[_Entry] = []
        self._beginning = 0
        self._open: dict[str, Fateful] = {}  # by transactional id

    @property
    def beginning(self) -> int:
        return self._beginning

    @property
    def end(self) -> int:
        """The high watermark."""
        return self._beginning + len(self._entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min((fate.first for fate in self._open.values()), default=self.end)

    def span(self, *, read_committed: bool) -> Span:
        return Span(self.beginning, self.stable_end if read_committed else self.end)

    def append(self, draft: Draft, timestamp_ms: int, transactional_id: str | None = None) -> int:
        """Returns the record's offset."""
        offset = self.end
        record = MemoryRecord(
            self._topic,
            self._partition,
            offset,
            draft.key,
            draft.value,
            tuple(draft.headers or ()),
            draft.timestamp_ms or timestamp_ms,
        )
        fate = None
        if transactional_id is not None:
            fate = self._open.setdefault(transactional_id, Fateful(offset))
            fate.promised = Outcome.PENDING
        self._entries.append(_Entry(record, fate))
        return offset

    def mark(self, transactional_id: str, outcome: Outcome) -> None:
        """Append the marker that decides what is open of this id here."""
        fate = self._open.pop(transactional_id, None)
        if fate is not None:
            fate.outcome = outcome
        self._entries.append(_Entry(None, None))

    def forget(self, transactional_id: str, outcome: Outcome) -> None:
        """The marker that was due is not written: what is open stays so."""
        fate = self._open.get(transactional_id)
        if fate is not None:
            fate.promised = outcome

    def delete_before(self, offset: int) -> None:
        """Drop everything below `offset`, as retention and delete_records do."""
        if not self._beginning <= offset <= self.end:
            raise OffsetOutOfRange(self._topic, self._partition, offset)
        del self._entries[: offset - self._beginning]
        self._beginning = offset

    def read(
        self, position: int, limit: int, *, read_committed: bool = True
    ) -> tuple[list[MemoryRecord], int]:
        """Up to `limit` records from `position` on, and the position after them: past markers and past records of
        aborted transactions. Raises OffsetOutOfRange.
        """
        end = self.stable_end if read_committed else self.end
        if not self._beginning <= position <= self.end:
            raise OffsetOutOfRange(self._topic, self._partition, position)
        records: list[MemoryRecord] = []
        while position < end and len(records) < limit:
            entry = self._entries[position - self._beginning]
            position += 1
            if entry.record is not None and not (read_committed and _aborted(entry)):
                records.append(entry.record)
        while position < end and self._passed_over(position, read_committed):
            position += 1
        return records, position

    def offset_at(self, timestamp_ms: int) -> int:
        """The first offset whose record is of this time or later; the end where there is none."""
        for entry in self._entries:
            if entry.record is not None and entry.record.timestamp()[1] >= timestamp_ms:
                return entry.record.offset()
        return self.end

    def _passed_over(self, offset: int, read_committed: bool) -> bool:
        entry = self._entries[offset - self._beginning]
        return entry.record is None or (read_committed and _aborted(entry))


def _aborted(entry: _Entry) -> bool:
    return entry.transaction is not None and entry.transaction.outcome is Outcome.ABORTED


@dataclass(slots=True)
class Topic:
    """A topic; its id is another one when it is made anew."""

    name: str
    id: str
    max_message_bytes: int
    logs: list[PartitionLog] = field(default_factory=list)

    def grow(self, total: int) -> None:
        self.logs.extend(PartitionLog(self.name, p) for p in range(len(self.logs), total))

    def records(self, *, read_committed: bool = True) -> Iterator[MemoryRecord]:
        """Everything a reader may see, partition by partition."""
        for log in self.logs:
            yield from log.read(log.beginning, log.end, read_committed=read_committed)[0]
