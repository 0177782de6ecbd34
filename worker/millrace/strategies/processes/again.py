"""Within a process of a pool: a function that is called again when it fails, and is interrupted when it takes too long.

The process has nothing else to do, so the wait between two attempts is slept, and the timeout is an alarm (SIGALRM) that
raises TimeoutError in the function. What does not listen (a loop in C, an `except Exception`) is killed by the parent a
little later. `pulse` tells the parent that it is not that.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from millrace.strategies.each import Raised, called
from millrace.strategies.retry import Retry

REPEAT = 0.1  # s after which the alarm rings again, for those who have caught the TimeoutError
NAP = 0.1  # s between two pulses of a wait


class Again:
    """Calls `function`, and `accept` for what it returns, as often as `retry` allows.

    Args:
        timeout: of a call, s; None: no limit.
        pulse: called before each call, and while waiting.
    """

    def __init__(
        self,
        function: Callable[..., object],
        accept: Callable[[object], object],
        retry: Retry,
        timeout: float | None,
        pulse: Callable[[], None],
    ) -> None:
        self._function, self._accept, self._retry = function, accept, retry
        self._timeout, self._pulse = timeout, pulse

    def __call__(self, *arguments: object) -> object:
        attempt = 1
        while True:
            made = called(lambda: self._once(arguments))
            if not isinstance(made, Raised):
                return made
            wait = self._retry.wait(made.error, attempt)
            if wait is None:
                raise made.error
            self._sleep(wait)
            attempt += 1

    def _once(self, arguments: tuple[object, ...]) -> object:
        self._pulse()
        if self._timeout is None:
            return self._accept(self._function(*arguments))
        signal.signal(signal.SIGALRM, self._ring)  # other stages have timeouts of their own
        try:
            signal.setitimer(signal.ITIMER_REAL, self._timeout, REPEAT)
            return self._accept(self._function(*arguments))
        finally:
            with suppress(TimeoutError):  # it may ring at this very moment
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {self._timeout:g} s")

    def _sleep(self, seconds: float) -> None:
        while seconds > 0:
            self._pulse()
            time.sleep(min(seconds, NAP))
            seconds -= NAP
