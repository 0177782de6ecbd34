"""What every strategy that hands on owes to the ones around it, whatever it does with a batch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import replace

import msgspec
import pytest

from chain_fakes import FakeProducer, FakeRecord, batch_of
from millrace.channel.lateness import Lateness
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
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
from millrace.strategies.functions import FunctionWork
from millrace.strategies.link import Link
from millrace.strategies.pool import Crew, OnTheSpot, Pooled, Schedule, Sequence, Tasks, Threads
from millrace.strategies.processes import Launch, Processes, Shape, Values
from millrace.strategies.retry import Retry
from millrace.strategies.vectorized import Vectorized
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


Make = Callable[[Strategy, FakeProducer, Clock], Strategy]


def inline(work: Callable[[Judge], object]) -> Make:
    def make(next_: Strategy, _: FakeProducer, clock: Clock) -> Strategy:
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


FUNCTIONS: dict[str, tuple[Callable[[Function, Judge], FunctionWork], Callable[[bytes], object]]] = {
    "map": (Map, lambda value: value),
    "filter": (Filter, lambda value: value != b"1"),
    "flatMap": (FlatMap, lambda value: [value, value]),
}


def pooled(kind: str, crew: str, sequence: Sequence, *, vectorized: bool = False) -> Make:
    """A function stage in a pool; with sequence ANY it leaves in order, with KEY as it is done."""
    make_work, of_one = FUNCTIONS[kind]

    def function(value: bytes | list[bytes]) -> object:
        return [of_one(one) for one in value] if isinstance(value, list) else of_one(value)

    async def coroutine(value: bytes | list[bytes]) -> object:
        return function(value)

    def make(next_: Strategy, _: FakeProducer, clock: Clock) -> Strategy:
        judge = Judge("stage", dead_letters=True)
        work = make_work(Function(coroutine if crew == "asyncio" else function), judge)
        if vectorized:
            work = Vectorized(work)
        schedule = Schedule(sequence, Retry(), judge.judge, clock)
        members: Crew = OnTheSpot(schedule, work, clock)
        if crew == "threads":
            members = Threads(schedule, work, 2, 30.0, clock, name="test")
        if crew == "asyncio":
            members = Tasks(schedule, work, 2, 30.0, clock, name="test")
        ordered = sequence is not Sequence.KEY
        return Pooled(next_, work, schedule, members, 1, StageStats(), clock, ordered=ordered)

    return make


POOLS: dict[str, Make] = {
    f"{kind}, {crew}, {sequence.value}": pooled(kind, crew, sequence)
    for kind in FUNCTIONS
    for crew, sequence in (
        ("later on the same thread", Sequence.PARTITION),
        ("threads", Sequence.ANY),
        ("threads", Sequence.KEY),
        ("asyncio", Sequence.ANY),
        ("asyncio", Sequence.KEY),
    )
}
POOLS["map, threads, vectorized"] = pooled("map", "threads", Sequence.ANY, vectorized=True)
POOLS["filter, asyncio, vectorized"] = pooled("filter", "asyncio", Sequence.ANY, vectorized=True)


def in_processes(kind: str, *, ordered: bool = True) -> Make:
    def make(next_: Strategy, _: FakeProducer, clock: Clock) -> Strategy:
        return Processes(
            next_,
            Launch("process_functions:works_of", msgspec.json.encode({"kind": kind})),
            1,
            Shape(Values.BYTES, Values.OBJECTS, ordered=ordered, alone=not ordered),
            [(StageStats(), True)],
            Judge("stage", dead_letters=True),
            clock,
        )

    return make


POOLS["flatMap, processes, any"] = in_processes("flatMap")
POOLS["map, processes, key"] = in_processes("map", ordered=False)


class Rig:
    """The strategy between a caller and `next`. A pool lives in real time, all else in virtual."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.real = name in POOLS
        self.clock: Clock = SystemClock() if self.real else VirtualClock()
        self.next, self.producer = Next(self.chance), FakeProducer(self.chance)
        make = POOLS[name] if self.real else STRATEGIES[name]
        self.strategy = make(self.next, self.producer, self.clock)
        self.ordered = Sequence.KEY.value not in name
        self.begun: dict[int, int] = {}
        self.made: dict[int, list[Batch]] = {}

    def batch(self, partition: int = 0, count: int = 3) -> Batch:
        """The next batch of a partition, with values of bytes, and a dead letter if it is long enough."""
        start = self.begun.get(partition, 0)
        end = self.begun[partition] = start + max(count, 1)
        records = [FakeRecord(offset, b"%d" % offset, partition) for offset in range(start, start + count)]
        alive = records[: max(0, count - 2)] + records[-1:] if count > 2 else records
        dead = tuple(DeadLetter(r, "before", "bad") for r in records if r not in alive)
        batch = Batch(
            partition, start, end, records, alive, alive if self.raw else [r.value() for r in alive], dead
        )
        self.made.setdefault(partition, []).append(batch)
        return batch

    raw = False

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


@pytest.fixture(params=[*STRATEGIES, *POOLS])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = Rig(request.param)
    rig.raw = request.param == "decode"
    yield rig
    rig.strategy.terminate()


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
    arrived = sorted(rig.next.taken, key=lambda part: part.start)
    assert [record for taken in arrived for record in taken.source] == batch.source
    assert tuple(letter for taken in arrived for letter in taken.dead) == batch.dead
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
    for _ in range(12):
        if submitted(rig, waiting):
            taken.append((waiting.start, waiting.end))
            waiting = rig.batch()
        rig.rest() if rig.real else rig.clock.sleep(1.0)
        rig.strategy.poll()
    assert rig.next.taken == []
    assert len(taken) < 12, "it has to reject at some time"
    rig.next.blocked = False
    rig.settle()
    assert rig.covered(0) == [(taken[0][0], taken[-1][1])]
    rig.strategy.submit(waiting)
    rig.settle()
    assert rig.covered(0) == [(taken[0][0], waiting.end)]


@pytest.mark.parametrize("seed", range(10))
def test_order_and_completeness_survive_a_reluctant_next_and_a_full_producer(rig: Rig, seed: int) -> None:
    if seed > 1 and isinstance(rig.strategy, Processes):
        pytest.skip("a process takes a second to start")
    rig.chance.seed(seed)
    rig.next.reluctance = rig.producer.fullness = 0.5
    rig.producer.promptness = 0.3
    for n in range(30):
        batch = rig.batch(partition=n % 3, count=rig.chance.randrange(6))
        while not submitted(rig, batch):
            rig.strategy.poll()
            rig.rest()
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
    rig.made.clear()
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
    began, seconds = rig.clock.monotonic(), 0.1 if rig.real else 3.0
    assert not rig.strategy.join(Deadline.after(rig.clock, seconds))
    assert rig.clock.monotonic() - began == pytest.approx(seconds, abs=5.0 if rig.real else 0.01)
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
