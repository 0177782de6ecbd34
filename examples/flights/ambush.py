"""Kills the collector with SIGKILL, its Python or its JVM: at any time, and between the moment when a batch's files are
written and Spark's commit of that batch.

Such a moment may last milliseconds. So half of the collector is stopped (SIGSTOP) as soon as the moment seems to be there,
and it is looked at while it can't pass: the victim is killed if it is there, and else all goes on. The next batch is
another chance.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import psutil
from collecting import Collecting, whole
from striking import BETWEEN, JVM, PYTHON, Strikes, rest

LONGEST_PAUSE = 10.0  # seconds from the start of an attempt; a start takes several
IN_VAIN = 2  # kills in a row without a batch between: after five such failures a run gives up, rightly
MISSES, LONGEST_WAIT = (
    3,
    60.0,
)  # in number and seconds: a moment that is hard to hit is given up for one that is easy
LOOK_EVERY = 0.001  # seconds, while a moment is awaited
SELDOM = 0.1  # seconds, while anything else is
SETTLED = 0.02  # seconds after which a stopped process does nothing any more, for sure
WRITING = 10.0  # seconds that the JVM may take to write the files of a batch


class Moment(Enum):
    """ANY: some seconds after an attempt began. WRITTEN: the files of a batch are all written, and their folder has not
    taken its place. IN_PLACE: it has just done so, and Spark has not committed the batch.
    """

    ANY = "at any time"
    WRITTEN = f"{BETWEEN}, before its folder took its place"
    IN_PLACE = f"{BETWEEN}, after its folder took its place"


@dataclass(frozen=True)
class Ambush:
    """`victim`: PYTHON or JVM. `pause`: seconds since the attempt began, for ANY."""

    moment: Moment
    victim: str
    pause: float


def plan(seed: int) -> tuple[Sequence[Ambush], Sequence[Ambush]]:
    """For the live run two at any time and one between write and commit; for the run that closes the last windows one
    more, as it writes their results. Of these four Python is the victim twice, and the JVM.
    """
    seeded = random.Random(f"ambush {seed}")
    moments = [Moment.ANY, Moment.ANY, Moment.IN_PLACE]
    victims = [PYTHON, PYTHON, JVM, JVM]
    seeded.shuffle(moments)
    seeded.shuffle(victims)
    pauses = [seeded.uniform(0, LONGEST_PAUSE) for _ in victims]
    todo = [Ambush(*one) for one in zip([*moments, Moment.WRITTEN], victims, pauses, strict=True)]
    return todo[:3], todo[3:]


class Processes(Protocol):
    """What is used of victims.Victims."""

    def collector(self) -> tuple[psutil.Process, psutil.Process | None] | None: ...


class Ambushes:
    """A thread that lies in wait, until `done` or until `watch` raises Over.

    Args:
        watch: called often; raises Over when nothing is to be waited for any more.
    """

    def __init__(
        self,
        ambushes: Sequence[Ambush],
        processes: Processes,
        collecting: Collecting,
        watch: Callable[[], None],
        strikes: Strikes,
    ) -> None:
        self._todo = list(ambushes)
        self._processes, self._collecting = processes, collecting
        self._watch, self._strikes = watch, strikes
        self._peace = threading.Lock()
        self._in_vain = 0  # kills since the last batch
        self._struck_last = 0  # the process of that attempt
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ambushes")

    def start(self) -> None:
        self._thread.start()

    def done(self) -> bool:
        """Whether all is done. Raises what has ended it before that: Over, or a bug."""
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    @contextlib.contextmanager
    def truce(self) -> Iterator[None]:
        """Nothing is struck meanwhile."""
        with self._peace:
            yield

    def works(self) -> bool:
        """Whether there is an attempt that has done a batch."""
        found = self._processes.collector()
        return found is not None and self._collecting.batches(found[0].pid) > 0

    def committed(self) -> int:
        """The newest batch that the collector has committed."""
        return self._collecting.committed()

    def _run(self) -> None:
        try:
            for ambush in self._todo:
                self._carry_out(ambush)
        except Exception as error:  # noqa: BLE001  handed to who asks whether it is done
            self._failure = error

    def _carry_out(self, ambush: Ambush) -> None:
        while True:
            python = self._next_attempt()
            if self._in_vain >= IN_VAIN:
                self._await(lambda python=python: _gone(python) or self._has_batch(python))
            if ambush.moment is Moment.ANY:
                self._rest(ambush.pause)
            jvm = self._jvm(python)
            if jvm is None:
                continue
            victim = python if ambush.victim == PYTHON else jvm
            if ambush.moment is Moment.ANY:
                killed = self._strike(python, victim, ambush.victim, Moment.ANY.value)
            else:
                killed = self._strike_between(python, jvm, victim, ambush)
            if killed:
                return

    def _next_attempt(self) -> psutil.Process:
        """The Python of an attempt that was not struck yet."""
        while True:
            found = self._processes.collector()
            if found is not None and found[0].pid != self._struck_last:
                return found[0]
            self._rest(SELDOM)

    def _jvm(self, python: psutil.Process) -> psutil.Process | None:
        """Waits for it; None if the attempt is over."""
        while not _gone(python):
            found = self._processes.collector()
            if found is not None and found[0] == python and found[1] is not None:
                return found[1]
            self._rest(SELDOM)
        return None

    def _strike_between(
        self, python: psutil.Process, jvm: psutil.Process, victim: psutil.Process, ambush: Ambush
    ) -> bool:
        """Within this attempt."""
        misses, begun = 0, time.monotonic()
        while not _gone(python):
            hard = misses >= MISSES or time.monotonic() - begun > LONGEST_WAIT
            moment = Moment.WRITTEN if hard else ambush.moment
            # each ends by what one of the two does: Python puts the folder in its place, the JVM commits the batch
            half = python if moment is Moment.WRITTEN else jvm
            if not self._sign(moment, python, LONGEST_WAIT):
                continue
            with _stopped(half):
                batch = self._caught(moment, python)
                when = f"{moment.value}: batch {batch}"
                if batch is not None and self._strike(python, victim, ambush.victim, when):
                    return True
            misses += 1
        return False

    def _sign(self, moment: Moment, python: psutil.Process, seconds: float) -> bool:
        """Waits so long at most for the sign that the moment may be about to come."""
        committed, since = self._collecting.committed(), python.create_time()
        look = self._collecting.in_place if moment is Moment.IN_PLACE else self._collecting.pending
        end = time.monotonic() + seconds
        while not look(committed, since):
            if time.monotonic() > end or _gone(python):
                return False
            self._rest(LOOK_EVERY)
        return True

    def _caught(self, moment: Moment, python: psutil.Process) -> int | None:
        """The batch that is at this moment now, while one half of the collector stands still."""
        committed, since = self._collecting.committed(), python.create_time()
        if moment is Moment.IN_PLACE:
            return max(self._collecting.in_place(committed, since), default=None)
        deadline = time.monotonic() + WRITING
        while time.monotonic() < deadline:
            pending = self._collecting.pending(committed, since)
            for batch, folder in pending.items():
                if whole(folder):
                    return batch
            if not pending:
                return None
            self._rest(0.01)
        return None

    def _strike(self, python: psutil.Process, victim: psutil.Process, which: str, when: str) -> bool:
        """False if it is gone, or if there is a truce."""
        in_vain = not self._has_batch(python)
        if not self._peace.acquire(blocking=False):
            return False
        try:
            if not self._strikes.hit(victim, which, signal.SIGKILL, when):
                return False
        finally:
            self._peace.release()
        self._struck_last = python.pid
        self._in_vain = self._in_vain + 1 if in_vain else 1
        return True

    def _has_batch(self, python: psutil.Process) -> bool:
        return self._collecting.batches(python.pid) > 0

    def _await(self, condition: Callable[[], bool], every: float = SELDOM) -> None:
        while not condition():
            self._rest(every)

    def _rest(self, seconds: float) -> None:
        rest(seconds, self._watch)


def _gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextlib.contextmanager
def _stopped(process: psutil.Process) -> Iterator[None]:
    """It stands still meanwhile, if it is still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
        time.sleep(SETTLED)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
