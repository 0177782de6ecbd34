"""The account of offsets against a model that remembers every single offset."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.engine.tracker import OffsetError, OffsetTracker

pytestmark = pytest.mark.unit

PARTITIONS = st.integers(0, 2)


class Tracker(RuleBasedStateMachine):
    """The model: which offsets were begun, which completed; a position is the first one that is not complete."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.base: dict[int, int] = {}
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        self.done: dict[int, set[int]] = {}

    def begun(self, partition: int) -> int:
        batches = self.batches[partition]
        return batches[-1][1] if batches else self.base[partition]

    def position(self, partition: int) -> int:
        position = self.base[partition]
        while position in self.done[partition]:
            position += 1
        return position

    @rule(partition=PARTITIONS, position=st.integers(0, 50))
    def adopt(self, partition: int, position: int) -> None:
        if partition in self.base:
            with pytest.raises(OffsetError):
                self.tracker.adopt(partition, position)
            return
        self.tracker.adopt(partition, position)
        self.base[partition], self.batches[partition], self.done[partition] = position, [], set()

    @rule(partition=PARTITIONS, size=st.integers(-1, 6), count=st.integers(0, 6))
    def begin(self, partition: int, size: int, count: int) -> None:
        if partition not in self.base or size < 1:
            end = self.begun(partition) + size if partition in self.base else 5
            with pytest.raises(OffsetError):
                self.tracker.begin(partition, end, count)
            return
        start = self.begun(partition)
        assert self.tracker.begin(partition, start + size, count) == start
        self.batches[partition].append((start, start + size, count))

    @precondition(lambda self: self.base)
    @rule(data=st.data())
    def complete_something_begun(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.base)))
        left = [
            o for o in range(self.base[partition], self.begun(partition)) if o not in self.done[partition]
        ]
        if not left:
            return
        start = end = data.draw(st.sampled_from(left))
        for _ in range(data.draw(st.integers(0, 8))):
            if end in left:
                end += 1
        self.tracker.complete(partition, start, end)
        self.done[partition] |= set(range(start, end))

    @rule(partition=PARTITIONS, start=st.integers(0, 80), size=st.integers(1, 8))
    def nothing_is_completed_twice_or_before_it_was_begun(
        self, partition: int, start: int, size: int
    ) -> None:
        offsets = set(range(start, start + size))
        if partition in self.base:
            allowed = set(range(self.base[partition], self.begun(partition))) - self.done[partition]
            if offsets <= allowed:
                return
        with pytest.raises(OffsetError):
            self.tracker.complete(partition, start, start + size)

    @precondition(lambda self: any(self.batches.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from([p for p, batches in self.batches.items() if batches]))
        start, end, _ = self.batches[partition][-1]
        if self.done[partition] & set(range(start, end)):
            with pytest.raises(OffsetError):
                self.tracker.cancel(partition, start)
        else:
            self.tracker.cancel(partition, start)
            self.batches[partition].pop()

    @rule(partition=PARTITIONS)
    def release(self, partition: int) -> None:
        if partition not in self.base or self.position(partition) != self.begun(partition):
            with pytest.raises(OffsetError):
                self.tracker.release(partition)
            return
        assert self.tracker.release(partition) == self.position(partition)
        self.forget(partition)

    @rule(partition=PARTITIONS)
    def abandon(self, partition: int) -> None:
        if partition not in self.base:
            with pytest.raises(OffsetError):
                self.tracker.abandon(partition)
            return
        assert self.tracker.abandon(partition) == self.position(partition)
        self.forget(partition)

    def forget(self, partition: int) -> None:
        del self.base[partition], self.batches[partition], self.done[partition]

    @invariant()
    def positions_are_the_first_offsets_not_done(self) -> None:
        assert self.tracker.positions() == {p: self.position(p) for p in self.base}
        assert self.tracker.held() == self.base.keys()

    @invariant()
    def drained_means_that_nothing_is_on_its_way(self) -> None:
        for partition in self.base:
            assert self.tracker.drained(partition) == (self.position(partition) == self.begun(partition))
            assert self.tracker.begun(partition) == self.begun(partition)

    @invariant()
    def messages_are_in_flight_until_the_position_has_passed_their_batch(self) -> None:
        total = 0
        for partition in self.base:
            position = self.position(partition)
            counted = sum(count for _, end, count in self.batches[partition] if end > position)
            assert self.tracker.in_flight(partition) == counted
            total += counted
        assert self.tracker.in_flight_total() == total


TestTracker = Tracker.TestCase


def test_a_position_does_not_pass_a_batch_that_is_still_on_its_way() -> None:
    tracker = OffsetTracker()
    tracker.adopt(0, 10)
    tracker.begin(0, 20, 10)
    tracker.begin(0, 30, 10)
    tracker.complete(0, 20, 30)
    assert tracker.position(0) == 10
    tracker.complete(0, 10, 20)
    assert tracker.position(0) == 30


def test_an_empty_range_is_complete_without_effect() -> None:
    tracker = OffsetTracker()
    tracker.adopt(0, 10)
    tracker.begin(0, 20, 10)
    tracker.complete(0, 10, 10)
    assert tracker.position(0) == 10
    assert tracker.in_flight(0) == 10
