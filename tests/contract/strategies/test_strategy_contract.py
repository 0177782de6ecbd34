"""What every strategy that hands on owes to the ones around it, whatever it does with a batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Set
from dataclasses import replace

import pytest

from chain_fakes import FakeProducer, FakeRecord, batch_of
from millrace.channel.lateness import Lateness
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.clock import Deadline, VirtualClock
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.strategies import (
    Check,
    Commit,
    Decode,
    Encode,
    Fill,
    Filter,
    FlatMap,
    Folded,
    Function,
    Gather,
    Inline,
    Judge,
    Limits,
    Listed,
    Map,
    Outcome,
    Produce,
    Room,
    collect_rows,
    produce_in_transaction,
    write_dead_letters,
)
from millrace_api.ddl import parse_columns

pytestmark = pytest.mark.contract


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

    def join(self, deadline: Deadline) -> bool:
        return True

    def terminate(self) -> None:
        self.terminated += 1


Make = Callable[[Strategy, FakeProducer, VirtualClock], Strategy]


def inline(work: Callable[[Judge], object]) -> Make:
    def make(next_: Strategy, _: FakeProducer, clock: VirtualClock) -> Strategy:
        return Inline(next_, work(Judge("stage", dead_letters=True)), StageStats(), clock)  # type: ignore[arg-type]

    return make


def outbox_on(producer: FakeProducer) -> Outbox:
    outbox = Outbox()
    outbox.attach(producer)
    return outbox


class Numbered:
    """`Check` for batches of bytes: each value becomes a row with a number and a time."""

    def __init__(self) -> None:
        encoder = RowEncoder(parse_columns("n string, t timestamp"), "t")
        self.check = Check(encoder, Judge("stage", dead_letters=True))

    def __call__(self, batch: Batch) -> Outcome:
        values = [{"n": str(value), "t": "2026-01-31T00:00:00Z"} for value in batch.values]
        return self.check(replace(batch, values=values))


def lists(count: int, seconds: float) -> Make:
    def make(next_: Strategy, _: FakeProducer, clock: VirtualClock) -> Strategy:
        fill = Fill(count, None, seconds)
        return Gather(next_, fill, lambda: Listed(count), Room(), StageStats(), clock)

    return make


def folds(next_: Strategy, _: FakeProducer, clock: VirtualClock) -> Strategy:
    judge = Judge("stage", dead_letters=True)

    def contents() -> Folded:
        add = Function(lambda so_far, value: [*so_far, value])
        return Folded(list, add, lambda value, record: record.value(), judge)

    fill = Fill(100, 10, 0.5)
    finish = Map(Function(len), judge)
    return Gather(next_, fill, contents, Room(), StageStats(), clock, finish=finish)


STRATEGIES: dict[str, Make] = {
    "decode": inline(lambda judge: Decode("bytes", judge)),
    "map": inline(lambda judge: Map(Function(lambda value: value), judge)),
    "filter": inline(lambda judge: Filter(Function(lambda value: value != b"1"), judge)),
    "flatMap": inline(lambda judge: FlatMap(Function(lambda value: [value, value]), judge)),
    "batch by count": lists(2, 0.05),
    "batch by time": lists(1000, 0.05),
    "reduce": folds,
    "encode": inline(lambda judge: Encode("bytes", judge)),
    "limits": inline(lambda _: Limits(0.5, 100)),
    "produce in a transaction": lambda next_, producer, clock: produce_in_transaction(
        next_, outbox_on(producer), "out", "stage", StageStats(), clock
    ),
    "produce": lambda next_, producer, clock: Produce(next_, producer, "out", "stage", StageStats(), clock),
    "check": lambda next_, _, clock: Inline(next_, Numbered(), StageStats(), clock),
    "collect": lambda next_, producer, clock: Inline(
        collect_rows(
            next_, outbox_on(producer), "out", Progress(), Lateness(0), "stage", StageStats(), clock
        ),
        Numbered(),
        None,
        clock,
    ),
    "dead letters": lambda next_, producer, clock: write_dead_letters(
        next_, outbox_on(producer), "dead", StageStats(), clock
    ),
}


class Rig:
    def __init__(self, make: Make, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.clock, self.next = VirtualClock(), Next(self.chance)
        self.producer = FakeProducer(self.chance)
        self.strategy = make(self.next, self.producer, self.clock)
        self.begun: dict[int, int] = {}

    def batch(self, partition: int = 0, count: int = 3) -> Batch:
        """The next batch of a partition, with values of bytes, and a dead letter if it is long enough."""
        start = self.begun.get(partition, 0)
        end = self.begun[partition] = start + max(count, 1)
        records = [FakeRecord(offset, b"%d" % offset, partition) for offset in range(start, start + count)]
        alive = records[: max(0, count - 2)] + records[-1:] if count > 2 else records
        dead = tuple(DeadLetter(r, "before", "bad") for r in records if r not in alive)
        return Batch(
            partition, start, end, records, alive, alive if self.raw else [r.value() for r in alive], dead
        )

    raw = False

    def settle(self) -> None:
        for _ in range(100):
            self.strategy.poll()
            self.clock.advance(0.01)

    def ranges(self, partition: int) -> list[tuple[int, int]]:
        return [(b.start, b.end) for b in self.next.taken if b.partition == partition]

    def covered(self, partition: int) -> list[tuple[int, int]]:
        """The ranges that arrived, those without a gap between them as one: a strategy may merge batches, and cut them."""
        found: list[tuple[int, int]] = []
        for start, end in self.ranges(partition):
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found


@pytest.fixture(params=STRATEGIES)
def rig(request: pytest.FixtureRequest) -> Rig:
    rig = Rig(STRATEGIES[request.param])
    rig.raw = request.param == "decode"
    return rig


def submitted(rig: Rig, batch: Batch) -> bool:
    try:
        rig.strategy.submit(batch)
    except MessageRejected:
        return False
    return True


def test_a_batch_arrives_with_its_offsets_its_source_and_its_dead_letters(rig: Rig) -> None:
    batch = rig.batch(count=6)
    rig.strategy.submit(batch)
    rig.settle()
    assert rig.covered(0) == [(batch.start, batch.end)]
    assert [record for taken in rig.next.taken for record in taken.source] == batch.source
    assert tuple(letter for taken in rig.next.taken for letter in taken.dead) == batch.dead
    for taken in rig.next.taken:
        within = [*taken.source, *taken.records, *(letter.record for letter in taken.dead)]
        assert all(taken.start <= record.offset() < taken.end for record in within)


def test_an_empty_batch_travels_too(rig: Rig) -> None:
    rig.strategy.submit(rig.batch(count=0))
    rig.settle()
    assert rig.ranges(0) == [(0, 1)]


def test_a_rejection_has_no_effect_and_nothing_taken_is_lost_while_the_next_rejects(rig: Rig) -> None:
    rig.next.blocked = True
    taken = []
    waiting = rig.batch()
    for _ in range(5):
        if submitted(rig, waiting):
            taken.append((waiting.start, waiting.end))
            waiting = rig.batch()
        rig.clock.advance(1.0)
        rig.strategy.poll()
    assert rig.next.taken == []
    assert len(taken) < 5, "it has to reject at some time"
    rig.next.blocked = False
    rig.settle()
    assert rig.covered(0) == [(taken[0][0], taken[-1][1])]
    rig.strategy.submit(waiting)
    rig.settle()
    assert rig.covered(0) == [(taken[0][0], waiting.end)]


@pytest.mark.parametrize("seed", range(10))
def test_order_and_completeness_survive_a_reluctant_next_and_a_full_producer(rig: Rig, seed: int) -> None:
    rig.chance.seed(seed)
    rig.next.reluctance = rig.producer.fullness = 0.5
    rig.producer.promptness = 0.3
    for n in range(30):
        batch = rig.batch(partition=n % 3, count=rig.chance.randrange(6))
        while not submitted(rig, batch):
            rig.strategy.poll()
            rig.clock.advance(0.01)
    rig.settle()
    for partition in range(3):
        ranges = rig.ranges(partition)
        assert all(start < end for start, end in ranges)
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == rig.begun[partition]


def test_draining_hands_on_what_is_there_and_lets_others_go_on(rig: Rig) -> None:
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


def test_of_an_abandoned_partition_nothing_arrives_any_more(rig: Rig) -> None:
    rig.next.blocked = True
    taken = [p for p in (1, 2) if submitted(rig, rig.batch(partition=p))]
    rig.strategy.abandon({1})
    assert rig.next.abandoned == {1}
    rig.next.blocked = False
    rig.settle()
    assert {b.partition for b in rig.next.taken} == set(taken) - {1}
    rig.begun[1] = 0
    rig.strategy.submit(rig.batch(partition=1))
    rig.settle()
    assert rig.covered(1) == [(0, 3)]


def test_the_next_is_closed_once_and_after_the_last_batch(rig: Rig) -> None:
    rig.next.blocked = True
    rig.strategy.submit(rig.batch())
    rig.strategy.close()
    assert rig.next.closed == 0
    rig.next.blocked = False
    rig.settle()
    assert rig.covered(0) == [(0, 3)]
    assert rig.next.closed == 1


def test_joining_ends_when_all_is_handed_on(rig: Rig) -> None:
    rig.next.reluctance = rig.producer.fullness = 0.7
    rig.producer.promptness = 0.1
    rig.strategy.submit(rig.batch())
    rig.strategy.close()
    assert rig.strategy.join(Deadline.after(rig.clock, 60.0))
    assert rig.covered(0) == [(0, 3)]
    assert rig.next.closed == 1


def test_joining_keeps_its_deadline(rig: Rig) -> None:
    rig.next.blocked = True
    rig.strategy.submit(rig.batch())
    rig.strategy.close()
    began = rig.clock.monotonic()
    assert not rig.strategy.join(Deadline.after(rig.clock, 3.0))
    assert rig.clock.monotonic() - began == pytest.approx(3.0, abs=0.01)
    assert rig.next.taken == []


def test_terminating_hands_nothing_on_and_may_be_done_twice(rig: Rig) -> None:
    rig.next.blocked = True
    rig.strategy.submit(rig.batch())
    rig.strategy.terminate()
    rig.strategy.terminate()
    rig.next.blocked = False
    assert rig.next.taken == []
    assert rig.next.terminated >= 1


def test_a_failure_further_down_passes_through_once_and_the_rest_can_still_be_joined(rig: Rig) -> None:
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


def test_the_end_of_a_chain_completes_all_it_is_given_at_once() -> None:
    completed: list[tuple[int, int, int]] = []
    outbox = outbox_on(FakeProducer())
    commit = Commit(lambda *range_: completed.append(range_), outbox)
    batch = batch_of([FakeRecord(4, of=2), FakeRecord(5, of=2)], start=3)
    outbox.begin_batch(batch)
    commit.submit(batch)
    commit.close()
    assert completed == [(2, 3, 6)]
    assert outbox.open == set()
    assert commit.join(Deadline.after(VirtualClock(), 1.0))
