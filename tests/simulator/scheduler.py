"""Processes as greenlets on a virtual clock: one thread, one order of events per seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from greenlet import GreenletExit, getcurrent, greenlet

from millrace.clock import VirtualClock


class Crashed(GreenletExit):
    """Raised inside a process that is killed: no code of it catches this, but `finally` runs, as it would not."""


class Process:
    """One process. `crash` ends it wherever it waits; `stopping` asks it to end by itself."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[Process], None]) -> None:
        self.name, self.stopping, self.alive = name, False, True
        self.error: BaseException | None = None
        self._scheduler, self._body = scheduler, body
        self.greenlet = greenlet(self._run, parent=scheduler.hub)

    def _run(self) -> None:
        try:
            self._body(self)
        except Crashed:
            pass
        except Exception as error:  # noqa: BLE001  reported by whoever looks after this process
            self.error = error
        finally:
            self.alive = False
            self._scheduler.ended(self)

    def crash(self) -> None:
        """From outside of it."""
        if not self.alive:
            return
        if self.greenlet:
            self.greenlet.throw(Crashed)
        else:  # it was never started
            self.alive = False
            self._scheduler.ended(self)


class SimulatedClock(VirtualClock):
    """A process that sleeps lets the others run."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def sleep(self, seconds: float) -> None:
        self._scheduler.pause(seconds)


class Scheduler:
    """Runs processes and timed actions in the order of their times; equal times in the order they were asked for."""

    def __init__(self) -> None:
        self.hub = getcurrent()
        self.clock = SimulatedClock(self)
        self.on_end: Callable[[Process], None] = lambda _: None
        self.switches = 0
        self._queue: list[tuple[float, int, Process | Callable[[], None]]] = []
        self._sequence = 0
        self.current: Process | None = None

    def start(self, name: str, body: Callable[[Process], None], *, after: float = 0.0) -> Process:
        process = Process(self, name, body)
        self._at(after, process)
        return process

    def call(self, after: float, action: Callable[[], None]) -> None:
        """Do something in `after` seconds, outside of any process."""
        self._at(after, action)

    def pause(self, seconds: float) -> None:
        """Of the running process; outside of one there is nobody to wait for."""
        process = self.current
        if process is None:
            self.clock.advance(seconds)
            return
        self._at(seconds, process)
        self.hub.switch()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Returns whether the condition was met in time."""
        end = self.clock.monotonic() + seconds
        while not until():
            if not self._queue or self._queue[0][0] > end:
                return False
            when, _, what = heapq.heappop(self._queue)
            self.clock.advance(max(0.0, when - self.clock.monotonic()))
            if not isinstance(what, Process):
                what()
            elif what.alive:
                self.switches += 1
                self.current = what
                what.greenlet.switch()
                self.current = None
        return True

    def ended(self, process: Process) -> None:
        running, self.current = self.current, None
        self.on_end(process)
        self.current = running if running is not process else None

    def _at(self, after: float, what: Process | Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.clock.monotonic() + after, self._sequence, what))
