"""What stages count by batch: latency, in flight, and how long a stage that is full has held back those before it."""

from __future__ import annotations

import pytest

from chain_fakes import FakeProducer, FakeRecord
from millrace.clock import VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.stats import ASKED_AGAIN, LATENCIES, StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.strategies import (
    Commit,
    Fill,
    Function,
    Gather,
    Inline,
    Judge,
    Listed,
    Map,
    Produce,
    Retry,
    Room,
)
from millrace.strategies.pool import OnTheSpot, Pooled, Schedule, Sequence

pytestmark = pytest.mark.unit

JUDGE = Judge("score", dead_letters=True)


def batch(start: int, count: int = 10, partition: int = 0) -> Batch:
    records = [FakeRecord(start + n, b"v", partition) for n in range(count)]
    return Batch(partition, start, start + count, records, records, [b"v"] * count)


class Rig:
    """A stage before a produce stage whose buffer can be full."""

    def __init__(self) -> None:
        self.clock, self.producer = VirtualClock(), FakeProducer()
        self.done: list[tuple[int, int]] = []
        end = Commit(lambda _, start, end: self.done.append((start, end)), Outbox())
        self.out, self.score = StageStats("out"), StageStats("score")
        self.produce = Produce(end, self.producer, "out", "out", self.out, self.clock)
        self.chain: Strategy = Inline(self.produce, self.work, self.score, self.clock)
        self.seconds = 0.0

    def work(self, batch: Batch):  # type: ignore[no-untyped-def]
        self.clock.advance(self.seconds)
        return Map(Function(lambda value: value), JUDGE)(batch)

    def offer(self, one: Batch) -> bool:
        try:
            self.chain.submit(one)
        except MessageRejected:
            return False
        return True

    def in_flight(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, count in self.chain.in_flight():
            found[name] = found.get(name, 0) + count
        return found


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_stage_whose_buffer_is_full_is_to_blame_and_not_those_it_holds_back(rig: Rig) -> None:
    rig.producer.fullness = 1.0
    assert rig.offer(batch(0))  # goes no further: its buffer is full
    assert rig.offer(batch(10))  # score keeps it
    for _ in range(100):
        assert not rig.offer(batch(20))
        rig.clock.advance(0.005)
        rig.chain.poll()
    assert (rig.out.rejected, rig.score.rejected) == (1, 0)
    assert rig.out.held_back == pytest.approx(0.5, abs=0.02)
    assert rig.score.held_back == 0
    assert rig.in_flight() == {"score": 10, "out": 10}


def test_latency_of_a_producer_is_until_all_is_acknowledged(rig: Rig) -> None:
    rig.producer.promptness = 0.0
    assert rig.offer(batch(0))
    rig.clock.advance(0.2)
    rig.chain.poll()
    assert rig.in_flight()["out"] == 10
    assert sum(rig.out.latencies) == 0
    rig.producer.promptness = 1.0
    rig.chain.poll()
    assert rig.done == [(0, 10)]
    assert rig.out.latency == pytest.approx(0.2)
    assert rig.in_flight() == {"score": 0, "out": 0}


def test_latency_of_work_at_once_is_that_of_the_work(rig: Rig) -> None:
    rig.seconds = 0.3
    rig.offer(batch(0))
    rig.offer(batch(10))
    assert rig.score.latency == pytest.approx(0.6)
    assert rig.score.latencies[LATENCIES.index(0.5)] == 2


def test_a_batch_that_is_never_offered_again_counts_for_no_longer_than_it_could_have_been() -> None:
    stats = StageStats()
    stats.refuses(10.0)
    stats.refuses(10.25)
    stats.takes(4000.0)
    assert (stats.rejected, stats.held_back) == (1, 0.25 + ASKED_AGAIN)
    stats.refuses(5000.0)
    assert (stats.rejected, stats.held_back) == (2, 0.25 + ASKED_AGAIN)


def test_a_pool_that_is_full_says_so_and_what_it_has() -> None:
    clock, stats, end = VirtualClock(), StageStats("score"), Commit(lambda *_: None, Outbox())
    failures = iter([OSError("busy")])

    def function(value: object) -> object:
        for failure in failures:
            raise failure
        return value

    work = Map(Function(function), JUDGE)
    schedule = Schedule(Sequence.PARTITION, Retry(2, 1.0, 1.0), JUDGE.judge, clock)
    pooled = Pooled(end, work, schedule, OnTheSpot(schedule, work, clock), 2, stats, clock)
    pooled.submit(batch(0, 4))  # the first message waits for its second attempt
    for _ in range(4):
        with pytest.raises(MessageRejected):
            pooled.submit(batch(4, 4))
        clock.advance(0.1)
    assert list(pooled.in_flight()) == [("score", 4)]
    assert stats.rejected == 1
    assert stats.held_back == pytest.approx(0.3)
    clock.advance(1.0)
    pooled.poll()
    assert list(pooled.in_flight()) == [("score", 0)]
    assert stats.latency == pytest.approx(1.4)
    pooled.submit(batch(4, 4))
    assert stats.refused_at == -1


def test_a_stage_that_gathers_has_what_it_holds() -> None:
    clock, stats = VirtualClock(), StageStats("lists")
    gather = Gather(
        Commit(lambda *_: None, Outbox()), Fill(25, None, 5.0), lambda: Listed(25), Room(), stats, clock
    )
    gather.submit(batch(0))
    clock.advance(2.0)
    gather.submit(batch(10))
    assert list(gather.in_flight()) == [("lists", 20)]
    clock.advance(3.0)
    gather.poll()
    assert list(gather.in_flight()) == [("lists", 0)]
    assert stats.latency == pytest.approx(5.0)
