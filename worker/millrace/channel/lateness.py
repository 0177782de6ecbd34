"""Which rows are late (docs/adr/0008-late-in-the-order-of-the-source.md).

Of the rows of a source partition, in its order, one is late if its event time is less than the largest before it, minus
the window's lateness. "Before it" goes for the promises of marks too. So what is late follows from the source alone,
and not from how it was cut into batches, nor from what was done again after a crash. A late row never raises the largest
time, so it makes no difference whether late rows count in it.

Times are microseconds since the Unix epoch. Nearly always no row of a batch is late, and two passes in C tell. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby, repeat
from operator import lt, sub

from millrace.channel.wire import END

PIECE = 32  # rows
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind its partition a row may be, and what becomes of one that is further behind.

    Attributes:
        micros: microseconds.
        text: as the manifest has it.
        dead_letters: a message with a late row becomes a dead letter, and none of its rows counts. Otherwise late rows
            are left out, and that is all.
    """

    micros: int
    text: str = ""
    dead_letters: bool = False

    def why(self, time: int, latest: int) -> str:
        """What a dead letter says of a row with this time, in a partition that had come to `latest`."""
        if latest >= END:
            return (
                f"late: event time {_written(time)}, and a bounded run had ended the partition's event time"
            )
        return f"late: event time {_written(time)}, the partition had come to {_written(latest)}, lateness {self.text}"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of some rows of a partition.

    Attributes:
        late: for each row whether it is late; None: none is.
        out: for each row whether it does not count; None: all do. With dead letters these are more than the late ones:
            the others of their messages too.
        latest: how far the partition has come with those that count; None if it had no row yet, and has none now.
        reasons: with dead letters, by offset what is to be said of its message.
    """

    late: Sequence[bool] | None
    out: Sequence[bool] | None
    latest: int | None
    reasons: Mapping[int, str]


def rule(latest: int | None, times: Sequence[int], lateness: Lateness, offsets: Iterable[int]) -> Ruling:
    """Rule on rows with these times, in the order of the source, in a partition that had come to `latest` (None: it had
    no row and no mark). `offsets` are those of their messages, asked for only if a row is late.
    """
    if not times:
        return Ruling(None, None, latest, {})
    largest = max(times)
    if latest is not None and latest > largest:
        largest = latest
    late = None if min(times) >= largest - lateness.micros else _one_by_one(latest, times, lateness.micros)
    if late is None or not lateness.dead_letters:
        return Ruling(late, late, largest, {})
    return _by_message(latest, times, offsets, lateness)


def _one_by_one(latest: int | None, times: Sequence[int], lateness: int) -> Sequence[bool] | None:
    """For each row whether it is late; None if none is. As a batch of a backlog spans days of event time, it is cut in
    pieces for which smallest and largest mostly tell again: a running maximum costs four times that.
    """
    late: list[bool] = []
    come = times[0] if latest is None else latest
    for start in range(0, len(times), PIECE):
        piece = times[start : start + PIECE]
        largest = max(come, *piece)
        if min(piece) < largest - lateness:
            before = accumulate(piece, max, initial=come)
            found = list(map(lt, piece, map(sub, before, repeat(lateness))))
            if True in found:
                late.extend(repeat(False, start - len(late)))
                late.extend(found)
        come = largest
    if not late:
        return None
    late.extend(repeat(False, len(times) - len(late)))
    return late


def _by_message(latest: int | None, times: Sequence[int], offsets: Iterable[int], by: Lateness) -> Ruling:
    """A message counts as a whole or not at all: what does not count does not carry the partition further either."""
    late: list[bool] = []
    out: list[bool] = []
    reasons: dict[int, str] = {}
    for offset, pairs in groupby(zip(offsets, times, strict=True), lambda pair: pair[0]):
        come, gone = latest, False
        for _, time in pairs:
            is_late = come is not None and time < come - by.micros
            if is_late and come is not None:
                reasons.setdefault(offset, by.why(time, come))
            late.append(is_late)
            gone = gone or is_late
            come = time if come is None else max(come, time)
        out.extend(repeat(gone, len(late) - len(out)))
        latest = latest if gone else come
    return Ruling(late, out, latest, reasons)


def _written(time: int) -> str:
    return (_EPOCH + timedelta(microseconds=time)).isoformat("T", "microseconds")[:26] + "Z"
