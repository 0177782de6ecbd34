"""What flows through a chain: a run of one partition's messages, with the answer for their offsets.

Each batch travels the whole chain to its end, even when every message in it was filtered out or has become a dead
letter. So no stage can overtake another's buffer, and the end of the chain learns of each offset exactly once: an
offset is known to be done when the batch that answers for it has arrived there, and not otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.connectivity.ports import Record
from millrace.engine.several import Several


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be processed; it rides in its batch and is written at the chain's end, in the
    transaction that commits its offset.
    """

    record: Record
    stage: str
    reason: str

    def apart(self) -> Sequence[DeadLetter]:
        """One for each message: of a value that was made of several, all of them."""
        if isinstance(self.record, Several):
            return [DeadLetter(member, self.stage, self.reason) for member in self.record.members]
        return (self,)


@dataclass(frozen=True, slots=True)
class Batch:
    """A run of one partition.

    Attributes:
        partition: source partition.
        start: first offset that this batch answers for (the end of the partition's batch before it; offsets that
            the log does not hold any more, or never held, are answered for too).
        end: offset after the last one it answers for.
        source: the messages it began with, in offset order, whatever became of them since.
        records: for each value the source record it came from; the same record twice when a flatMap made two; a
            `Several` when a batch or reduce stage made one value of several.
        values: the messages as the next stage gets them, in offset order. The engine submits the records themselves;
            the first stage decodes.
        dead: the dead letters, in offset order. A record is among `records` or among `dead`, never both.
    """

    partition: int
    start: int
    end: int
    source: Sequence[Record]
    records: Sequence[Record]
    values: Sequence[object]
    dead: tuple[DeadLetter, ...] = ()

    @property
    def count(self) -> int:
        """Source messages that it began with."""
        return len(self.source)

    def before(self, offset: int) -> Batch:
        """The part of it that answers for offsets below `offset` (within start..end); see `between`."""
        return self.between(self.start, offset)

    def between(self, start: int, end: int) -> Batch:
        """The part of it that answers for the offsets from `start` up to `end` (both within start..end). It ends sooner where
        `end` is among messages of which values were made together (`Several`): before the first of them.
        """
        if not self.start <= start <= end <= self.end:
            raise ValueError(f"{start}..{end} is not within {self.start}..{self.end}")
        low, high = (bisect_left(self.records, offset, key=_offset) for offset in (start, end))
        last = self.records[high - 1] if high > low else None
        if isinstance(last, Several) and last.end > end:
            end = last.offset()
            high = bisect_left(self.records, end, key=_offset)
        first, after = (bisect_left(self.source, offset, key=_offset) for offset in (start, end))
        return Batch(
            self.partition,
            start,
            end,
            self.source[first:after],
            self.records[low:high],
            self.values[low:high],
            tuple(letter for letter in self.dead if start <= letter.record.offset() < end),
        )


def _offset(record: Record) -> int:
    return record.offset()
