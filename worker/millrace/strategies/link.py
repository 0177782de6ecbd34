"""What the strategies of a chain have in common: each holds the next one, and something it could not hand on yet.

`Link` answers for the order of closing, for waits with a deadline, and for polling on; `Inline` is the link of every
stage that does its work at once, within `submit`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from threading import get_ident

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch
from millrace.engine.calls import Call, thread_stack
from millrace.engine.several import Several
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import MessageFailure
from millrace.strategies.each import Outcome, record_at

JOIN_WAIT = 0.002  # s between two looks while joining

Work = Callable[[Batch], Outcome]

AtWork = tuple[int, Sequence[Record], int]
"""What a thread works on: partition, records, the thread."""


class Link(Strategy):
    """A strategy that hands on to `next`."""

    def __init__(self, next_: Strategy) -> None:
        self._next = next_
        self._closed = self._next_closed = False
        self._failed: MessageFailure | None = None  # was raised; nothing is taken any more

    @abstractmethod
    def _go_on(self) -> None:
        """Hand on what can be handed on now, without blocking."""

    @abstractmethod
    def _busy(self) -> bool:
        """Whether something is here that has not been handed on."""

    def poll(self) -> None:
        self._next.poll()  # first, to make room; and if both fail, the failure of the earlier message is met
        self._go_on()
        self._close_next()

    def drain(self, partitions: Set[int]) -> None:
        self._next.drain(partitions)

    def abandon(self, partitions: Set[int]) -> None:
        self._next.abandon(partitions)

    def close(self) -> None:
        self._closed = True
        self._close_next()

    def join(self, deadline: Deadline) -> bool:
        while self._busy():
            if deadline.expired():
                return False
            self.poll()
            if self._busy():
                deadline.clock.sleep(min(JOIN_WAIT, deadline.remaining()))
        self._close_next()
        return self._next.join(deadline)

    def terminate(self) -> None:
        self._closed = True
        self._next.terminate()

    def in_flight(self) -> Iterable[tuple[str, int]]:
        yield self._held()
        yield from self._next.in_flight()

    def _held(self) -> tuple[str, int]:
        """Name of this stage, and how many source messages it has not handed on."""
        return "", 0

    def calls(self) -> Iterable[Call]:
        yield from self._calls()
        yield from self._next.calls()

    def _calls(self) -> Iterable[Call]:
        """Those of this stage."""
        return ()

    def _hand_on(self, batch: Batch) -> bool:
        """Submit to the next. Returns whether it was taken; it also was if this raises a failure."""
        try:
            self._next.submit(batch)
        except MessageRejected:
            return False
        except MessageFailure as failure:
            self._failed = failure
            raise
        return True

    def _close_next(self) -> None:
        # only when nothing is left to be submitted to it
        if self._closed and not self._next_closed and not self._busy():
            self._next_closed = True
            self._next.close()


class Keeping(Link):
    """A link that hands on what was made of one batch after the other: each is kept until the next stage takes it, and a
    failure that came behind it is raised only then.
    """

    def __init__(self, next_: Strategy) -> None:
        super().__init__(next_)
        self._kept: Batch | None = None
        self._pending: MessageFailure | None = None  # to be raised when what is kept has been handed on

    def _keep(self, outcome: Outcome) -> None:
        self._kept, self._pending = outcome.batch, outcome.failure

    def _hand_on_kept(self) -> bool:
        """Returns whether nothing is kept any more. Raises what the next stage raises, and what is pending."""
        kept, self._kept = self._kept, None
        if kept is None:
            return True
        try:
            taken = self._hand_on(kept)
        except MessageFailure:
            self._forget_all()
            raise
        if not taken:
            self._kept = kept
            return False
        if self._pending is not None:
            self._failed, self._pending = self._pending, None
            raise self._failed
        return True

    def _forget_all(self) -> None:
        """A later stage has failed: nothing of what is here will be handed on."""
        self._kept = self._pending = None

    def abandon(self, partitions: Set[int]) -> None:
        if self._kept is not None and self._kept.partition in partitions:
            self._kept = self._pending = None
        super().abandon(partitions)


class Inline(Keeping):
    """A stage that does its work in `submit`, on the engine's thread: one result per batch, kept until the next stage
    takes it; meanwhile it rejects, so the work is done once per batch whatever happens after it.

    Args:
        work: what to do; with a failure in its Outcome, the batch of the Outcome is handed on before it is raised.
        forget: told of partitions that are abandoned or released, for work that remembers something.
        emits: what it hands on is what its stage emits; False: a later link of the stage counts that.
        ends: its results are those of the stage; False: a later link of the stage counts how long that takes.
    """

    def __init__(
        self,
        next_: Strategy,
        work: Work,
        stats: StageStats | None,
        clock: Clock,
        *,
        forget: Callable[[Set[int]], None] | None = None,
        emits: bool = True,
        ends: bool = True,
    ) -> None:
        super().__init__(next_)
        self._work, self._stats, self._clock, self._forget = work, stats, clock, forget
        self._emits, self._ends = emits, ends
        self._at_work: AtWork | None = None

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._kept is not None:
            raise MessageRejected
        began = self._clock.monotonic()
        self._at_work = batch.partition, batch.records, get_ident()
        try:
            outcome = self._work(batch)
        finally:
            self._at_work = None
        after = outcome.batch
        if self._stats is not None:
            seconds = self._clock.monotonic() - began
            self._stats.add(len(batch.values), len(after.values) if self._emits else 0, outcome.dead, seconds)
            if self._ends:
                self._stats.took(seconds)
        self._keep(outcome)
        self._go_on()

    def _go_on(self) -> None:
        self._hand_on_kept()

    def _held(self) -> tuple[str, int]:
        name = "" if self._stats is None else self._stats.name
        return name, 0 if self._kept is None else self._kept.count

    def _calls(self) -> Iterator[Call]:
        at_work = self._at_work
        if at_work is not None and self._stats is not None:
            yield from calls_at(self._stats.name, at_work, id(self))

    def _busy(self) -> bool:
        return self._kept is not None

    def abandon(self, partitions: Set[int]) -> None:
        if self._forget is not None:
            self._forget(partitions)
        super().abandon(partitions)

    def terminate(self) -> None:
        self._kept = None
        super().terminate()


def calls_at(stage: str, at_work: AtWork, owner: int) -> Iterator[Call]:
    """The call that a thread is in, as closely as can be told. owner: what tells it from those of others."""
    partition, records, thread = at_work
    if records:
        at = record_at(thread)
        low, high = (records[0], records[-1]) if at is None else (at, at)
        first, last = low.offset(), last_offset(high)
        mark = (owner, partition, records[0].offset(), first, at is None)
        yield Call(stage, partition, first, last, mark, lambda: thread_stack(thread))


def last_offset(record: Record) -> int:
    """The last of the messages that a record stands for."""
    return record.end - 1 if isinstance(record, Several) else record.offset()
