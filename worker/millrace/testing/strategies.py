"""What every strategy that hands on owes to the ones around it, whatever it does with a batch: the contract suite that
Millrace's own pass, for strategies of one's own.

    class TestMine(StrategyContract):
        def make(self, next_: Strategy, clock: Clock) -> Strategy:
            return Mine(next_, clock)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Set
from typing import ClassVar

import pytest

from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
from millrace.connectivity.memory import MemoryRecord
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.strategies.link import Link


class Next(Strategy):
    """The next stage: rejects while `blocked`, and at random with probability `reluctance`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.blocked, self.reluctance = chance, False, 0.0
        self.taken: list[Batch] = []
        self.closed = self.terminated = 0
        self.drained: set[int] = set()
        self.abandoned: set[int] = set()
        self.failure: Exception | None = None

    def submit(self, batch: Batch) -> None:
        assert not self.closed, "submitted to a closed strategy"
        assert not self.terminated, "submitted to a terminated strategy"
        if self.blocked or self.chance.random() < self.reluctance:
            raise MessageRejected
        self.taken.append(batch)
        if self.failure is not None:
            raise self.failure

    def poll(self) -> None: ...

    def drain(self, partitions: Set[int]) -> None:
        self.drained |= partitions

    def abandon(self, partitions: Set[int]) -> None:
        self.abandoned |= partitions

    def close(self) -> None:
        self.closed += 1

    def join(self, deadline: Deadline) -> bool:  # noqa: ARG002 - the interface's
        return True

    def terminate(self) -> None:
        self.terminated += 1


class Rig:
    """The strategy between a caller and `next`.

    Args:
        make: makes the strategy, which hands on to the one given.
        real: it works beside the caller's thread, in real time, and is a Link. Else time is virtual.
        ordered: what it hands on is in the order of the partition.
        raw: it is the head of a chain, whose values are the records themselves.
    """

    slow_to_start = False

    def __init__(
        self,
        make: Callable[[Strategy, Clock], Strategy],
        *,
        real: bool = False,
        ordered: bool = True,
        raw: bool = False,
    ) -> None:
        self.chance = random.Random(0)
        self.real, self.ordered, self.raw = real, ordered, raw
        self.clock: Clock = SystemClock() if real else VirtualClock()
        self.next = Next(self.chance)
        self.strategy = make(self.next, self.clock)
        self.begun: dict[int, int] = {}
        self.made: dict[int, list[Batch]] = {}

    def hinder(self, often: float) -> None:
        """From now on the next stage rejects this often."""
        self.next.reluctance = often

    def batch(self, partition: int = 0, count: int = 3) -> Batch:
        """The next batch of a partition, with values of bytes, and a dead letter if it is long enough."""
        start = self.begun.get(partition, 0)
        end = self.begun[partition] = start + max(count, 1)
        records = [
            MemoryRecord("source", partition, offset, None, b"%d" % offset, (), 1_700_000_000_000)
            for offset in range(start, start + count)
        ]
        alive = records[: max(0, count - 2)] + records[-1:] if count > 2 else records
        dead = tuple(DeadLetter(r, "before", "bad") for r in records if r not in alive)
        values: list[object] = [record if self.raw else record.value() for record in alive]
        batch = Batch(partition, start, end, records, alive, values, dead)
        self.made.setdefault(partition, []).append(batch)
        return batch

    def rest(self) -> None:
        self.clock.sleep(0.001 if self.real else 0.01)

    def settle(self) -> None:
        """Poll until nothing is left here."""
        deadline = time.monotonic() + 30
        for _ in range(10 if self.real else 100):
            self.strategy.poll()
            self.rest()
        if self.real:
            assert isinstance(self.strategy, Link)
            while self.strategy._busy():
                assert time.monotonic() < deadline, "it does not come to an end"
                self.strategy.poll()
                self.rest()

    def ranges(self, partition: int) -> list[tuple[int, int]]:
        """What has arrived, in batches as they were made: on a slow machine a batch may arrive in parts."""
        parts = [(b.start, b.end) for b in self.next.taken if b.partition == partition]
        if not self.ordered:
            parts.sort()
        whole: list[tuple[int, int]] = []
        ends = {batch.end for batch in self.made.get(partition, ())}
        for start, end in parts:
            if whole and whole[-1][1] == start and start not in ends:
                whole[-1] = (whole[-1][0], end)
            else:
                whole.append((start, end))
        return whole

    def covered(self, partition: int) -> list[tuple[int, int]]:
        """The ranges that arrived, those without a gap between them as one: a strategy may merge batches, and cut them."""
        found: list[tuple[int, int]] = []
        for start, end in self.ranges(partition):
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def submitted(self, batch: Batch) -> bool:
        try:
            self.strategy.submit(batch)
        except MessageRejected:
            return False
        return True


class StrategyContract:
    """Tests that a strategy must pass. Derive a class of tests from it that has `make`.

    Attributes:
        real, ordered: as in Rig.
        most_batches: of three messages, fewer of which it may take while the next stage rejects: memory is bounded.
    """

    real: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    most_batches: ClassVar[int] = 12

    def make(self, next_: Strategy, clock: Clock) -> Strategy:
        """The strategy, which hands on to `next_`. It need not look at the values, which are bytes."""
        raise NotImplementedError(f"{type(self).__name__} has no make()")

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        rig = Rig(self.make, real=self.real, ordered=self.ordered)
        yield rig
        rig.strategy.terminate()

    def test_a_batch_arrives_with_its_offsets_its_source_and_its_dead_letters(self, rig: Rig) -> None:
        batch = rig.batch(count=6)
        rig.strategy.submit(batch)
        rig.settle()
        assert rig.covered(0) == [(batch.start, batch.end)]
        arrived = sorted(rig.next.taken, key=lambda part: part.start)
        assert [record for taken in arrived for record in taken.source] == batch.source
        assert tuple(letter for taken in arrived for letter in taken.dead) == batch.dead
        for taken in rig.next.taken:
            within = [*taken.source, *taken.records, *(letter.record for letter in taken.dead)]
            assert all(taken.start <= record.offset() < taken.end for record in within)

    def test_an_empty_batch_travels_too(self, rig: Rig) -> None:
        rig.strategy.submit(rig.batch(count=0))
        rig.settle()
        assert rig.ranges(0) == [(0, 1)]

    def test_a_rejection_has_no_effect_and_nothing_taken_is_lost_while_the_next_rejects(
        self, rig: Rig
    ) -> None:
        rig.next.blocked = True
        taken = []
        waiting = rig.batch()
        for _ in range(self.most_batches):
            if rig.submitted(waiting):
                taken.append((waiting.start, waiting.end))
                waiting = rig.batch()
            rig.rest() if rig.real else rig.clock.sleep(1.0)
            rig.strategy.poll()
        assert rig.next.taken == []
        assert len(taken) < self.most_batches, "it has to reject at some time"
        rig.next.blocked = False
        rig.settle()
        assert rig.covered(0) == [(taken[0][0], taken[-1][1])]
        rig.strategy.submit(waiting)
        rig.settle()
        assert rig.covered(0) == [(taken[0][0], waiting.end)]

    @pytest.mark.parametrize("seed", range(10))
    def test_order_and_completeness_survive_a_reluctant_next_and_a_full_producer(
        self, rig: Rig, seed: int
    ) -> None:
        if seed > 1 and rig.slow_to_start:
            pytest.skip("a process takes a second to start")
        rig.chance.seed(seed)
        rig.hinder(0.5)
        for n in range(30):
            batch = rig.batch(partition=n % 3, count=rig.chance.randrange(6))
            while not rig.submitted(batch):
                rig.strategy.poll()
                rig.rest()
        rig.settle()
        for partition in range(3):
            ranges = rig.ranges(partition)
            assert all(start < end for start, end in ranges)
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
            assert ranges[-1][1] == rig.begun[partition]

    def test_draining_hands_on_what_is_there_and_lets_others_go_on(self, rig: Rig) -> None:
        rig.next.blocked = True
        rig.strategy.submit(rig.batch(partition=1))
        rig.strategy.drain({1})
        assert rig.next.drained == {1}
        rig.next.blocked = False
        rig.settle()
        assert rig.covered(1) == [(0, 3)]
        rig.strategy.submit(rig.batch(partition=2))
        rig.settle()
        assert rig.covered(2) == [(0, 3)]

    def test_of_an_abandoned_partition_nothing_arrives_any_more(self, rig: Rig) -> None:
        rig.next.blocked = True
        taken = [p for p in (1, 2) if rig.submitted(rig.batch(partition=p))]
        rig.strategy.abandon({1})
        assert rig.next.abandoned == {1}
        rig.next.blocked = False
        rig.settle()
        assert {b.partition for b in rig.next.taken} == set(taken) - {1}
        rig.begun[1] = 0
        rig.made.clear()
        rig.strategy.submit(rig.batch(partition=1))
        rig.settle()
        assert rig.covered(1) == [(0, 3)]

    def test_the_next_is_closed_once_and_after_the_last_batch(self, rig: Rig) -> None:
        rig.next.blocked = True
        rig.strategy.submit(rig.batch())
        rig.strategy.close()
        assert rig.next.closed == 0
        rig.next.blocked = False
        rig.settle()
        assert rig.covered(0) == [(0, 3)]
        assert rig.next.closed == 1

    def test_joining_ends_when_all_is_handed_on(self, rig: Rig) -> None:
        rig.hinder(0.7)
        rig.strategy.submit(rig.batch())
        rig.strategy.close()
        assert rig.strategy.join(Deadline.after(rig.clock, 60.0))
        assert rig.covered(0) == [(0, 3)]
        assert rig.next.closed == 1

    def test_joining_keeps_its_deadline(self, rig: Rig) -> None:
        rig.next.blocked = True
        rig.strategy.submit(rig.batch())
        rig.strategy.close()
        began, seconds = rig.clock.monotonic(), 0.1 if rig.real else 3.0
        assert not rig.strategy.join(Deadline.after(rig.clock, seconds))
        assert rig.clock.monotonic() - began == pytest.approx(seconds, abs=5.0 if rig.real else 0.01)
        assert rig.next.taken == []

    def test_terminating_hands_nothing_on_and_may_be_done_twice(self, rig: Rig) -> None:
        rig.next.blocked = True
        rig.strategy.submit(rig.batch())
        rig.strategy.terminate()
        rig.strategy.terminate()
        rig.next.blocked = False
        assert rig.next.taken == []
        assert rig.next.terminated >= 1

    def test_a_failure_further_down_passes_through_once_and_the_rest_can_still_be_joined(
        self, rig: Rig
    ) -> None:
        rig.next.failure = StageFailed("no", stage="later", partition=0, offset=0)

        def until_it_fails() -> None:
            rig.strategy.submit(rig.batch())
            rig.settle()

        with pytest.raises(StageFailed):
            until_it_fails()
        rig.settle()
        with pytest.raises(StageFailed):
            rig.strategy.submit(rig.batch())
        rig.strategy.close()
        assert rig.strategy.join(Deadline.after(rig.clock, 10.0))
        assert len(rig.next.taken) == 1
