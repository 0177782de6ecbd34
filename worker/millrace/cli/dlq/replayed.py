"""The account of the dead letters of one partition that were sent again. Pure.

It is kept as a committed offset: that of the first letter that was not sent again, with ranges of those beyond it that were as
its metadata, such as "17-20,41-42" (the end not included). The offset alone shows any lag tool how much is left.

Letters are visited in offset order. Offsets between two of them (transaction markers) belong to whatever is said of both, so
the ranges are as few as the choices were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from millrace.connectivity.ports import OffsetAndMetadata

MOST_TEXT: Final = 4000  # bytes; the broker takes 4095 (offset.metadata.max.bytes)
_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)")

Range = tuple[int, int]


class TooScattered(Exception):
    """There are more ranges than can be kept."""


class Replayed:
    """What is known, and what has been visited since.

    Args:
        known: as committed; None: nothing was sent again.
        beginning: of the log: what was below it is gone.
    """

    def __init__(self, known: OffsetAndMetadata | None, beginning: int) -> None:
        self._beginning = beginning
        first = beginning if known is None else max(known.offset, beginning)
        ranges = [] if known is None else _decode(known.metadata)
        self._known: list[Range] = [(beginning, first)] if first > beginning else []
        self._known += [(max(start, first), end) for start, end in ranges if end > first]
        self._made: list[Range] = self._known[:1] if first > beginning else []  # of what was visited
        self._visited = first  # up to here
        self._running = True  # the last letter visited was sent again, or none was visited

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and any(start <= offset < end for start, end in self._known)

    @property
    def first(self) -> int:
        """Where to begin to visit: all before it were sent again."""
        return self._made[0][1] if self._made and self._made[0][0] <= self._beginning else self._beginning

    def visit(self, offset: int, *, done: bool) -> None:
        """The next letter: whether it was sent again, now or before. Of those before `first` nothing new can be said."""
        if offset < self._visited:
            return
        if done:
            start = offset
            if self._running:
                start = self._made.pop()[0] if self._made else self._beginning
            self._made.append((start, offset + 1))
        self._running = done
        self._visited = offset + 1

    def committed(self) -> OffsetAndMetadata:
        """To be committed. Raises TooScattered."""
        ranges = _joined(
            [*self._made, *((max(s, self._visited), e) for s, e in self._known if e > self._visited)]
        )
        first = self._beginning
        if ranges and ranges[0][0] <= self._beginning:
            first = ranges.pop(0)[1]
        text = ",".join(f"{start}-{end}" for start, end in ranges)
        if len(text) > MOST_TEXT:
            raise TooScattered
        return OffsetAndMetadata(first, text or None)


def _joined(ranges: Sequence[Range]) -> list[Range]:
    found: list[Range] = []
    for start, end in ranges:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _decode(text: str | None) -> list[Range]:
    """What can't be read counts as nothing: letters are sent again rather than never."""
    parts = (_RANGE.fullmatch(part) for part in (text or "").split(",") if part)
    return [(int(part[1]), int(part[2])) for part in parts if part is not None]
