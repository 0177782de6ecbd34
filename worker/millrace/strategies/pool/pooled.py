"""The stage of a pool: takes batches, has the function called elsewhere, hands results on in the order asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set

from millrace.clock import Clock
from millrace.engine.batch import Batch
from millrace.engine.calls import Call
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.engine.tracing import Tracer
from millrace.errors import MessageFailure, MillraceError
from millrace.strategies.each import Outcome, gathered
from millrace.strategies.functions import FunctionWork
from millrace.strategies.link import Keeping
from millrace.strategies.pool.crew import Crew
from millrace.strategies.pool.job import Job
from millrace.strategies.pool.schedule import Schedule
from millrace.strategies.vectorized import Vectorized

SWIFT = 0.5  # s within which a batch should be done: more is taken only while they are
MOST_MESSAGES = 20_000  # at work at a time, and not more than
MOST_BYTES = 64 * 2**20  # of source messages; one batch beyond either
PART_AFTER = 0.1  # s after which what is done of a batch goes on before the rest


class Pooled(Keeping):
    """Takes at first as many units as can be worked on at once, twice over; twice as many whenever batches are done
    within SWIFT seconds, half as many when they are not. So what is at work is done soon (a partition can be drained), and
    there is always enough to do.

    A batch that takes long goes on in parts, so that what is done of it can be committed. A part answers for the offsets of
    its messages, as a batch does.

    Args:
        ordered: parts leave in the order of their partition; else each that is done.
        size: units that can be under way at a time.
        tracer: makes a span of each batch; None: no traces are wanted.
    """

    def __init__(
        self,
        next_: Strategy,
        work: FunctionWork,
        schedule: Schedule,
        crew: Crew,
        size: int,
        stats: StageStats,
        clock: Clock,
        *,
        ordered: bool = True,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(next_)
        self._work, self._schedule, self._crew = work, schedule, crew
        self._stats, self._clock, self._ordered, self._tracer = stats, clock, ordered, tracer
        self._whole = isinstance(work, Vectorized)
        self._jobs: dict[int, deque[Job]] = {}  # by partition, in the order in which they came
        self._least = self._window = 2 * size  # units
        self._units = self._messages = self._bytes = 0  # at work

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._pending is not None:
            raise MessageRejected
        if self._jobs and (
            self._units >= self._window or self._messages >= MOST_MESSAGES or self._bytes >= MOST_BYTES
        ):
            if self._kept is None:
                self._stats.refuses(self._clock.monotonic())
            raise MessageRejected
        now = self._clock.monotonic()
        if self._stats.refused_at >= 0:
            self._stats.takes(now)
        job = Job(batch, now, whole=self._whole)
        if self._tracer is not None and batch.records:
            job.span = self._tracer.begin(self._stats.name, batch.partition, batch.records)
        self._jobs.setdefault(batch.partition, deque()).append(job)
        self._units += max(1, job.units)
        self._messages += batch.count
        self._bytes += job.size
        self._crew.wake(self._schedule.add(job))
        self._go_on()

    def abandon(self, partitions: Set[int]) -> None:
        for partition in partitions:
            self._forget(partition)
        super().abandon(partitions)
        if self._failed is None and self._pending is None:
            # a call that was to stop it all may have been one of theirs
            self._crew.wake(self._schedule.resume())

    def terminate(self) -> None:
        self._forget_all()
        self._crew.release()
        super().terminate()

    def _go_on(self) -> None:
        try:
            self._crew.look()
        except (
            MillraceError
        ) as failure:  # nobody is there to call the function, or can be stopped from calling it
            self._forget_all()
            if isinstance(failure, MessageFailure):
                self._failed = failure
            raise
        if self._hand_on_kept():
            for partition in list(self._jobs):
                if not self._hand_on_of(partition):
                    return

    def _held(self) -> tuple[str, int]:
        return self._stats.name, self._messages + (0 if self._kept is None else self._kept.count)

    def _calls(self) -> Iterable[Call]:
        return self._crew.calls(self._stats.name)

    def _busy(self) -> bool:
        return self._kept is not None or bool(self._jobs)

    def _hand_on_of(self, partition: int) -> bool:
        """Hand on what is done of a partition. Returns False where the next stage has not taken something."""
        now = self._clock.monotonic()
        for job in list(self._jobs[partition]):
            finished = job.finished()  # asked before its results are looked at
            if finished or job.failed is not None or now - job.handed >= PART_AFTER:
                ranges = job.done(in_order=self._ordered)
                job.handed = now
                if finished and not ranges:
                    self._finish(job, now)
                for low, high in ranges:
                    if finished and high == ranges[-1][1]:
                        self._finish(job, now)
                    if not self._hand_on_part(job, low, high):
                        return False
            if self._ordered and not finished:
                break
        return True

    def _hand_on_part(self, job: Job, low: int, high: int) -> bool:
        part = job.part(low, high)
        made = gathered(job.leave(low, high), part.records, self._work.judge.judge)
        outcome = self._work.conclude(part, made)
        self._account(job, part, outcome)
        if job.span is not None:
            job.dead += outcome.dead
            if outcome.failure is not None or job.first == len(job.results):
                job.span.end(job.dead, outcome.failure)
        self._keep(outcome)
        if outcome.failure is not None:
            # what was taken of other partitions is brought to its end
            self._forget(part.partition)
            self._crew.wake(self._schedule.resume())
        return self._hand_on_kept()

    def _account(self, job: Job, part: Batch, outcome: Outcome) -> None:
        """The seconds are those from the first call to the last, which may be at the same time as those of others."""
        seconds = 0.0
        if job.ended >= 0:
            seconds, job.begun = max(0.0, job.ended - job.begun), job.ended
        self._stats.add(len(part.values), len(outcome.batch.values), outcome.dead, seconds)

    def _finish(self, job: Job, now: float) -> None:
        """All of it is handed on, or about to be."""
        self._stats.took(now - job.taken)
        jobs = self._jobs[job.batch.partition]
        jobs.remove(job)
        if not jobs:
            del self._jobs[job.batch.partition]
        if now - job.taken > SWIFT:
            self._window = max(self._least, self._window // 2)
        elif self._units >= self._window // 2:
            self._window = min(MOST_MESSAGES, self._window * 2)
        self._let_go(job)

    def _forget(self, partition: int) -> None:
        for job in self._jobs.pop(partition, ()):
            self._schedule.shut(job)
            if job.span is not None:
                job.span.end(job.dead)
            self._let_go(job)

    def _forget_all(self) -> None:
        for partition in list(self._jobs):
            self._forget(partition)
        super()._forget_all()

    def _let_go(self, job: Job) -> None:
        self._units -= max(1, job.units)
        self._messages -= job.batch.count
        self._bytes -= job.size
