"""What is to be done next in a pool: the one place that the engine's thread and those of a crew share, behind one lock.

A unit is one call of the function: for a message, or for a whole batch. It is begun (`take`), and then settled once: with
a result, or by another attempt later on. A crew that gives a call up settles it too; what that call returns in the end is
not looked at any more.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from millrace.clock import Clock
from millrace.connectivity.ports import Record
from millrace.engine.batch import DeadLetter
from millrace.errors import StageFailed
from millrace.strategies.each import Raised
from millrace.strategies.pool.job import PENDING, Job
from millrace.strategies.retry import Retry


class Sequence(Enum):
    """Which units may be under way at the same time.

    ANY: all. KEY: one of each key of a partition; messages without a key wait for none. PARTITION: one of each partition.
    """

    ANY = "any"
    KEY = "key"
    PARTITION = "partition"


class Unit(NamedTuple):
    """One call: for the message `at` an index of a job, or for all of it."""

    job: Job
    at: int
    attempt: int


class Schedule:
    """Safe on any thread.

    Args:
        verdict: what becomes of a message that failed; when it is StageFailed nothing is begun until `resume`.
    """

    def __init__(
        self,
        sequence: Sequence,
        retry: Retry,
        verdict: Callable[[Exception, Record], DeadLetter | StageFailed],
        clock: Clock,
    ) -> None:
        self._sequence, self._retry, self._verdict, self._clock = sequence, retry, verdict, clock
        self._changed = threading.Condition(threading.Lock())
        self._jobs: deque[Job] = deque()  # ANY: with units that were not begun
        self._ready: deque[tuple[Job, int]] = deque()  # KEY, PARTITION: those that wait for none
        self._chains: dict[object, deque[tuple[Job, int]]] = {}  # those that wait for the one before them
        self._due: list[tuple[float, int, Unit]] = []  # further attempts, by time
        self._again: deque[Unit] = deque()  # those whose time has come
        self._attempts = 0  # made so far; to tell those of the same time apart
        self._stopped = self._ended = False

    def add(self, job: Job) -> int:
        """Give it all units of a job. Returns how many can be begun at once, about."""
        with self._changed:
            if self._sequence is Sequence.ANY:
                if job.units:
                    self._jobs.append(job)
                count = job.units
            else:
                count = sum(self._line_up(job, index) for index in range(job.units))
            self._changed.notify(count)
            return count

    def take(self, *, wait: bool = False) -> Unit | None:
        """Begin the next unit. None: there is none now; wait: there never will be one any more."""
        with self._changed:
            while True:
                unit = self._next()
                if unit is not None or not wait or self._ended:
                    return unit
                self._changed.wait()

    def idle(self) -> bool:
        """Whether there is nothing to take, as far as can be told at a glance."""
        return not self._again and (self._stopped or not (self._jobs or self._ready))

    def settle(self, unit: Unit, outcome: object) -> bool:
        """What a call has come to: a result or `Raised`; of a whole batch also a list of them. Returns whether it
        counts: False where the call was given up before.
        """
        job, index, attempt = unit
        with self._changed:
            if job.attempts.get(index, 1) != attempt or (job.results and job.results[index] is not PENDING):
                return False
            now = self._clock.monotonic()
            if isinstance(outcome, Raised):
                wait = None if job.shut else self._retry.wait(outcome.error, attempt)
                if wait is not None:
                    job.attempts[index] = attempt + 1
                    self._attempts += 1
                    heapq.heappush(self._due, (now + wait, self._attempts, Unit(job, index, attempt + 1)))
                    return True
            job.ended = now
            job.running -= 1
            job.left -= 1
            self._put(job, index, outcome)
            if self._sequence is not Sequence.ANY:
                self._release(job, index)
            return True

    def wake(self, now: float) -> int:
        """Make ready what is to be called again by now. Returns how many."""
        if not self._due:
            return 0
        with self._changed:
            count = 0
            while self._due and self._due[0][0] <= now:
                self._again.append(heapq.heappop(self._due)[2])
                count += 1
            self._changed.notify(count)
            return count

    def shut(self, job: Job) -> None:
        """Begin nothing more of it, and no further attempt."""
        with self._changed:
            job.shut = True
            waiting = sum(unit.job is job for _, _, unit in self._due) + sum(
                u.job is job for u in self._again
            )
            job.running -= waiting
            if waiting:
                self._due = [due for due in self._due if due[2].job is not job]
                heapq.heapify(self._due)
                self._again = deque(unit for unit in self._again if unit.job is not job)

    def resume(self) -> int:
        """Go on after a stop: what it was for is of no account any more. Returns how many units there may be."""
        with self._changed:
            if not self._stopped or self._ended:
                return 0
            self._stopped = False
            self._changed.notify_all()
            return len(self._ready) + sum(job.units - job.next for job in self._jobs)

    def end(self) -> None:
        """Begin nothing at all any more; those who wait for units are told."""
        with self._changed:
            self._stopped = self._ended = True
            self._due.clear()
            self._again.clear()
            self._changed.notify_all()

    # within the lock

    def _next(self) -> Unit | None:
        if self._again:
            return self._again.popleft()
        if self._stopped:
            return None
        while self._jobs:
            job = self._jobs[0]
            index = job.next
            if job.shut or index + 1 == job.units:
                self._jobs.popleft()
            if not job.shut:
                job.next = index + 1
                return self._begin(job, index)
        while self._ready:
            job, index = self._ready.popleft()
            if not job.shut:
                return self._begin(job, index)
            self._release(job, index)
        return None

    def _begin(self, job: Job, index: int) -> Unit:
        if not job.running and job.begun < 0:
            job.begun = self._clock.monotonic()
        job.running += 1
        return Unit(job, index, 1)

    def _put(self, job: Job, index: int, outcome: object) -> None:
        if not job.whole:
            job.results[index] = outcome
            if isinstance(outcome, Raised):
                self._stop_at(job, index, outcome)
            return
        results = outcome if isinstance(outcome, list) else [outcome] * len(job.results)
        job.results[:] = results
        for at, result in enumerate(results):
            if isinstance(result, Raised):
                self._stop_at(job, at, result)

    def _stop_at(self, job: Job, index: int, raised: Raised) -> None:
        if not job.shut and isinstance(self._verdict(raised.error, job.batch.records[index]), StageFailed):
            self._stopped = True
            job.failed = index if job.failed is None else min(job.failed, index)

    def _line_up(self, job: Job, index: int) -> bool:
        """Whether it can be begun at once."""
        key = self._key(job, index)
        if key is None:
            self._ready.append((job, index))
            return True
        chain = self._chains.get(key)
        if chain is None:
            self._chains[key] = deque()
            self._ready.append((job, index))
            return True
        chain.append((job, index))
        return False

    def _release(self, job: Job, index: int) -> None:
        """Let the next of the same chain be begun."""
        key = self._key(job, index)
        chain = self._chains.get(key) if key is not None else None
        if chain is None:
            return
        while chain:
            following, at = chain.popleft()
            if not following.shut:
                self._ready.append((following, at))
                self._changed.notify()
                return
        del self._chains[key]

    def _key(self, job: Job, index: int) -> object:
        """What the unit must be alone with; None: nothing."""
        partition = job.batch.partition
        if self._sequence is Sequence.PARTITION or job.whole:
            return partition
        key = job.batch.records[index].key()
        return None if key is None else (partition, key)
