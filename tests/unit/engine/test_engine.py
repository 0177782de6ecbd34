"""The loop, stepped by hand against a consumer that hands out what it is told to."""

from __future__ import annotations

from collections.abc import Set

import pytest

from chain_fakes import FakeConsumer, FakeRecord
from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.ports import OffsetOutOfRange
from millrace.engine.batch import Batch
from millrace.engine.engine import Engine
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.engine.tracker import OffsetError, OffsetTracker
from millrace.errors import StageFailed

pytestmark = pytest.mark.unit


class Chain(Strategy):
    """Takes as many batches as it is given `room`, and completes them when told to."""

    def __init__(self, tracker: OffsetTracker) -> None:
        self.tracker, self.room, self.at_once = tracker, 1000, True
        self.taken: list[Batch] = []
        self.calls: list[str] = []
        self.failure: Exception | None = None

    def submit(self, batch: Batch) -> None:
        if self.failure is not None:
            raise self.failure
        if self.room == 0:
            raise MessageRejected
        self.room -= 1
        self.taken.append(batch)
        if self.at_once:
            self.complete(batch)

    def complete(self, batch: Batch) -> None:
        self.tracker.complete(batch.partition, batch.start, batch.end)

    def poll(self) -> None: ...

    def drain(self, partitions: Set[int]) -> None:
        self.calls.append(f"drain {sorted(partitions)}")

    def abandon(self, partitions: Set[int]) -> None:
        self.calls.append(f"abandon {sorted(partitions)}")

    def close(self) -> None:
        self.calls.append("close")

    def join(self, deadline: Deadline) -> bool:
        return not deadline.expired()

    def terminate(self) -> None:
        self.calls.append("terminate")


class Rig:
    def __init__(
        self, batch_size: int = 500, max_in_flight: int = 100_000, first_batch: int | None = None
    ) -> None:
        self.clock, self.consumer, self.tracker = VirtualClock(), FakeConsumer(), OffsetTracker()
        self.chain = Chain(self.tracker)
        self.engine = Engine(
            self.consumer,
            self.chain,
            self.tracker,
            self.clock,
            batch_size=batch_size,
            first_batch=first_batch,
            max_in_flight=max_in_flight,
        )

    def feed(self, partition: int, *offsets: int) -> None:
        self.consumer.feed(*(FakeRecord(offset, of=partition) for offset in offsets))

    def seen(self) -> list[tuple[int, int, int, list[int]]]:
        return [(b.partition, b.start, b.end, [r.offset() for r in b.records]) for b in self.chain.taken]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_fetch_becomes_one_batch_a_partition(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 10, 2: 5})
    rig.feed(0, 0, 1)
    rig.feed(1, 10)
    rig.feed(0, 2)
    rig.feed(2, 5, 6)
    assert rig.engine.step(0.05) == 6
    assert rig.seen() == [(0, 0, 3, [0, 1, 2]), (1, 10, 11, [10]), (2, 5, 7, [5, 6])]
    assert rig.engine.positions() == {0: 3, 1: 11, 2: 7}


def test_offsets_that_the_log_does_not_hold_are_answered_for(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.feed(0, 4, 7)
    rig.engine.step(0.05)
    rig.feed(0, 9)
    rig.engine.step(0.05)
    assert rig.seen() == [(0, 0, 8, [4, 7]), (0, 8, 10, [9])]


def test_markers_at_the_end_of_the_log_are_answered_for_by_an_empty_batch(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0, 1)
    rig.consumer.at_end = {0: 4, 1: 0}
    assert rig.engine.step(0.05) == 2
    assert rig.seen() == [(0, 0, 2, [0, 1]), (0, 2, 4, [])]
    assert rig.engine.positions() == {0: 4, 1: 0}


class TestSlowStages:
    """An owner of a transaction must get to commit it, however slow the stages are."""

    def pace(self, rig: Rig, seconds: float) -> list[float]:
        """Each message takes so long; returns when batches were submitted."""
        times: list[float] = []
        complete = rig.chain.complete

        def work(batch: Batch) -> None:
            times.append(rig.clock.monotonic())
            rig.clock.advance(seconds * batch.count)
            complete(batch)

        rig.chain.complete = work  # type: ignore[method-assign]
        return times

    def test_a_step_ends_when_it_has_worked_long_enough_and_the_next_goes_on(self, rig: Rig) -> None:
        self.pace(rig, 0.3)
        rig.engine.hold({0: 0, 1: 0, 2: 0})
        for partition in range(3):
            rig.feed(partition, 0)
        assert rig.engine.step(0.05) == 2
        assert rig.engine.step(0.05) == 1
        assert rig.engine.positions() == {0: 1, 1: 1, 2: 1}

    def test_batches_become_as_small_as_their_time_demands(self, rig: Rig) -> None:
        self.pace(rig, 0.1)
        rig.engine.hold({0: 0})
        sizes = []
        for first in (0, 100):
            rig.feed(0, *range(first, first + 100))
            while sum(sizes) < first + 100:
                sizes.append(rig.engine.step(0.05))
        assert sizes == [100, *[5] * 20]
        assert [start for _, start, _, _ in rig.seen()] == [0, *range(100, 200, 5)]
        assert rig.engine.positions() == {0: 200}

    def test_and_grow_again_by_the_double(self) -> None:
        rig = Rig(first_batch=1)
        self.pace(rig, 0.001)
        rig.engine.hold({0: 0})
        rig.feed(0, *range(400))
        while rig.engine.positions() != {0: 400}:
            rig.engine.step(0.05)
        assert [len(offsets) for *_, offsets in rig.seen()] == [1, 2, 4, 8, 16, 32, 64, 128, 145]

    def test_what_the_chain_rejects_of_a_cut_batch_comes_again_as_it_was(self) -> None:
        rig = Rig(first_batch=2)
        rig.engine.hold({0: 0})
        rig.feed(0, 0, 1, 5)
        rig.consumer.at_end = {0: 7}
        rig.chain.room = 1
        assert rig.engine.step(0.05) == 2
        assert rig.engine.positions() == {0: 2}
        rig.chain.room = 9
        rig.engine.step(0.05)
        assert rig.seen() == [(0, 0, 2, [0, 1]), (0, 2, 6, [5]), (0, 6, 7, [])]


def test_an_end_waits_behind_its_records_while_the_chain_rejects(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.chain.room = 0
    rig.feed(0, 0, 1)
    rig.consumer.at_end = {0: 4}
    rig.engine.step(0.05)
    rig.chain.room = 2
    rig.engine.step(0.05)
    assert rig.seen() == [(0, 0, 2, [0, 1]), (0, 2, 4, [])]


def test_while_the_chain_rejects_nothing_is_fetched_and_nothing_lost(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0)
    rig.feed(1, 0)
    rig.chain.room = 1
    assert rig.engine.step(0.05) == 1
    fetches = rig.consumer.fetches
    rig.feed(0, 1)
    for _ in range(5):
        assert rig.engine.step(0.05) == 0
    assert rig.consumer.fetches == fetches
    rig.chain.room = 9
    assert rig.engine.step(0.05) == 1
    assert rig.engine.step(0.05) == 1
    assert rig.seen() == [(0, 0, 1, [0]), (1, 0, 1, [0]), (0, 1, 2, [1])]


def test_a_rejected_batch_is_not_in_flight(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.feed(0, 0, 1)
    rig.chain.room = 0
    rig.engine.step(0.05)
    assert rig.tracker.in_flight_total() == 0
    assert rig.engine.drained(0)


def test_waiting_under_back_pressure_is_short_and_on_the_clock(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.feed(0, 0)
    rig.chain.room = 0
    for timeout in (0.05, 0.001):
        before = rig.clock.monotonic()
        rig.engine.step(timeout)
        assert 0 < rig.clock.monotonic() - before <= min(timeout, 0.01)


def test_memory_is_bounded_by_what_is_in_flight() -> None:
    rig = Rig(batch_size=10, max_in_flight=20)
    rig.chain.at_once = False
    rig.engine.hold({0: 0})
    rig.feed(0, *range(100))
    for _ in range(10):
        rig.engine.step(0.05)
    assert rig.tracker.in_flight_total() == 20
    rig.chain.complete(rig.chain.taken[0])
    rig.engine.step(0.05)
    assert rig.seen()[-1] == (0, 20, 30, list(range(20, 30)))


def test_one_partition_drains_while_others_go_on(rig: Rig) -> None:
    rig.chain.at_once = False
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0)
    rig.feed(1, 0)
    rig.engine.step(0.05)
    rig.engine.drain({0})
    assert rig.chain.calls == ["drain [0]"]
    assert not rig.engine.drained(0)
    with pytest.raises(OffsetError):
        rig.engine.release(0)
    rig.feed(1, 1)
    assert rig.engine.step(0.05) == 1
    rig.chain.complete(rig.chain.taken[0])
    assert rig.engine.drained(0)
    assert rig.engine.release(0) == 1
    assert rig.engine.held() == {1}


def test_what_waits_for_a_draining_partition_is_dropped_not_submitted(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0)
    rig.feed(1, 0)
    rig.chain.room = 0
    rig.engine.step(0.05)
    rig.engine.drain({0})
    rig.chain.room = 9
    rig.engine.step(0.05)
    assert rig.seen() == [(1, 0, 1, [0])]
    assert rig.engine.release(0) == 0


def test_records_of_a_partition_just_unassigned_are_dropped(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 0})
    rig.engine.step(0.05)
    rig.engine.drain({0})
    rig.feed(0, 0, 1)
    rig.feed(1, 0)
    assert rig.engine.step(0.05) == 1
    assert rig.seen() == [(1, 0, 1, [0])]


def test_old_records_of_a_partition_held_anew_are_not_taken_for_new_ones(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.engine.step(0.05)
    rig.engine.drain({0})
    assert rig.engine.release(0) == 0
    rig.engine.hold({0: 0})
    rig.feed(0, 300)  # from where the consumer had got to before
    rig.consumer.at_end = {0: 301}
    assert rig.engine.step(0.05) == 0
    rig.feed(0, 0)
    rig.engine.step(0.05)
    assert rig.seen() == [(0, 0, 1, [0])]


def test_abandoned_partitions_give_their_last_complete_position(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 7})
    rig.feed(0, 0, 1)
    rig.engine.step(0.05)
    rig.chain.at_once = False
    rig.feed(0, 2, 3)
    rig.feed(1, 7)
    rig.engine.step(0.05)
    assert rig.engine.abandon({0, 1}) == {0: 2, 1: 7}
    assert rig.chain.calls == ["abandon [0, 1]"]
    assert rig.tracker.in_flight_total() == 0
    assert rig.consumer.assigned == {}


def test_a_partition_can_be_let_go_before_it_was_ever_fetched(rig: Rig) -> None:
    rig.engine.hold({0: 3})
    assert rig.engine.abandon({0}) == {0: 3}
    rig.engine.step(0.05)
    assert rig.consumer.assigned == {}


def test_the_consumers_failures_propagate(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: float) -> list[FakeRecord]:
        raise OffsetOutOfRange("source", 0, 5)

    rig.engine.hold({0: 5})
    monkeypatch.setattr(rig.consumer, "fetch", fail)
    with pytest.raises(OffsetOutOfRange):
        rig.engine.step(0.05)


def test_after_a_failure_of_the_chain_nothing_is_submitted_any_more(rig: Rig) -> None:
    rig.engine.hold({0: 0, 1: 0})
    rig.feed(0, 0)
    rig.feed(1, 0)
    failure = rig.chain.failure = StageFailed("no", stage="s", partition=0, offset=0)
    with pytest.raises(StageFailed):
        rig.engine.step(0.05)
    rig.chain.failure = None
    with pytest.raises(StageFailed) as again:
        rig.engine.step(0.05)
    assert again.value is failure
    assert rig.chain.taken == []
    rig.engine.close()
    assert rig.engine.join(Deadline.after(rig.clock, 1.0))


def test_an_offset_that_comes_again_is_refused(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.feed(0, 0, 1)
    rig.engine.step(0.05)
    rig.feed(0, 1, 2)
    with pytest.raises(OffsetError, match="again"):
        rig.engine.step(0.05)


def test_closed_it_fetches_nothing_and_lets_the_chain_end(rig: Rig) -> None:
    rig.engine.hold({0: 0})
    rig.feed(0, 0)
    rig.chain.room = 0
    rig.engine.step(0.05)
    rig.engine.close()
    fetches = rig.consumer.fetches
    rig.chain.room = 9
    assert rig.engine.step(0.05) == 0
    assert rig.consumer.fetches == fetches
    assert rig.chain.taken == []
    assert rig.engine.join(Deadline.after(rig.clock, 1.0))
    rig.engine.terminate()
    assert rig.chain.calls == ["close", "terminate"]
