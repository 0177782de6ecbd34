"""How far event time has come in each partition of a source: by its rows, by the marks in its channel, and what a
partition that is read to its end may promise (docs/adr/0006-what-an-idle-mark-promises.md).

Each worker notes it in the claim of each of its partitions, beside the offset up to which it is so; thus every worker
knows it of all partitions, the next holder goes on from it, and after a crash it is what it was at the offset from which
messages come again. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence, Set
from itertools import compress
from operator import not_
from typing import Literal

import msgspec

from millrace.channel.lateness import Ruling
from millrace.connectivity.ports import Record

Standing = Literal["reading", "idle", "end"]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a partition, as JSON in its claim.

    Attributes:
        time: the largest event time of its rows so far, microseconds since the Unix epoch; None if it had none.
        standing: `idle`: it was read to its end, and stayed there. `end`: a bounded run has ended in it, and its `end`
            mark is in the channel.
        told: the largest time of the marks in its channel partition; None if there is none.
        late: rows that were late so far.
        of: the stage and column that this is about. A note of another one says nothing to us.
    """

    time: int | None = None
    standing: Standing = "reading"
    told: int | None = None
    late: int = 0
    of: str = ""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str | None) -> Note | None:
        """None for what is no note."""
        if not text:
            return None
        try:
            return msgspec.json.decode(text, type=Note)
        except msgspec.DecodeError:
            return None


class Progress:
    """Event time by partition, as far as one worker knows: of its own partitions exactly, of the others by their notes.

    Args:
        of: the stage and column that it is about (Note.of).
    """

    def __init__(self, of: str = "") -> None:
        self._of = of
        self._own: dict[int, _Account] = {}
        self._heard: dict[int, Note | None] = {}  # of all partitions

    # -- our partitions ------------------------------------------------------------------------------------------

    def adopt(self, partition: int, note: Note | None) -> None:
        """It is ours from here on, and stands as noted. None: nothing is known, so nothing can be late at first."""
        account = self._own[partition] = _Account()
        if note is not None and note.of == self._of:
            account.time, account.told, account.late = note.time, note.told, note.late

    def dismiss(self, partition: int, standing: Standing) -> None:
        """It is ours no longer; `standing` is how it was committed."""
        if partition in self._heard:
            self._heard[partition] = self.note(partition, standing)
        self._own.pop(partition, None)

    def note(self, partition: int, standing: Standing) -> Note:
        """What holds at the offset below which all is complete."""
        account = self._account(partition)
        return Note(account.time, standing, account.told, account.late, self._of)

    def latest(self, partition: int) -> int | None:
        """What the next row of it is measured by: the largest of its rows' times and its marks' promises; rows that were
        ruled on and are on their way count too.
        """
        account = self._account(partition)
        return account.ruled[-1].latest if account.ruled else _larger(account.time, account.told)

    def ruled(
        self,
        partition: int,
        start: int,
        end: int,
        records: Sequence[Record],
        times: Sequence[int],
        ruling: Ruling,
        now: float,
    ) -> None:
        """A batch that answers for the offsets from `start` up to `end` has rows of these records and times, and is on
        its way to its end; `now` on the monotonic clock.
        """
        account = self._account(partition)
        account.ruled.append(_Ruled(start, end, records, times, ruling))
        if ruling.out is None or False in ruling.out:
            account.written = now

    def complete(self, partition: int, start: int, end: int) -> None:
        """The batch that began at `start`, or the part of it up to `end`, is at its end."""
        account = self._account(partition)
        if account.ruled and account.ruled[0].start == start:
            time, late = account.ruled.popleft().up_to(end)
            account.time = _larger(account.time, time)
            account.late += late

    def forget(self, partitions: Set[int]) -> None:
        """What is on its way in these will never be complete."""
        for partition in partitions & self._own.keys():
            self._own[partition].ruled.clear()

    def told(self, partition: int, time: int) -> None:
        """A mark was written that promises `time`."""
        account = self._account(partition)
        account.told = _larger(account.told, time)

    def untold(self) -> Mapping[int, int]:
        """Our partitions whose rows have come further than any mark says, with the time they have come to."""
        return {
            partition: account.time
            for partition, account in self._own.items()
            if account.time is not None and (account.told is None or account.told < account.time)
        }

    def written(self, partition: int) -> float | None:
        """When the last row of it was written here, on the monotonic clock."""
        return self._account(partition).written

    # -- all partitions ------------------------------------------------------------------------------------------

    def hear(self, notes: Mapping[int, Note | None]) -> None:
        """What all partitions' notes say. A partition that is not among them does not exist."""
        self._heard = {p: note if note and note.of == self._of else None for p, note in notes.items()}

    def time(self, partition: int) -> int | None:
        """The largest event time of a partition's rows; None if no row of it is known."""
        account = self._own.get(partition)
        if account is not None:
            return account.time
        note = self._heard.get(partition)
        return None if note is None else note.time

    def times(self) -> Mapping[int, int | None]:
        """`time` of all partitions that there are."""
        return {partition: self.time(partition) for partition in self._heard.keys() | self._own.keys()}

    def horizon(
        self, held: Mapping[int, Standing], times: Mapping[int, int | None] | None = None
    ) -> int | None:
        """The event time to which the group as a whole has come: the smallest, over partitions that are being read,
        of their rows' largest times; if none is being read, the largest of all. None if that can't be told: a
        partition that is being read had no row yet, or has not been heard of; it holds back all windows by itself.

        Args:
            held: how it stands with the partitions that this worker holds; of the others the notes tell.
            times: what partitions that are being read had come to at some moment; one that is not among them had no row.
                None: what they have come to now.
        """
        if not self._heard:
            return None
        smallest: int | None = None
        largest: int | None = None
        for partition in self._heard.keys() | held.keys():
            standing = held.get(partition)
            if standing is None:
                note = self._heard.get(partition)
                standing = "reading" if note is None else note.standing
            if standing == "reading":
                time = self.time(partition) if times is None else times.get(partition)
                if time is None:
                    return None
                smallest = time if smallest is None else min(smallest, time)
            elif smallest is None:
                largest = _larger(largest, self.time(partition))
        return largest if smallest is None else smallest

    def _account(self, partition: int) -> _Account:
        return self._own.get(partition) or self._own.setdefault(partition, _Account())


class _Account:
    """One partition of ours. All but `ruled` and `written` is as of the offset below which everything is complete."""

    __slots__ = ("late", "ruled", "time", "told", "written")

    def __init__(self) -> None:
        self.time: int | None = None
        self.told: int | None = None
        self.late = 0
        self.written: float | None = None
        self.ruled: deque[_Ruled] = deque()  # batches on their way


class _Ruled:
    __slots__ = ("_end", "_records", "_ruling", "_times", "start")

    def __init__(
        self, start: int, end: int, records: Sequence[Record], times: Sequence[int], ruling: Ruling
    ) -> None:
        self.start, self._end = start, end
        self._records, self._times, self._ruling = records, times, ruling

    @property
    def latest(self) -> int | None:
        return self._ruling.latest

    def up_to(self, end: int) -> tuple[int | None, int]:
        """The largest time of the rows below an offset that count, and the number of late ones there."""
        times, late, out = self._times, self._ruling.late or (), self._ruling.out
        if end < self._end:  # it was cut, at a message that failed further down
            count = bisect_left(self._records, end, key=lambda record: record.offset())
            times, late = times[:count], late[:count]
        counting = times if out is None else compress(times, map(not_, out))
        return max(counting, default=None), sum(late)


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or (other is not None and other > one):
        return other
    return one
