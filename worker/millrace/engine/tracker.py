"""The account of offsets: which of them are known to be done, for each partition held.

Batches are begun in offset order and without gaps, each answering for a range of offsets; they may be completed in
any order, in parts, or several at once (a later stage may merge batches, or cut one where a message failed). The
position, which is what gets committed, moves only over a prefix without gaps. So no sequence of calls can let it
overtake a message that is still on its way: that would take a completion of something never completed.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Set


class OffsetError(ValueError):
    """The account was misused: a bug in the engine or in a strategy, never a matter of data."""


class OffsetTracker:
    """Positions of the partitions held. Every method raises OffsetError for a partition that is not held (`adopt`: for
    one that is), and without any effect.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._in_flight = 0

    def adopt(self, partition: int, position: int) -> None:
        """Hold a partition from `position` on, the offset of the next message to be processed."""
        if partition in self._accounts:
            raise OffsetError(f"partition {partition} is held already")
        if position < 0:
            raise OffsetError(f"partition {partition} can't be adopted at offset {position}")
        self._accounts[partition] = _Account(position)

    def begin(self, partition: int, end: int, count: int) -> int:
        """Begin a batch of `count` messages that answers for the offsets up to, not including, `end`.

        Returns its first offset, the end of the batch begun before it. Raises OffsetError if it would answer for none.
        """
        account = self._of(partition)
        start = account.begun
        if end <= start:
            raise OffsetError(f"partition {partition}: a batch can't end at {end}, {start} was begun already")
        if count < 0:
            raise OffsetError(f"partition {partition}: a batch of {count} messages")
        account.begun = end
        account.batches.append((end, count))
        account.messages += count
        self._in_flight += count
        return start

    def cancel(self, partition: int, start: int) -> None:
        """Take back the batch begun last, which began at `start`: nobody took it."""
        account = self._of(partition)
        before = account.batches[-2][0] if len(account.batches) > 1 else account.position
        if not account.batches or before != start or (account.done and account.done[-1][1] > start):
            raise OffsetError(
                f"partition {partition}: the batch begun last is not one untouched from {start} on"
            )
        _, count = account.batches.pop()
        account.begun = start
        account.messages -= count
        self._in_flight -= count

    def complete(self, partition: int, start: int, end: int) -> None:
        """Every message from `start` up to, not including, `end` was processed to its end.

        Raises OffsetError if some of it was not begun, or is complete already.
        """
        account = self._of(partition)
        if not account.position <= start <= end <= account.begun:
            raise OffsetError(
                f"partition {partition}: {start}..{end} is not within {account.position}..{account.begun}, which is begun"
            )
        if start == end:
            return
        if start == account.position and not account.done:
            account.position = end
        else:
            _insert(account.done, partition, start, end)
            done = account.done
            while done and done[0][0] == account.position:
                account.position = done.pop(0)[1]
        batches = account.batches
        while batches and batches[0][0] <= account.position:
            _, count = batches.popleft()
            account.messages -= count
            self._in_flight -= count

    def position(self, partition: int) -> int:
        """Every offset below it is done: what may be committed."""
        return self._of(partition).position

    def begun(self, partition: int) -> int:
        """Where the next batch will begin."""
        return self._of(partition).begun

    def positions(self) -> Mapping[int, int]:
        return {partition: account.position for partition, account in self._accounts.items()}

    def held(self) -> Set[int]:
        return self._accounts.keys()

    def in_flight(self, partition: int) -> int:
        """Messages of batches that were begun and are not wholly below the position."""
        return self._of(partition).messages

    def in_flight_total(self) -> int:
        return self._in_flight

    def drained(self, partition: int) -> bool:
        """Whether all that was begun is complete."""
        account = self._of(partition)
        return account.position == account.begun

    def release(self, partition: int) -> int:
        """Hold a drained partition no longer. Returns its position. Raises OffsetError unless drained."""
        account = self._of(partition)
        if account.position != account.begun:
            raise OffsetError(
                f"partition {partition} is not drained: complete below {account.position}, begun below {account.begun}"
            )
        return self.abandon(partition)

    def abandon(self, partition: int) -> int:
        """Hold a partition no longer, whatever is on its way. Returns its position; what was begun beyond it must never
        be completed any more.
        """
        account = self._of(partition)
        del self._accounts[partition]
        self._in_flight -= account.messages
        return account.position

    def _of(self, partition: int) -> _Account:
        try:
            return self._accounts[partition]
        except KeyError:
            raise OffsetError(f"partition {partition} is not held") from None


class _Account:
    """One partition: `batches` are (end, count) of those not wholly below the position, `done` the sorted, disjoint
    ranges that are complete beyond it.
    """

    __slots__ = ("batches", "begun", "done", "messages", "position")

    def __init__(self, position: int) -> None:
        self.position = self.begun = position
        self.batches: deque[tuple[int, int]] = deque()
        self.messages = 0
        self.done: list[tuple[int, int]] = []


def _insert(done: list[tuple[int, int]], partition: int, start: int, end: int) -> None:
    at = bisect_left(done, (start, end))
    if (at > 0 and done[at - 1][1] > start) or (at < len(done) and done[at][0] < end):
        raise OffsetError(f"partition {partition}: some of {start}..{end} is complete already")
    done.insert(at, (start, end))
