"""Blows that were struck, of all kinds, and what must be among them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import psutil

BROKER, PYTHON, JVM = "the broker", "the collector's Python", "the collector's JVM"
BETWEEN = "between write and commit"


class Over(Exception):
    """The run has ended, or has taken too long: nothing more can be struck."""


def rest(seconds: float, watch: Callable[[], None]) -> None:
    """Sleep, and watch meanwhile."""
    end = time.monotonic() + seconds
    while True:
        watch()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, 0.1))


@dataclass(frozen=True)
class Struck:
    """
    Attributes:
        seconds: since chaos began.
        fed: the part of the flights that was in the topic then.
        when: what the victim was about.
    """

    seconds: float
    what: str
    signal: str
    pid: int
    fed: float
    when: str


class Strikes:
    """Sends signals and remembers them. fed: the part of the flights that is in the topic."""

    def __init__(self, fed: Callable[[], float], say: Callable[[str], None]) -> None:
        self._fed, self._say = fed, say
        self._begun = time.monotonic()
        self.struck: list[Struck] = []
        self.pairs = 0  # workers killed two at once
        self.stops = 0  # workers that stood still and went on

    def hit(self, victim: psutil.Process, what: str, number: signal.Signals, when: str) -> bool:
        """False if there is no such process any more."""
        try:
            victim.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        seconds, fed = round(time.monotonic() - self._begun, 2), round(self._fed(), 4)
        self.struck.append(Struck(seconds, what, number.name, victim.pid, fed, when))
        self._say(
            f"chaos: {number.name} to {what} (process {victim.pid}) after {seconds:.1f} s, with {fed:.0%} of the flights "
            f"in the topic: {when}"
        )
        return True

    def count(self, what: str, when: str = "") -> int:
        """How many of these were killed, at such a moment."""
        return sum(
            one.what.startswith(what) and one.signal in ("SIGKILL", "SIGTERM") and when in one.when
            for one in self.struck
        )

    def missing(self) -> Sequence[str]:
        """What should have been struck and was not."""
        least: Mapping[str, tuple[int, int]] = {
            "workers killed": (self.count("worker"), 5),
            "pairs of workers killed": (self.pairs, 1),
            "brokers killed": (self.count(BROKER), 1),
            "workers stopped": (self.stops, 1),
            "collectors killed": (self.count("the collector"), 4),
            "collectors' Pythons killed": (self.count(PYTHON), 1),
            "collectors' JVMs killed": (self.count(JVM), 1),
            f"collectors killed {BETWEEN}": (self.count("the collector", BETWEEN), 2),
        }
        return [f"{name}: {found} of {wanted}" for name, (found, wanted) in least.items() if found < wanted]

    def describe(self) -> str:
        collectors = self.count("the collector")
        return (
            f"chaos killed {self.count('worker')} workers, the broker and {collectors} collectors ({self.count(PYTHON)} "
            f"Python, {self.count(JVM)} JVM; {self.count('the collector', BETWEEN)} of them {BETWEEN} of a batch), and "
            f"stopped {self.stops} worker for seconds"
        )

    def as_json(self) -> Sequence[dict[str, object]]:
        return [asdict(one) for one in sorted(self.struck, key=lambda one: one.seconds)]
