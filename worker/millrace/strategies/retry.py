"""When a function that has failed is called again for the same message."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from millrace.message import Invalid


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential back-off with "equal jitter": of each wait at most a half is left out, at random, so that those that
    failed together don't come back together (AWS Architecture Blog, "Exponential Backoff And Jitter", 2015).

    Attributes:
        attempts: calls in all, the first one included.
        backoff, longest: seconds before the second call, and at most before any.
        on: exceptions after which there is another call; after Invalid and MemoryError there never is.
        chance: where the random part comes from.
    """

    attempts: int = 1
    backoff: float = 0.1
    longest: float = 10.0
    on: tuple[type[Exception], ...] = (Exception,)
    chance: random.Random = field(default_factory=random.Random)

    def wait(self, error: Exception, attempt: int) -> float | None:
        """Seconds until the next call after `attempt` of them, the last of which raised `error`; None: no more."""
        if attempt >= self.attempts or isinstance(error, (Invalid, MemoryError)):
            return None
        if not isinstance(error, self.on):
            return None
        whole = min(self.longest, self.backoff * 2.0 ** (attempt - 1))
        return whole * (1 - self.chance.random() / 2)


ONCE = Retry()
"""No second call."""
