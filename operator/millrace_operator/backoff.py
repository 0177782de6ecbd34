"""How often to do what seldom has an effect."""

from __future__ import annotations

from millrace.clock import Clock


class Backoff:
    """Due at once, and then after a pause that doubles from time to time. All in seconds."""

    def __init__(self, clock: Clock, first: float, longest: float) -> None:
        self._clock, self._first, self._longest = clock, first, longest
        self._next, self._pause = clock.monotonic(), first

    def due(self) -> bool:
        """If so, it is not for the next pause."""
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(2 * self._pause, self._longest)
        return True

    def reset(self) -> None:
        """It is due."""
        self._next, self._pause = self._clock.monotonic(), self._first
