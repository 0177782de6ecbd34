"""A crew of threads, for functions that wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

from millrace.clock import Clock
from millrace.engine.calls import Call, thread_stack
from millrace.strategies.functions import FunctionWork
from millrace.strategies.pool.crew import Place, Watched, call_of, call_unit, call_within
from millrace.strategies.pool.schedule import Schedule


class Threads(Watched):
    """At most `size` daemon threads, started as they are needed. None is waited for in the end: a function that never
    returns must not keep the worker from ending.
    """

    def __init__(
        self,
        schedule: Schedule,
        work: FunctionWork,
        size: int,
        timeout: float | None,
        clock: Clock,
        *,
        name: str,
    ) -> None:
        super().__init__(schedule, size, timeout, clock)
        self._work, self._name = work, name

    def wake(self, units: int) -> None:
        self._places = {place for place in self._places if not place.given_up or place.unit is not None}
        working = len(self._places) - self._going_on()
        for _ in range(min(units, self._size - working)):
            self._start()

    def release(self) -> None:
        self._schedule.end()

    def calls(self, stage: str) -> Iterator[Call]:
        for place in list(self._places):
            unit = place.unit
            if unit is not None and not place.given_up:
                yield call_of(stage, unit, place, partial(thread_stack, place.thread), self._timeout)

    def _replace(self, place: Place) -> None:  # noqa: ARG002 - the interface's
        self._start()

    def _start(self) -> None:
        place = Place()
        self._places.add(place)
        threading.Thread(target=self._run, args=(place,), name=f"{self._name}-pool", daemon=True).start()

    def _run(self, place: Place) -> None:
        schedule, work, clock = self._schedule, self._work, self._clock
        timed = self._timeout is not None
        place.thread = threading.get_ident()
        while (unit := schedule.take(wait=True)) is not None:
            if timed:
                place.since = clock.monotonic()
            place.unit = unit
            span = unit.job.span
            made = call_unit(work, unit) if span is None else call_within(span, work, unit)
            counts = schedule.settle(unit, made)
            place.unit = None
            if not counts:
                return  # it was given up, and another one has taken this place
