"""A batch, or a part of one, that a process is to work on; and what becomes of it when processes die of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from millrace.engine.batch import Batch, DeadLetter
from millrace.errors import MessageFailure, StageFailed
from millrace.strategies.each import Outcome
from millrace.strategies.pool.job import bytes_of
from millrace.strategies.processes.wire import Pickled, Reply, Values


@dataclass(eq=False, slots=True)
class Task:
    """Attributes:
    kills: processes that died of it, or of the task that it is a part of.
    suspect: it is part of a task that has killed twice: its processes get nothing else to do meanwhile.
    failure: of a message after all of the batch, which could not be sent.
    taken: when it came, s on the monotonic clock.
    outcome: what is to be handed on, when it is there.
    dropped: nobody asks for it any more.
    """

    batch: Batch
    taken: float
    kills: int = 0
    suspect: bool = False
    outcome: Outcome | None = None
    dropped: bool = False
    failure: MessageFailure | None = None
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = bytes_of(self.batch)

    @property
    def size(self) -> int:
        return len(self.batch.values)

    def single(self) -> bool:
        """Whether all of its values are of one message."""
        records = self.batch.records
        return not records or records[0].offset() == records[-1].offset()

    def halves(self) -> tuple[Task, Task]:
        first, second = cut(self.batch, max(1, self.size // 2))
        return Task(first, self.taken, self.kills, True), Task(second, self.taken, self.kills, True)


def pieces(batch: Batch, most: int) -> Iterator[Batch]:
    """The batch in parts of about `most` values, each of whole messages."""
    while len(batch.values) > most:
        part, rest = cut(batch, most)
        if not rest.records:
            break
        yield part
        batch = rest
    yield batch


def cut(batch: Batch, at: int) -> tuple[Batch, Batch]:
    """The part before value `at`, or before the message that it is of, or else after that; and the rest."""
    records = batch.records
    while 0 < at < len(records) and records[at - 1].offset() == records[at].offset():
        at -= 1
    if at == 0:
        at = next((n for n, r in enumerate(records) if r.offset() != records[0].offset()), len(records))
    if at >= len(records):
        return batch, batch.between(batch.end, batch.end)
    offset = records[at].offset()
    return batch.between(batch.start, offset), batch.between(offset, batch.end)


def outcome_of(batch: Batch, reply: Reply, out: Values) -> Outcome:
    """What a reply makes of the batch that was sent."""
    failure, records = None, batch.records
    if reply.fault is not None:
        fault, record = reply.fault, records[reply.fault.index]
        failure = StageFailed(
            fault.what,
            stage=fault.stage,
            partition=batch.partition,
            offset=record.offset(),
            remedy=fault.remedy,
        )
        if fault.story:
            failure.__cause__ = RaisedElsewhere(fault.story)
    end = batch.end if failure is None else failure.offset
    source = batch if failure is None else batch.before(end)
    dead = source.dead
    if reply.letters:
        made = (DeadLetter(records[one.index], one.stage, one.reason) for one in reply.letters)
        letters = [letter for one in made for letter in one.apart()]
        dead = tuple(sorted([*dead, *letters], key=lambda letter: letter.record.offset()))
    kept = records[: reply.count] if reply.kept is None else [records[index] for index in reply.kept]
    values: Sequence[object]
    if out is Values.NOTHING:
        kept, values = [], ()
    elif out is Values.OBJECTS:
        values = Pickled(reply.values if isinstance(reply.values, bytes) else b"", reply.count)
    else:
        values = (reply.rows if out is Values.ROWS else reply.values) or ()
    after = Batch(batch.partition, batch.start, end, source.source, kept, values, dead)
    return Outcome(after, failure, len(reply.letters))


class RaisedElsewhere(Exception):
    """What was raised in another process, told by its traceback: the exception itself stays there."""

    def __str__(self) -> str:
        return f"in a process of the pool:\n{self.args[0]}"
