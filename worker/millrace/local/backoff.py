"""When to try again what failed, and when to give up: one policy for workers and broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Exponential back-off of something that is restarted when it dies.

    Attributes:
        first, longest: seconds before the first restart, and at most.
        factor: what each further failure multiplies the wait by.
        settled: seconds of life after which a failure counts as the first one again.
        patience: failures in a row after which to give up.
    """

    first: float = 0.2
    longest: float = 30.0
    factor: float = 2.0
    settled: float = 10.0
    patience: int = 8
    failures: int = 0

    def failed(self, lived: float, patience: float | None = None) -> float | None:
        """It died after `lived` seconds. Returns the seconds to wait before the restart; None: give up.

        patience: for this kind of failure, instead of the one for all.
        """
        self.failures = 1 if lived >= self.settled else self.failures + 1
        if self.failures > (self.patience if patience is None else patience):
            return None
        # the exponent is bounded: who is patient for ever gets to numbers that no float holds
        return min(self.longest, self.first * self.factor ** min(self.failures - 1, 60))

    def progressed(self) -> None:
        """It did what it is there for: the next failure is a first one."""
        self.failures = 0
