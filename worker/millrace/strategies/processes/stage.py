"""The strategy: batches out to the processes and back, in order, whatever becomes of a process.

A process that dies is replaced, and what it worked on is given to another. A task whose second process dies as well is cut
in halves, again and again, each alone in a process, until the message is found that they die of. It is Invalid: a dead
letter, whose reason names the signal, or the end of the worker where there are no dead letters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

import structlog

from millrace.clock import Clock
from millrace.engine.batch import Batch
from millrace.engine.calls import Call
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import FunctionError, MillraceError
from millrace.message import Invalid
from millrace.strategies.each import Outcome, Raised, as_they_are, conclude, gathered
from millrace.strategies.judge import Judge
from millrace.strategies.link import Keeping, last_offset
from millrace.strategies.processes.launch import Launch
from millrace.strategies.processes.member import SLOTS, Member
from millrace.strategies.processes.portable import portable
from millrace.strategies.processes.task import Task, outcome_of, pieces
from millrace.strategies.processes.wire import Reply, Values, encode_request

SWIFT = 0.5  # s that a task should take at most; it is cut to that, as the last one has shown
FIRST = 16  # values in the first task
MOST_BYTES = 64 * 2**20  # of source messages at work, and one batch beyond
GRACE = 1.0  # s that a function has to answer the alarm of its timeout, before its process is killed
STARTS = 3  # processes in a row that die before they are ready


@dataclass(frozen=True, slots=True)
class Shape:
    """How batches travel, and what the works need of their records.

    Attributes:
        keys, rest: whether keys, or all that a Message has, have to be sent.
        ordered: tasks leave in the order of their partition; else each that is done.
        alone: one task of a partition at a time.
    """

    into: Values
    out: Values
    keys: bool = False
    rest: bool = False
    ordered: bool = True
    alone: bool = False


class Processes(Keeping):
    """Keeps `size` processes, from now until it is terminated.

    Args:
        figures: of the stages whose works run over there, in their order; False: what it hands on is counted later.
        judge: of the first function: for messages that processes die of, and values that can't be sent.
        timeout: of a call, s, kept by the process itself; one that does not is killed. None: no limit.
        where: path of the stage in the manifest.
    """

    def __init__(
        self,
        next_: Strategy,
        launch: Launch,
        size: int,
        shape: Shape,
        figures: Sequence[tuple[StageStats, bool]],
        judge: Judge,
        clock: Clock,
        *,
        timeout: float | None = None,
        where: str = "",
    ) -> None:
        super().__init__(next_)
        self._launch, self._shape, self._figures, self._judge = launch, shape, figures, judge
        self._clock, self._timeout, self._where = clock, timeout, where
        self._log = structlog.get_logger("millrace.pool")
        self._members: list[Member[Task]] = []
        self._size, self._starts = size, 0
        self._tasks: dict[int, deque[Task]] = {}  # by partition, in their order
        self._waiting: deque[Task] = deque()
        self._limit = FIRST
        self._count = self._bytes = 0
        self._members = [Member(launch) for _ in range(size)]

    @property
    def pids(self) -> Sequence[int]:
        """Of the processes there are now."""
        return [member.pid for member in self._members]

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._pending is not None:
            raise MessageRejected
        if self._tasks and (self._count >= (SLOTS + 1) * self._size or self._bytes >= MOST_BYTES):
            if self._kept is None:
                self._figures[0][0].refuses(self._clock.monotonic())
            raise MessageRejected
        now, first = self._clock.monotonic(), self._figures[0][0]
        if first.refused_at >= 0:
            first.takes(now)
        queue = self._tasks.setdefault(batch.partition, deque())
        for part in pieces(batch, self._limit):
            task = Task(part, now)
            if task.size:
                self._waiting.append(task)
            else:
                task.outcome = Outcome(part)
            queue.append(task)
            self._count += 1
            self._bytes += task.bytes
        self._go_on()

    def abandon(self, partitions: Set[int]) -> None:
        for partition in partitions:
            self._forget(partition)
        super().abandon(partitions)

    def terminate(self) -> None:
        self._forget_all()
        members, self._members = self._members, []
        for member in members:
            member.hang_up()
        for member in members:
            member.close()
        super().terminate()

    def _held(self) -> tuple[str, int]:
        tasks = sum(task.batch.count for queue in list(self._tasks.values()) for task in queue)
        return self._figures[0][0].name, tasks + (0 if self._kept is None else self._kept.count)

    def _calls(self) -> Iterator[Call]:
        for member in list(self._members):
            at_work = member.at_work()
            if at_work is None:
                continue
            task, found, pulse = at_work
            batch, at = task.batch, found.message
            low, high = (0, -1) if not 0 <= at < task.size else (at, at)
            first, last = batch.records[low].offset(), last_offset(batch.records[high])
            stage = self._figures[found.stage][0].name
            mark = (id(member), found, pulse)
            stack = partial(member.stack, self._clock)
            yield Call(stage, batch.partition, first, last, mark, stack, self._timeout or 0.0)

    def _busy(self) -> bool:
        return self._kept is not None or bool(self._tasks)

    # handing on

    def _go_on(self) -> None:
        try:
            self._attend()
        except MillraceError:
            self._forget_all()
            raise
        if not self._hand_on_kept():
            return
        for partition in list(self._tasks):
            for task in list(self._tasks[partition]):
                if task.outcome is None:
                    if self._shape.ordered:
                        break
                    continue
                self._remove(task)
                self._keep(task.outcome)
                if self._pending is not None:
                    self._forget(partition)
                if not self._hand_on_kept():
                    return

    def _remove(self, task: Task) -> None:
        queue = self._tasks[task.batch.partition]
        queue.remove(task)
        if not queue:
            del self._tasks[task.batch.partition]
        self._count -= 1
        self._bytes -= task.bytes

    def _forget(self, partition: int) -> None:
        for task in list(self._tasks.get(partition, ())):
            task.dropped = True
            self._remove(task)
        self._waiting = deque(task for task in self._waiting if not task.dropped)

    def _forget_all(self) -> None:
        for partition in list(self._tasks):
            self._forget(partition)
        super()._forget_all()

    # the processes

    def _attend(self) -> None:
        """Take what has come back, replace the dead, give out what waits."""
        now = self._clock.monotonic()
        for at, member in enumerate(self._members):
            cause = member.dead()  # asked first: what it has sent before it died is there by now
            for task, reply in member.receive():
                self._starts = 0
                if not task.dropped:
                    self._take(task, reply)
            if cause:
                self._replace(at, cause)
            elif self._timeout is not None and member.silent(now) > self._timeout + GRACE:
                member.kill()
        self._give_out()

    def _take(self, task: Task, reply: Reply) -> None:
        outcome = outcome_of(task.batch, reply, self._shape.out)
        for (stats, emits), made in zip(self._figures, reply.figures, strict=True):
            stats.add(made.received, made.emitted if emits else 0, made.dead, made.seconds)
        waited = self._clock.monotonic() - task.taken - sum(made.seconds for made in reply.figures)
        for (stats, _), made in zip(self._figures, reply.figures, strict=True):
            stats.took(made.seconds + max(0.0, waited))
            waited = 0.0  # the way there and back, and the queue before it, are the first stage's
        if task.failure is not None and outcome.failure is None:
            outcome = Outcome(outcome.batch, task.failure, outcome.dead)
        task.outcome = outcome
        if reply.seconds > SWIFT:
            self._limit = max(1, int(task.size * SWIFT / reply.seconds))
        elif task.size >= self._limit and reply.seconds < SWIFT / 2:
            self._limit *= 2

    def _give_out(self) -> None:
        passed: deque[Task] = deque()
        while self._waiting:
            member = max(self._members, key=lambda one: one.room)
            if not member.room or (member.under_way and not all(one.ready for one in self._members)):
                break  # behind another one only where none is about to be free
            task = self._waiting.popleft()
            if self._must_wait(task, member):
                passed.append(task)
                continue
            content = self._encoded(task)
            if content is not None:
                member.send(task, content, self._clock.monotonic())
        passed.extend(self._waiting)
        self._waiting = passed

    def _must_wait(self, task: Task, member: Member[Task]) -> bool:
        at_work = [one for other in self._members for one, _ in other.under_way]
        if self._shape.alone and any(one.batch.partition == task.batch.partition for one in at_work):
            return True
        suspects = any(one.suspect for one, _ in member.under_way)
        return suspects or (task.suspect and bool(member.under_way))

    def _encoded(self, task: Task) -> bytes | None:
        """None: there is nothing to be sent of it any more."""
        shape = self._shape
        try:
            return encode_request(task.batch, shape.into, keys=shape.keys, rest=shape.rest)
        except Exception:  # noqa: BLE001 - a value that can't be pickled: which?
            outcome = portable(task.batch, self._judge)
            self._figures[0][0].dead += outcome.dead
            task.batch, task.failure = outcome.batch, outcome.failure
            if not task.size:
                task.outcome = outcome
                return None
            return encode_request(task.batch, shape.into, keys=shape.keys, rest=shape.rest)

    def _replace(self, at: int, cause: str) -> None:
        member = self._members[at]
        under_way, killed = [task for task, _ in member.under_way if not task.dropped], member.killed
        if not member.ready:
            self._starts += 1
            if self._starts >= STARTS:
                raise FunctionError(
                    f"a process of stage {self._judge.stage} can't be started: {STARTS} in a row were {cause} before "
                    "they were ready",
                    where=self._where,
                    remedy="mend what the function's module does as it is imported, or its setup()",
                )
        member.close()
        self._members[at] = Member(self._launch)
        first, rest = under_way[:1], under_way[1:]
        self._waiting.extendleft(reversed(rest))
        batch = first[0].batch if first else None
        self._log.warning(
            "process died",
            stage=self._judge.stage,
            pid=member.pid,
            cause=f"{cause}, as it took too long" if killed else cause,
            partition=None if batch is None else batch.partition,
            offsets=None if batch is None else f"{batch.start} to {batch.end - 1}",
        )
        for task in first:
            self._suspect(task, cause, killed)

    def _suspect(self, task: Task, cause: str, killed: bool) -> None:
        """A process has died while it worked on this."""
        task.kills += 1
        if task.kills < 2:
            self._waiting.appendleft(task)
        elif task.single():
            error: Exception = Invalid(f"its process was {cause}")
            if killed:
                error = TimeoutError(
                    f"it took longer than {self._timeout:g} s, and did not listen to the alarm"
                )
            results: list[object] = [Raised(error)] * task.size
            made = gathered(results, task.batch.records, self._judge.judge)
            task.outcome = conclude(task.batch, made, as_they_are)
            self._figures[0][0].dead += task.outcome.dead
        else:
            halves = task.halves()
            queue = self._tasks[task.batch.partition]
            place = queue.index(task)
            self._remove(task)
            queue = self._tasks.setdefault(task.batch.partition, queue)
            for half in reversed(halves):
                half.failure = task.failure if half is halves[1] else None
                queue.insert(place, half)
                self._waiting.appendleft(half)
                self._count += 1
                self._bytes += half.bytes
