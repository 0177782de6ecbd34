"""A batch in a pool: which of its messages are done, and what of it can be handed on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millrace.engine.batch import Batch
from millrace.engine.tracing import Span


class _Pending:
    """Stands in the place of a result that is not there yet."""

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()


class Job:
    """A batch at work. `results` is filled by the schedule, under its lock; the rest is the engine's thread's own.

    Attributes:
        whole: the function is called once for all of it.
        size: bytes of its source messages.
        left: units that are not settled.
        next: the first unit that was not begun; units are begun in order where nothing else is said.
        running: units that were begun and are not settled, waits before another attempt included.
        shut: no more of it is begun.
        failed: the first of its values known to have failed in a way that stops the stage.
        begun: when its first unit was begun, s; -1 before. ended: when the last was settled so far.
        span: within which the function is called; None: no traces are wanted.
        dead: letters that were made of it so far; counted for the span.
        attempts: of units that were called more than once, the number of the call under way.
    """

    __slots__ = (
        "attempts",
        "batch",
        "begun",
        "dead",
        "ended",
        "failed",
        "first",
        "handed",
        "left",
        "next",
        "results",
        "running",
        "scanned",
        "shut",
        "size",
        "span",
        "taken",
        "units",
        "whole",
    )

    def __init__(self, batch: Batch, now: float, *, whole: bool) -> None:
        count = len(batch.values)
        self.batch, self.whole = batch, whole
        self.units = self.left = min(count, 1) if whole else count
        self.size = bytes_of(batch)
        self.results: list[object] = [PENDING] * count
        self.attempts: dict[int, int] = {}
        self.span: Span | None = None
        self.dead = 0
        self.next = self.running = 0
        self.shut = False
        self.failed: int | None = None
        self.begun = self.ended = -1.0
        self.taken = self.handed = now  # when it came; when parts of it were looked for last
        self.first = 0  # results before it were handed on
        self.scanned = 0  # results before it are done

    def finished(self) -> bool:
        """Whether nothing more will come of it: all is done, or it was shut and nothing is running."""
        return not self.left or (self.shut and not self.running)

    def done(self, *, in_order: bool) -> list[tuple[int, int]]:
        """What is done and was not handed on, as ranges of results; in order: only that at the beginning of what was not
        handed on. Values that a flatMap made of one message are in one range. Where one of them has failed and that stops
        the stage, the others may never be begun: then the last range ends with its message, whatever is done of it.
        """
        if not self.results:
            return [(0, 0)]
        if self.failed is not None and not in_order:
            return [self._message(self.failed)]
        if in_order:
            # by identity, one by one: a value of a user may have an == of its own
            results, after = self.results, max(self.first, self.scanned)
            while after < len(results) and results[after] is not PENDING:
                after += 1
            self.scanned = after
            if self.failed is not None and self.failed < after:
                return [(self.first, self._message(self.failed)[1])]
            found = self._whole_messages(self.first, after)
            return [] if found is None else [found]
        return list(self._runs())

    def part(self, low: int, high: int) -> Batch:
        """The batch of a range of results; it answers for the gaps after each message, and the first for those before."""
        batch, records = self.batch, self.batch.records
        start = batch.start if low == 0 else records[low].offset()
        end = batch.end if high == len(records) else records[high].offset()
        if start == batch.start and end == batch.end:
            return batch
        return batch.between(start, end)

    def leave(self, low: int, high: int) -> list[object]:
        """The range is handed on. Returns its results, and keeps none of them."""
        results, taken = self.results, self.results[low:high]
        results[low:high] = [LEFT] * (high - low)
        while self.first < len(results) and results[self.first] is LEFT:
            self.first += 1
        return taken

    def _runs(self) -> Iterator[tuple[int, int]]:
        results, at, count = self.results, self.first, len(self.results)
        while at < count:
            after = at
            while after < count and results[after] is not PENDING and results[after] is not LEFT:
                after += 1
            found = self._whole_messages(at, after)
            if found is not None:
                yield found
            at = after + 1

    def _message(self, index: int) -> tuple[int, int]:
        """The range of all values of the message that one of them is of."""
        records = self.batch.records
        low, high, offset = index, index + 1, records[index].offset()
        while low > 0 and records[low - 1].offset() == offset:
            low -= 1
        while high < len(records) and records[high].offset() == offset:
            high += 1
        return low, high

    def _whole_messages(self, low: int, high: int) -> tuple[int, int] | None:
        """The range less values at its ends of messages that are partly beyond it: a flatMap may have made several."""
        records, count = self.batch.records, len(self.results)
        while low < high and low > 0 and records[low - 1].offset() == records[low].offset():
            if self.results[low - 1] is LEFT:
                break
            low += 1
        while low < high < count and records[high - 1].offset() == records[high].offset():
            high -= 1
        return (low, high) if low < high else None


LEFT: Final = _Pending()
"""Stands in the place of a result that was handed on."""


def bytes_of(batch: Batch) -> int:
    """Of the source messages of a batch."""
    if not batch.source:
        return 0
    return sum(map(len, filter(None, map(type(batch.source[0]).value, batch.source))))
