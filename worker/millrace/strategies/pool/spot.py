"""A crew of one: the engine's own thread, for a stage without a pool whose function is called again when it fails.

Such a stage can't wait within `submit`: whoever owns the engine has to commit meanwhile. So the function is called in
`submit` and `poll` as ever, one message after the other, but the wait before another attempt is spent elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident

from millrace.clock import Clock
from millrace.engine.calls import Call, thread_stack
from millrace.strategies.functions import FunctionWork
from millrace.strategies.pool.crew import call_of, call_unit, call_within
from millrace.strategies.pool.schedule import Schedule, Unit

STEP_SECONDS = 0.5  # of work in a poll, about: as the engine's own steps


class OnTheSpot:
    """Calls in `look`, on the thread that calls it."""

    def __init__(self, schedule: Schedule, work: FunctionWork, clock: Clock) -> None:
        self._schedule, self._work, self._clock = schedule, work, clock
        self._unit: Unit | None = None
        self._thread = 0

    def wake(self, units: int) -> None:  # noqa: ARG002 - the interface's
        self._call()

    def look(self) -> None:
        self._schedule.wake(self._clock.monotonic())
        self._call()

    def release(self) -> None:
        self._schedule.end()

    def calls(self, stage: str) -> Iterator[Call]:
        unit, thread = self._unit, self._thread
        if unit is not None:
            yield call_of(stage, unit, self, lambda: thread_stack(thread), None)

    def _call(self) -> None:
        began = self._clock.monotonic()
        self._thread = get_ident()
        while self._clock.monotonic() - began < STEP_SECONDS:
            unit = self._schedule.take()
            if unit is None:
                return
            self._unit = unit
            span, work = unit.job.span, self._work
            made = call_unit(work, unit) if span is None else call_within(span, work, unit)
            self._unit = None
            self._schedule.settle(unit, made)
