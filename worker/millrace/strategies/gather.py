"""Gather: hold the values of a partition until there are enough of them, and make them into fewer.

What it holds and what it hands on are runs of one partition without gaps: consecutive batches become one, which answers
for all their offsets, those of filtered messages and of dead letters in between too. So an offset is committed when what
was made of its message has come to its end, and not before (invariant 1), without any care of the stages around it.

A hold is closed by the message that makes it full, when it has been open for long enough, when its partition is drained,
when the chain is closed, and early when all that is held takes more `Room` than there is. It is closed between two
messages: all values that a flatMap made of a message go into the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Set
from threading import get_ident

from millrace.clock import Clock
from millrace.engine.batch import Batch
from millrace.engine.calls import Call
from millrace.engine.several import members_of
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.engine.tracing import Tracer
from millrace.errors import MessageFailure
from millrace.strategies.hold import Contents, Fill, Hold, Room, pieces
from millrace.strategies.link import AtWork, Link, Work, calls_at


class Gather(Link):
    """A stage that holds.

    Args:
        contents: makes what a hold begins with.
        finish: what to do with a batch of values made; the stage's, like `contents`.
        tracer: asked for the context of what is made; None: it has none.
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
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(next_)
        self._fill, self._contents, self._room, self._finish = fill, contents, room, finish
        self._stats, self._clock, self._tracer = stats, clock, tracer
        self._holds: dict[int, Hold] = {}  # by partition
        self._ready: deque[tuple[Batch, MessageFailure | None]] = deque()  # closed, not taken by the next
        self._leaving: set[int] = set()
        self._at_work: AtWork | None = None

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._ready:
            raise MessageRejected
        began = self._clock.monotonic()
        hold = self._holds.pop(batch.partition, None) or Hold(batch, began, self._contents())
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

    def _take(self, hold: Hold, batch: Batch) -> None:
        """Fill the hold; close it as often as it is full; and hold what is left."""
        for first, after, full in pieces(self._fill, hold, batch):
            records = batch.records[first:after]
            self._at_work = batch.partition, records, get_ident()
            try:
                taken = hold.contents.take(records, batch.values[first:after])
            finally:
                self._at_work = None
            self._stats.dead += len(taken.dead)
            hold.dead.extend(taken.dead)
            if taken.failure is not None:
                end = taken.failure.offset
                if taken.spoilt:
                    end = hold.contents.records[0].offset()
                elif hold.contents.records:
                    self._finish_unit(hold, end)
                self._emit(hold, end, taken.failure)
                return
            if full and hold.contents.records:
                self._finish_unit(
                    hold, batch.records[after].offset() if after < len(batch.records) else batch.end
                )
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

    def _due(self, hold: Hold) -> bool:
        if self._closed or hold.partition in self._leaving:
            return True
        return self._clock.monotonic() - hold.since >= self._fill.seconds

    def _close(self, hold: Hold) -> None:
        del self._holds[hold.partition]
        self._finish_unit(hold, hold.end)
        self._emit(hold, hold.end)

    def _finish_unit(self, hold: Hold, end: int) -> None:
        headers, records = None, hold.contents.records
        if self._tracer is not None and records:
            headers = self._tracer.join(self._stats.name, hold.partition, members_of(records))
        hold.finish_unit(end, headers)

    def _give_up(self) -> None:
        for hold in self._holds.values():
            self._room.leave(hold)
        self._holds.clear()
        self._ready.clear()

    # -- handing on ----------------------------------------------------------------------------------------------

    def _emit(self, hold: Hold, end: int, failure: MessageFailure | None = None) -> Hold | None:
        """Make ready what was closed, up to an offset. Returns what is left of the hold; after a failure nothing is."""
        batch, rest = hold.cut(end)
        self._stats.took(self._clock.monotonic() - hold.since)
        self._room.leave(hold)
        if self._finish is not None and batch.values:
            self._at_work = batch.partition, batch.records, get_ident()
            try:
                outcome = self._finish(batch)
            finally:
                self._at_work = None
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

    def _held(self) -> tuple[str, int]:
        held = sum(len(hold.source) for hold in self._holds.values())
        return self._stats.name, held + sum(batch.count for batch, _ in self._ready)

    def _calls(self) -> Iterator[Call]:
        at_work = self._at_work
        if at_work is not None:
            yield from calls_at(self._stats.name, at_work, id(self))

    def _busy(self) -> bool:
        return bool(self._holds or self._ready)


def _messages(hold: Hold) -> int:
    return len(hold.source)


def _bytes(hold: Hold) -> int:
    return hold.size
