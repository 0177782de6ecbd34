"""Those who call the function, and what bounds a call in time.

A thread can't be stopped from outside, nor a coroutine that holds its event loop. So a call that takes longer than its
timeout is given up: it counts as a TimeoutError, another one takes its place, and what it returns in the end is not looked
at. When as many calls as there are places have been given up and still go on, nothing is left but to end the worker:
`Stuck`, whatever onError says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from millrace.clock import Clock
from millrace.engine.calls import Call
from millrace.engine.tracing import Span
from millrace.strategies.each import Raised, called, exited
from millrace.strategies.functions import FunctionWork
from millrace.strategies.judge import Stuck
from millrace.strategies.link import last_offset
from millrace.strategies.pool.schedule import Schedule, Unit
from millrace.strategies.vectorized import Vectorized

WATCH_EVERY = 0.01  # s between two looks at the calls under way


class Crew(Protocol):
    """All methods are called on the engine's thread, and none blocks for longer than a moment."""

    def wake(self, units: int) -> None:
        """So many units can be begun now, in addition to those of former calls."""

    def look(self) -> None:
        """Called in every poll: begin what is to be called again, give up what takes too long. May raise MillraceError
        where nobody can be had to call the function.
        """

    def release(self) -> None:
        """Nothing is wanted any more: end at once what can be ended. Idempotent."""

    def calls(self, stage: str) -> Iterable[Call]:
        """What `Strategy.calls` gives. Safe on any thread."""


class Place:
    """One who calls: the call under way, None when there is none, on which thread, and, where there is a timeout, since
    when (s).
    """

    __slots__ = ("given_up", "since", "thread", "unit")

    def __init__(self) -> None:
        self.unit: Unit | None = None
        self.thread = 0
        self.since = 0.0
        self.given_up = False


class Watched(ABC):
    """A crew of at most `size` places in this process, with a timeout (s) for each call; None: no limit."""

    def __init__(self, schedule: Schedule, size: int, timeout: float | None, clock: Clock) -> None:
        self._schedule, self._size, self._timeout, self._clock = schedule, size, timeout, clock
        self._places: set[Place] = (
            set()
        )  # of the engine's thread; those given up are in it too while they go on
        self._watched = clock.monotonic()

    def look(self) -> None:
        now = self._clock.monotonic()
        again = self._schedule.wake(now)
        if again:
            self.wake(again)
        if self._timeout is not None and now - self._watched >= WATCH_EVERY:
            self._watched = now
            self._give_up(now, self._timeout)

    @abstractmethod
    def wake(self, units: int) -> None: ...

    @abstractmethod
    def calls(self, stage: str) -> Iterable[Call]: ...

    @abstractmethod
    def _replace(self, place: Place) -> None:
        """This call was given up: end it if that is possible, and have another one take its place."""

    def _going_on(self) -> int:
        """Calls that were given up and have not ended yet."""
        return sum(place.given_up and place.unit is not None for place in list(self._places))

    def _give_up(self, now: float, timeout: float) -> None:
        for place in list(self._places):
            unit = place.unit
            if unit is None or place.given_up or now - place.since < timeout:
                continue
            stuck = self._going_on() >= self._size
            error: Exception = TimeoutError(f"it took longer than {timeout:g} s")
            if stuck:
                error = Stuck(
                    f"it took longer than {timeout:g} s, and {self._size} calls that did go on for ever"
                )
            # settled first: one that ends at this very moment learns from that that its place is taken
            if self._schedule.settle(unit, Raised(error)):
                place.given_up = True
                if not stuck:
                    self._replace(place)


def call_of(
    stage: str,
    unit: Unit,
    place: object,
    stack: Callable[[], str],
    allowed: float | None,
    *,
    holding: bool = True,
) -> Call:
    """A unit that is being called, as `Strategy.calls` tells of it."""
    (job, at, attempt), records = unit, unit.job.batch.records
    low, high = (records[0], records[-1]) if job.whole else (records[at], records[at])
    first, last = low.offset(), last_offset(high)
    mark = (id(place), job.batch.partition, first, at, attempt)
    return Call(stage, job.batch.partition, first, last, mark, stack, allowed or 0.0, holding)


def call_unit(work: FunctionWork, unit: Unit) -> object:
    """Call a function that is not asynchronous. Returns what `Schedule.settle` takes."""
    batch, index = unit.job.batch, unit.at
    if isinstance(work, Vectorized):
        return called(lambda: work.accept_all(work.function.call(*work.arguments(batch)), len(batch.values)))
    return called(lambda: work.accept(work.function.at(batch, index)))


async def await_unit(work: FunctionWork, unit: Unit) -> object:
    """Call an asynchronous function. Returns what `Schedule.settle` takes; raises CancelledError."""
    batch, index = unit.job.batch, unit.at
    try:
        if isinstance(work, Vectorized):
            returned = work.function.call(*work.arguments(batch))
            return work.accept_all(await _awaited(returned), len(batch.values))
        return work.accept(await _awaited(work.function.at(batch, index)))
    except SystemExit as raised:
        return Raised(exited(raised))
    except Exception as raised:  # noqa: BLE001 - whatever user code raises is judged, not handled
        return Raised(raised)


def call_within(span: Span, work: FunctionWork, unit: Unit) -> object:
    """The same as `call_unit`, within a span."""
    with span.current():
        return call_unit(work, unit)


async def await_within(span: Span, work: FunctionWork, unit: Unit) -> object:
    """The same as `await_unit`, within a span."""
    with span.current():
        return await await_unit(work, unit)


async def _awaited(returned: object) -> object:
    if hasattr(returned, "__aiter__"):
        return [value async for value in returned]
    return await returned  # type: ignore[misc]
