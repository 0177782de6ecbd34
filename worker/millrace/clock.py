"""Time, as the rest of the code may know it: one clock to be injected, one deadline to be passed down.

Nothing else in Millrace reads a clock or sleeps. Deadlines live on the monotonic clock, so a change of wall-clock time
never shortens or lengthens a wait; tests and the simulation inject `VirtualClock`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; its zero has no meaning."""

    def time(self) -> float:
        """Seconds since the Unix epoch, for timestamps shown to people and written to records only."""

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """A clock that moves only when told to: by `advance`, or by whoever sleeps on it."""

    def __init__(self, start: float = 0.0, unix: float = 1_700_000_000.0) -> None:
        self._now, self._unix = start, unix - start

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._unix + self._now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock can't go back by {-seconds} s")
        self._now += seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock by which a wait is over. One object is passed down through all the waits of an
    operation, so that they share it instead of adding up.
    """

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - self.clock.monotonic())

    def expired(self) -> bool:
        return self.clock.monotonic() >= self.at
