"""Time in a harness: it passes when the test says so, or when there is nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Callable

from millrace.clock import VirtualClock
from millrace.errors import MillraceError


class Unfinished(MillraceError):
    """A run did not come to its end within the time it was given on the harness's clock."""


class PoolClock(VirtualClock):
    """For pipelines with pools: functions in threads, processes and event loops take real time, so while one may be under
    way (`busy`) this clock is the machine's. Otherwise it moves as a VirtualClock does.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._busy, self._began = busy, time.monotonic()

    def monotonic(self) -> float:
        return super().monotonic() + time.monotonic() - self._began

    def time(self) -> float:
        return super().time() + time.monotonic() - self._began

    def sleep(self, seconds: float) -> None:
        if self._busy():
            time.sleep(seconds)
        else:
            self.advance(seconds)
