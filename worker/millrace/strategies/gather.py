"""Gather: hold the values of a partition until there are enough of them, and make them into fewer.

What it holds and what it hands on are runs of one partition without gaps: consecutive batches become one, which answers
for all their offsets, those of filtered messages and of dead letters in between too. So an offset is committed when what
was made of its message has come to its end, and not before (invariant 1), without any care of the stages around it.

A hold is closed by the message that makes it full, when it has been open for long enough, when its partition is drained,
when the chain is closed, and early when all that is held takes more `Room` than there is. It is closed between two
messages: all values that a flatMap made of a message go into the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from operator import methodcaller
from typing import Protocol

from millrace.clock import Clock
from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.several import Several, members_of
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import MessageFailure, StageFailed
from millrace.strategies.link import Link, Work

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

    def leave(self, hold: _Hold) -> None:
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


class Gather(Link):
    """A stage that holds.

    Args:
        contents: makes what a hold begins with.
        finish: what to do with a batch of values made; the stage's, like `contents`.
    """

    def __init__(
        self,
        next_: Strategy,
        fill: Fill,
        contents: Callable[[], Contents],
        room: Room,
        stats: StageStats,
        clock: Clock,
        *,
        finish: Work | None = None,
    ) -> None:
        super().__init__(next_)
        self._fill, self._contents, self._room, self._finish = fill, contents, room, finish
        self._stats, self._clock = stats, clock
        self._holds: dict[int, _Hold] = {}  # by partition
        self._ready: deque[tuple[Batch, MessageFailure | None]] = deque()  # closed, not taken by the next
        self._leaving: set[int] = set()

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._ready:
            raise MessageRejected
        began = self._clock.monotonic()
        hold = self._holds.pop(batch.partition, None) or _Hold(batch, began, self._contents())
        self._room.messages += batch.count
        self._room.bytes += hold.extend(batch)
        self._take(hold, batch)
        while self._room.over() and self._holds:
            self._close(max(self._holds.values(), key=_bytes if self._room.too_large() else _messages))
        self._stats.add(len(batch.values), 0, 0, self._clock.monotonic() - began)
        self._go_on()

    def drain(self, partitions: Set[int]) -> None:
        self._leaving |= partitions
        super().drain(partitions)

    def abandon(self, partitions: Set[int]) -> None:
        self._leaving -= partitions
        for partition in partitions & self._holds.keys():
            self._room.leave(self._holds.pop(partition))
        self._ready = deque(ready for ready in self._ready if ready[0].partition not in partitions)
        super().abandon(partitions)

    def terminate(self) -> None:
        self._give_up()
        super().terminate()

    # -- taking --------------------------------------------------------------------------------------------------

    def _take(self, hold: _Hold, batch: Batch) -> None:
        """Fill the hold; close it as often as it is full; and hold what is left."""
        for first, after, full in _pieces(self._fill, hold, batch):
            taken = hold.contents.take(batch.records[first:after], batch.values[first:after])
            self._stats.dead += len(taken.dead)
            hold.dead.extend(taken.dead)
            if taken.failure is not None:
                end = taken.failure.offset
                if taken.spoilt:
                    end = hold.contents.records[0].offset()
                elif hold.contents.records:
                    hold.finish_unit(end)
                self._emit(hold, end, taken.failure)
                return
            if full and hold.contents.records:
                hold.finish_unit(batch.records[after].offset() if after < len(batch.records) else batch.end)
            if full:
                hold.contents, hold.values, hold.bytes = self._contents(), 0, 0
        if not hold.contents.records:
            self._emit(hold, hold.end)
        elif hold.units:
            rest = self._emit(hold, hold.units[-1][0].end)
            if rest is not None:
                rest.since = self._clock.monotonic()
                self._holds[hold.partition] = rest
        else:
            self._holds[hold.partition] = hold

    def _due(self, hold: _Hold) -> bool:
        if self._closed or hold.partition in self._leaving:
            return True
        return self._clock.monotonic() - hold.since >= self._fill.seconds

    def _close(self, hold: _Hold) -> None:
        del self._holds[hold.partition]
        hold.finish_unit(hold.end)
        self._emit(hold, hold.end)

    def _give_up(self) -> None:
        for hold in self._holds.values():
            self._room.leave(hold)
        self._holds.clear()
        self._ready.clear()

    # -- handing on ----------------------------------------------------------------------------------------------

    def _emit(self, hold: _Hold, end: int, failure: MessageFailure | None = None) -> _Hold | None:
        """Make ready what was closed, up to an offset. Returns what is left of the hold; after a failure nothing is."""
        batch, rest = hold.cut(end)
        self._room.leave(hold)
        if self._finish is not None and batch.values:
            outcome = self._finish(batch)
            self._stats.dead += outcome.dead
            batch, failure = outcome.batch, outcome.failure or failure
        self._stats.emitted += len(batch.values)
        self._ready.append((batch, failure))
        if failure is not None:
            return None
        self._room.messages += len(rest.source)
        self._room.bytes += rest.size
        return rest

    def _go_on(self) -> None:
        self._hand_on_ready()
        for hold in [hold for hold in self._holds.values() if self._due(hold)]:
            if self._ready:
                return
            began = self._clock.monotonic()
            self._close(hold)
            self._stats.seconds += self._clock.monotonic() - began
            self._hand_on_ready()

    def _hand_on_ready(self) -> None:
        while self._ready:
            batch, failure = self._ready[0]
            try:
                if not self._hand_on(batch):
                    return
            except MessageFailure:
                self._give_up()
                raise
            self._ready.popleft()
            if failure is not None:
                self._failed = failure
                raise failure

    def _busy(self) -> bool:
        return bool(self._holds or self._ready)


class _Hold:
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

    def finish_unit(self, end: int) -> None:
        """What is in `contents` is complete, and answers for the messages up to `end`."""
        members = members_of(self.contents.records)
        self.units.extend((Several(members, end, key), value) for key, value in self.contents.made())

    def cut(self, end: int) -> tuple[Batch, _Hold]:
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
        rest = _Hold(batch, self.since, self.contents)
        rest.start, rest.end, rest.source, rest.dead = end, self.end, self.source[at:], dead[kept:]
        rest.values, rest.bytes, rest.size = self.values, self.bytes, _size(rest.source)
        return batch, rest


def _pieces(fill: Fill, hold: _Hold, batch: Batch) -> Iterator[tuple[int, int, bool]]:
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


def _messages(hold: _Hold) -> int:
    return len(hold.source)


def _bytes(hold: _Hold) -> int:
    return hold.size


def _offset(record: Record) -> int:
    return record.offset()
