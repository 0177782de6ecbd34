"""A bounded run: what lies beyond the bound is not processed, and the engine says where it has come to an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_fakes import FakeConsumer, FakeRecord
from millrace.clock import VirtualClock
from millrace.engine.bounds import Bounds, BoundsError
from millrace.engine.engine import Engine
from millrace.engine.marks import End
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.strategies import Commit

pytestmark = pytest.mark.unit


class Rig:
    def __init__(self, bounds: dict[int, int] | None) -> None:
        self.consumer, tracker = FakeConsumer(), OffsetTracker()
        self.seen: list[tuple[int, int, int]] = []

        def complete(partition: int, start: int, end: int) -> None:
            self.seen.append((partition, start, end))
            tracker.complete(partition, start, end)

        chain = Commit(complete, Outbox())
        bound = None if bounds is None else Bounds(bounds)
        self.engine = Engine(self.consumer, chain, tracker, VirtualClock(), bounds=bound)

    def feed(self, partition: int, *offsets: int) -> None:
        self.consumer.feed(*(FakeRecord(offset, of=partition) for offset in offsets))


def test_a_batch_is_cut_at_the_bound_and_fetching_ends_there() -> None:
    rig = Rig({0: 3, 1: 9})
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0, 1, 2, 3, 4)
    rig.feed(1, 0, 1)
    assert rig.engine.step(0.05) == 5
    assert rig.seen == [(0, 0, 3), (1, 0, 2)]
    assert rig.engine.ends() == {0: End.BOUND, 1: None}
    assert set(rig.consumer.assigned) == {1}
    rig.feed(0, 5)
    assert rig.engine.step(0.05) == 0
    assert rig.engine.positions() == {0: 3, 1: 2}


def test_a_gap_before_the_bound_is_answered_for_by_what_comes_after_it() -> None:
    rig = Rig({0: 5})
    rig.engine.hold({0: 0})
    rig.feed(0, 0, 1)
    rig.engine.step(0.05)
    rig.feed(0, 7)
    assert rig.engine.step(0.05) == 0
    assert rig.seen == [(0, 0, 2), (0, 2, 5)]
    assert rig.engine.ends() == {0: End.BOUND}


def test_the_end_of_the_log_beyond_the_bound_reaches_it_too() -> None:
    rig = Rig({0: 4})
    rig.engine.hold({0: 0})
    rig.feed(0, 0, 1)
    rig.consumer.at_end = {0: 6}
    rig.engine.step(0.05)
    assert rig.engine.positions() == {0: 4}
    assert rig.engine.ends() == {0: End.BOUND}


def test_a_partition_taken_up_at_its_bound_or_not_bounded_at_all_is_not_read() -> None:
    rig = Rig({0: 4, 1: 0})
    rig.engine.hold({0: 4, 1: 0, 2: 7})
    rig.engine.step(0.05)
    assert rig.consumer.assigned == {}
    assert rig.engine.ends() == dict.fromkeys(range(3), End.BOUND)


def test_a_bounded_partition_that_comes_back_goes_on_from_where_it_was() -> None:
    rig = Rig({0: 4})
    rig.engine.hold({0: 0})
    rig.feed(0, 0, 1)
    rig.engine.step(0.05)
    rig.engine.drain({0})
    rig.engine.hold({0: rig.engine.release(0)})
    rig.engine.step(0.05)
    rig.feed(0, 2, 3, 4)
    rig.engine.step(0.05)
    assert rig.seen == [(0, 0, 2), (0, 2, 4)]


def test_without_bounds_a_partition_is_at_its_end_until_something_new_comes() -> None:
    rig = Rig(None)
    rig.engine.hold({0: 0})
    assert rig.engine.ends() == {0: None}
    rig.feed(0, 0)
    rig.consumer.at_end = {0: 1}
    rig.engine.step(0.05)
    assert rig.engine.ends() == {0: End.LOG}
    rig.feed(0, 1)
    rig.engine.step(0.05)
    assert rig.engine.ends() == {0: None}
    rig.consumer.at_end = {0: 2}
    rig.engine.step(0.05)
    rig.engine.drain({0})
    assert rig.engine.ends() == {0: None}


@given(st.dictionaries(st.integers(0, 10_000), st.integers(0, 2**62)))
def test_bounds_are_read_as_they_were_written(ends: dict[int, int]) -> None:
    assert Bounds.decode(Bounds(ends).encode()) == Bounds(ends)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"ends": {"a": 1}}', '{"ends": {"0": -1}}', '{"ends": {"0": 1.5}}']
)
def test_what_is_no_bounds_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BoundsError) as caught:
        Bounds.decode(text, where="until.json")
    assert caught.value.where == "until.json"
