"""The plan: which replica owns which partition, as a pure function of two numbers.

Three things are wanted of it. It is *balanced*: shares differ by one at most. It is *lazy in N*: from N replicas to N + 1
partitions move to the new replica only, and back the same way. It is *lazy in P*: when the topic grows, partitions that
were there stay where they are. The first two are kept always, the third as far as it can be had beside them.

How. Replicas are added one by one, and each takes its share from the others. Which partitions it takes is settled twice.
The *ideal* goes through the partitions in their order: each goes to the new replica if its owner has more than that so
far. What becomes of a partition never depends on those after it, so the ideal is lazy in both; and it is balanced, but
for a few replicas with one too many or too few. The *plan* follows the ideal wherever balance lets it. Where it can't, a
partition strays, until a new replica takes it both here and there. So plans for two numbers of partitions differ in
strays only. docs/adr/0005-plan.md has the figures and what else was tried.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that another replica owns after a change. None: the partition was not there before, or is no more."""

    partition: int
    source: int | None
    target: int | None


@lru_cache(maxsize=64)
def plan(partitions: int, replicas: int) -> tuple[int, ...]:
    """The owner of each partition, 0 .. partitions - 1.

    - Shares differ by one at most. With more replicas than partitions the last ones own nothing.
    - plan(P, N + 1) differs from plan(P, N) only in partitions that go to replica N: P // (N + 1) of them, or one more.
    - plan(P', N), P' > P, leaves each of the first P partitions where plan(P, N) has it, for P' <= 24, for P' <= 60 if
      N <= 6, and for P' <= 200 if N <= 4 (tested one by one). Beyond that strays differ: by measurement at most N of
      them for N <= 10, 2.5 N for N <= 100 and P' <= 400, 8 N for N <= 100 and any P' up to 20,000; on average a
      third of that. That is 7 % when 10,000 partitions of 100 replicas become 20,000.

    Raises ValueError for less than one replica or a negative number of partitions.
    """
    if partitions < 0:
        raise ValueError(f"a topic can't have {partitions} partitions")
    if replicas < 1:
        raise ValueError(f"a plan needs at least one replica, not {replicas}")
    ideal, growing = _Ideal(partitions), _Plan(partitions)
    for _ in range(1, min(replicas, partitions)):
        growing.grow(ideal.grow(), ideal)
    return tuple(growing.owners)


def moves(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Move, ...]:
    """What changes hands from one plan to another, by partition."""
    gone = (None,) * (len(before) - len(after))
    new = (None,) * (len(after) - len(before))
    pairs = zip((*before, *new), (*after, *gone), strict=True)
    return tuple(Move(p, a, b) for p, (a, b) in enumerate(pairs) if a != b)


# Partitions that the new replica takes at once although their owner has no more than it: at N replicas, these. Found by
# search: they make the ideal perfectly balanced up to 24 partitions, and up to 60 with 6 replicas at most.
_TIES: Mapping[int, frozenset[int]] = {
    1: frozenset({4, 8, 12, 14, 16, 20, 22, 24, 26, 28, 32, 34, 36, 38, 44, 46, 48, 52, 54, 56, 58}),
    2: frozenset({9, 24, 27, 31, 36, 43, 57}),
    3: frozenset({13, 24, 29, 32, 40, 56}),
    4: frozenset({23, 26, 30, 35, 41, 45}),
    5: frozenset({7, 14, 39}),
    7: frozenset({16}),
}


class _Ideal:
    """The plan that does not know how many partitions there are.

    A partition goes to the new replica if its owner has more of those before it, and if it is not below
    N * (1 + what the new one has): up to there N replicas had their fair share each, and there is no need to look.
    """

    def __init__(self, partitions: int) -> None:
        self.owners = [0] * partitions
        self.replicas = 1
        self._owned: list[list[int]] | None = None  # sorted; kept once a replica has few

    def grow(self) -> list[int]:
        """Add a replica. Returns what it takes, in order."""
        replicas = self.replicas
        if replicas <= max(_TIES) or replicas * replicas < len(self.owners):
            taken = self._take_by_count(_TIES.get(replicas, frozenset()))
        else:
            taken = self._take_by_rank()
        for partition in taken:
            self.owners[partition] = replicas
        self.replicas += 1
        return taken

    def _take_by_count(self, ties: frozenset[int]) -> list[int]:
        """Counting what each has so far: one pass over all partitions."""
        load, begin = [0] * self.replicas, self.replicas
        taken: list[int] = []
        for partition, owner in enumerate(self.owners):
            if (partition >= begin and load[owner] > len(taken)) or partition in ties:
                taken.append(partition)
                begin += self.replicas
            else:
                load[owner] += 1
        return taken

    def _take_by_rank(self) -> list[int]:
        """The same, looking only at the few that may go. What each owns is kept in order: a partition's place in it says
        how many its owner has before it.
        """
        owned = self._owned
        if owned is None:
            owned = self._owned = [[] for _ in range(self.replicas)]
            for partition, owner in enumerate(self.owners):
                owned[owner].append(partition)
        owners, partition = self.owners, self.replicas
        taken: list[int] = []
        while partition < len(owners):
            theirs = owned[owners[partition]]
            place = bisect_left(theirs, partition)
            if place > len(taken):
                del theirs[place]
                taken.append(partition)
                partition = max(partition, self.replicas * (1 + len(taken)) - 1)
            partition += 1
        owned.append(list(taken))
        return taken


class _Plan:
    """The plan that is balanced: follows the ideal as far as that allows."""

    def __init__(self, partitions: int) -> None:
        self.owners = [0] * partitions
        self._owned = [list(range(partitions))]  # sorted
        self._strays: list[set[int]] = [set()]  # of what each owns, what the ideal gives to another
        self._large: set[int] = set()  # replicas that have one more than the others
        self._large_straying: list[int] = []  # those of them with strays: a heap, with left-overs
        self._large_any: list[int] = []  # all of them: likewise

    def grow(self, wanted: list[int], ideal: _Ideal) -> None:
        """Add a replica, for which the ideal wants these."""
        size = len(self._owned) + 1
        share, rest = divmod(len(self.owners), size)
        for partition in wanted:
            owner = self.owners[partition]
            self._strays[owner] ^= {
                partition
            }  # it strays now; or no longer, if it did before and is left here
            if partition in self._strays[owner] and owner in self._large:
                heapq.heappush(self._large_straying, owner)
        if share == len(self.owners) // (size - 1):
            taken = self._take_one_each(wanted, share)
        else:
            taken = self._take_many(wanted, share, share + (rest > 0))
        self._hand_over(taken, size - 1, ideal)
        if share != len(self.owners) // (size - 1):
            self._large = {r for r, owned in enumerate(self._owned) if len(owned) > share}
            self._large_any = sorted(self._large)
            self._large_straying = [r for r in self._large_any if self._strays[r]]
        elif len(taken) > share:
            self._large.add(size - 1)
            heapq.heappush(self._large_any, size - 1)
            if self._strays[size - 1]:
                heapq.heappush(self._large_straying, size - 1)

    def _take_one_each(self, wanted: Iterable[int], share: int) -> list[int]:
        """The share stays what it was: only those that have one more can give, and `share` of them must."""
        taken = []
        for partition in wanted:
            owner = self.owners[partition]
            if owner in self._large:
                self._large.discard(owner)
                taken.append(partition)
        while len(taken) < share:
            owner = self._next_large()
            self._large.discard(owner)
            taken.append(self._spare(owner, 1, ())[0])
        return taken

    def _next_large(self) -> int:
        """A replica that has one more than the others: rather one with a stray, which can stray elsewhere as well."""
        heap = self._large_straying
        while heap:
            owner = heapq.heappop(heap)
            if owner in self._large and self._strays[owner]:
                return owner
        heap = self._large_any
        while True:
            owner = heapq.heappop(heap)
            if owner in self._large:
                return owner

    def _take_many(self, wanted: Iterable[int], least: int, most: int) -> list[int]:
        """The share falls: each replica comes down to `least` or `most`, and the new one gets as many."""
        by_owner: list[list[int]] = [[] for _ in self._owned]
        for partition in wanted:
            by_owner[self.owners[partition]].append(partition)
        total = 0
        for owner, mine in enumerate(by_owner):
            has = len(self._owned[owner])
            del mine[has - least :]
            if has - most > len(mine):
                mine += self._spare(owner, has - most - len(mine), mine)
            total += len(mine)
        for owner in range(len(by_owner) - 1, -1, -1):  # too many: leave the latest
            while total > most and len(by_owner[owner]) > max(0, len(self._owned[owner]) - most):
                by_owner[owner].pop()
                total -= 1
        for straying in (True, False):  # too few: strays first
            for owner, mine in enumerate(by_owner):
                if (
                    total < least
                    and len(mine) < len(self._owned[owner]) - least
                    and (self._strays[owner].difference(mine) or not straying)
                ):
                    mine += self._spare(owner, 1, mine)
                    total += 1
        return [partition for mine in by_owner for partition in mine]

    def _spare(self, owner: int, count: int, but: Iterable[int]) -> list[int]:
        """What an owner gives unasked: strays, then the latest."""
        chosen = sorted(self._strays[owner].difference(but), reverse=True)[:count]
        if len(chosen) < count:
            left = set(self._owned[owner]).difference(but, chosen)
            chosen += sorted(left, reverse=True)[: count - len(chosen)]
        return chosen

    def _hand_over(self, taken: list[int], new: int, ideal: _Ideal) -> None:
        leaving: dict[int, set[int]] = {}
        for partition in taken:
            leaving.setdefault(self.owners[partition], set()).add(partition)
            self.owners[partition] = new
        for owner, gone in leaving.items():
            if len(gone) == 1:
                self._owned[owner].remove(*gone)
            else:
                self._owned[owner] = [p for p in self._owned[owner] if p not in gone]
            self._strays[owner] -= gone
        self._owned.append(sorted(taken))
        self._strays.append({p for p in taken if ideal.owners[p] != new})
