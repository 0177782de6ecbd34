"""A crew of coroutines in an event loop on a thread of its own, for asynchronous functions.

A task for each message would cost 10 us each (docs/performance.md). So there are few tasks, and each pulls one message
after the other; another one is begun only when one that was begun had to wait. So functions that never wait are all
called by one task, and a thousand tasks are there when a thousand calls wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType

from millrace.clock import Clock
from millrace.engine.calls import Call, frames_stack, thread_stack
from millrace.errors import StageFailed
from millrace.strategies.each import Raised
from millrace.strategies.functions import FunctionWork
from millrace.strategies.judge import Stuck
from millrace.strategies.pool.crew import Place, Watched, await_unit, await_within, call_of
from millrace.strategies.pool.schedule import Schedule, Unit

JOIN_SECONDS = 1.0  # to wait for the loop in the end: it ends at once unless a function holds it


class Tasks(Watched):
    """At most `size` calls under way. One that takes too long is cancelled; if it goes on nevertheless, or holds the loop,
    it counts as one that goes on for ever.
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
        self._work = work
        self._tasks: dict[Place, asyncio.Task[None]] = {}  # of the loop's thread
        self._growing = False  # a task was begun and has not come to its turn yet
        self._over = False
        self._held: tuple[float, Unit] | None = (
            None  # when the loop was told to cancel a call, and has not yet
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{name}-pool", daemon=True)
        self._thread.start()

    def wake(self, units: int) -> None:  # noqa: ARG002 - the interface's
        if not self._over:
            self._loop.call_soon_threadsafe(self._grow)

    def release(self) -> None:
        if self._over:
            return
        self._over = True
        self._schedule.end()
        self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def calls(self, stage: str) -> Iterator[Call]:
        for place, task in list(self._tasks.items()):
            unit = place.unit
            if unit is not None and not place.given_up:
                holding = getattr(task.get_coro(), "cr_running", False)
                yield call_of(stage, unit, place, partial(self._stack, task), self._timeout, holding=holding)

    def look(self) -> None:
        super().look()
        held, timeout = self._held, self._timeout
        if held is not None and timeout is not None and self._clock.monotonic() - held[0] > timeout:
            job, index, _ = held[1]
            error = Stuck(f"it took longer than {timeout:g} s, and holds the event loop")
            verdict = self._work.judge.judge(error, job.batch.records[index])
            if isinstance(verdict, StageFailed):
                self._held = None
                raise verdict

    def _replace(self, place: Place) -> None:
        if self._held is None and place.unit is not None:
            self._held = (self._clock.monotonic(), place.unit)
        self._loop.call_soon_threadsafe(self._cancel, place)

    def _stack(self, task: asyncio.Task[None]) -> str:
        """A coroutine that waits is on no thread; its stack is the chain of what it awaits."""
        coroutine = task.get_coro()
        if getattr(coroutine, "cr_running", False):
            return thread_stack(self._thread.ident or 0)
        return frames_stack(_frames(coroutine))

    # on the loop's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        with contextlib.suppress(Exception):  # generators of the user's that don't like to be closed
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _grow(self) -> None:
        """Begin another task if there may be one. It begins the next when there is more to do than it takes at once."""
        if self._growing or self._over or self._schedule.idle():
            return
        if len(self._tasks) - self._lost() >= self._size:
            return
        self._growing = True
        place = Place()
        self._tasks[place] = self._loop.create_task(self._pull(place))

    def _lost(self) -> int:
        return 0 if self._timeout is None else sum(place.given_up for place in self._tasks)

    async def _pull(self, place: Place) -> None:
        schedule, work, timed = self._schedule, self._work, self._timeout is not None
        self._growing = False
        unit: Unit | None = None
        try:
            while (unit := schedule.take()) is not None:
                if not self._growing:
                    self._grow()
                if timed:
                    place.since = self._clock.monotonic()
                    self._places.add(place)
                place.unit = unit
                span = unit.job.span
                call = await_unit(work, unit) if span is None else await_within(span, work, unit)
                if not schedule.settle(unit, await call):
                    break  # it was given up, and another one has taken this place
        except asyncio.CancelledError:
            if (
                unit is not None and not place.given_up and not self._over
            ):  # the function has cancelled itself
                schedule.settle(unit, Raised(RuntimeError("the call was cancelled from within")))
        finally:
            place.unit = None
            self._places.discard(place)
            del self._tasks[place]
            self._grow()

    def _cancel(self, place: Place) -> None:
        self._held = None
        task = self._tasks.get(place)
        if task is not None:
            task.cancel()
        self._grow()

    def _cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._loop.call_soon(self._loop.stop)


def _frames(awaited: object) -> Iterator[FrameType]:
    """Of a coroutine that waits, and of what it waits for, outermost first: coroutines and generators, as far as they are
    written in Python.
    """
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                yield frame
                break
        else:
            return
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
