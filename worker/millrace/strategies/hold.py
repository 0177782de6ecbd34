"""What a stage that gathers holds of one partition: when it is full, what is made of it, how it is cut. Pure; see `gather`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import methodcaller
from typing import Protocol

from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.several import Several, members_of
from millrace.errors import StageFailed

MOST_MESSAGES = 50_000  # half of what an engine has in flight: the other half keeps coming in meanwhile
MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Fill:
    """When a hold is full.

    Attributes:
        count: values.
        bytes: of the messages they were made of, key and value as in the source; None: whatever they have.
        seconds: since its first message.
    """

    count: int
    bytes: int | None
    seconds: float


@dataclass(slots=True)
class Room:
    """What the stages of one chain that gather may hold together: source messages and their bytes."""

    most_messages: int = MOST_MESSAGES
    most_bytes: int = MOST_BYTES
    messages: int = 0
    bytes: int = 0

    def over(self) -> bool:
        return self.messages > self.most_messages or self.too_large()

    def too_large(self) -> bool:
        return self.bytes > self.most_bytes

    def leave(self, hold: Hold) -> None:
        self.messages -= len(hold.source)
        self.bytes -= hold.size


@dataclass(frozen=True, slots=True)
class Taken:
    """How it went to take some values. With a failure, those from its message on were not taken; with `spoilt` it has
    left something in what was taken before, which can't be used any more.
    """

    dead: Sequence[DeadLetter] = ()
    failure: StageFailed | None = None
    spoilt: bool = False


class Contents(Protocol):
    """What is made of the values of one hold."""

    records: list[Record]
    """Of the values in it, in their order. Empty: nothing is in it."""

    def take(self, records: Sequence[Record], values: Sequence[object]) -> Taken:
        """Values of whole messages."""

    def made(self) -> Sequence[tuple[bytes | None, object]]:
        """Keys and values to hand on, at least one if there are records. Called once."""


class Listed:
    """Lists of at most `count` values."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.records: list[Record] = []
        self._values: list[object] = []

    def take(self, records: Sequence[Record], values: Sequence[object]) -> Taken:
        self.records.extend(records)
        self._values.extend(values)
        return Taken()

    def made(self) -> Sequence[tuple[bytes | None, object]]:
        values, count = self._values, self._count
        return [(None, values[at : at + count]) for at in range(0, len(values), count)]


class Hold:
    """What is held of one partition: the offsets from `start` up to `end`.

    Attributes:
        units: closed, with the values made of each.
        values, bytes: what was offered to `contents`, which is open.
        size: bytes of all of `source`.
    """

    __slots__ = (
        "bytes",
        "contents",
        "dead",
        "end",
        "partition",
        "since",
        "size",
        "source",
        "start",
        "units",
        "values",
    )

    def __init__(self, batch: Batch, since: float, contents: Contents) -> None:
        self.partition, self.start, self.end = batch.partition, batch.start, batch.start
        self.source: list[Record] = []
        self.dead: list[DeadLetter] = []
        self.since, self.size, self.contents = since, 0, contents
        self.values = self.bytes = 0
        self.units: list[tuple[Several, object]] = []

    def extend(self, batch: Batch) -> int:
        """Answer for this batch too. Returns the bytes of its messages. Raises ValueError if it does not come next."""
        if batch.start != self.end:
            raise ValueError(f"partition {self.partition}: offset {batch.start} came, {self.end} was due")
        self.end = batch.end
        self.source.extend(batch.source)
        self.dead.extend(batch.dead)
        size = _size(batch.source)
        self.size += size
        return size

    def finish_unit(self, end: int, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        """What is in `contents` is complete, and answers for the messages up to `end`."""
        members = members_of(self.contents.records)
        self.units.extend((Several(members, end, key, headers), value) for key, value in self.contents.made())

    def cut(self, end: int) -> tuple[Batch, Hold]:
        """The batch that answers for what is below `end`, with the closed units; and the rest."""
        at = bisect_left(self.source, end, key=_offset)
        dead = sorted(self.dead, key=lambda letter: letter.record.offset())
        kept = bisect_left(dead, end, key=lambda letter: letter.record.offset())
        batch = Batch(
            self.partition,
            self.start,
            end,
            self.source[:at],
            [several for several, _ in self.units],
            [value for _, value in self.units],
            tuple(dead[:kept]),
        )
        rest = Hold(batch, self.since, self.contents)
        rest.start, rest.end, rest.source, rest.dead = end, self.end, self.source[at:], dead[kept:]
        rest.values, rest.bytes, rest.size = self.values, self.bytes, _size(rest.source)
        return batch, rest


def pieces(fill: Fill, hold: Hold, batch: Batch) -> Iterator[tuple[int, int, bool]]:
    """Where to cut the values of a batch: first, after, and whether the hold is full with that piece."""
    records, count = batch.records, len(batch.records)
    sizes: list[int] = []
    if fill.bytes is not None:
        sizes = list(accumulate(_sizes(records), initial=0))
    first = 0
    while first < count:
        after = first + fill.count - hold.values
        if fill.bytes is not None:
            after = min(after, bisect_left(sizes, fill.bytes - hold.bytes + sizes[first]))
        full = after <= count
        after = min(max(after, first + 1), count)
        while after < count and records[after].offset() == records[after - 1].offset():
            after += 1
        hold.values += after - first
        hold.bytes += sizes[after] - sizes[first] if sizes else 0
        yield first, after, full
        first = after


def _sizes(records: Sequence[Record]) -> Iterator[int]:
    """Bytes of the messages behind the records of some values; 0 where a message had a value before."""
    before = -1
    for record in records:
        offset = record.offset()
        if offset == before:
            yield 0
        else:
            yield _size(record.members if isinstance(record, Several) else (record,))
        before = offset


def _size(records: Sequence[Record]) -> int:
    keys = map(len, filter(None, map(methodcaller("key"), records)))
    return sum(map(len, filter(None, map(methodcaller("value"), records)))) + sum(keys)


def _offset(record: Record) -> int:
    return record.offset()
