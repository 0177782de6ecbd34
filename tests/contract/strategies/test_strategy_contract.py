"""Every strategy, in every pool, passes the contract suite that `millrace.testing` offers for strategies of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import pytest

from chain_fakes import FakeProducer, FakeRecord, batch_of
from millrace.channel.lateness import Lateness
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.clock import Clock, Deadline, VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
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
from millrace.strategies.pool import Crew, OnTheSpot, Pooled, Schedule, Sequence, Tasks, Threads
from millrace.strategies.processes import Launch, Processes, Shape, Values
from millrace.strategies.retry import Retry
from millrace.strategies.vectorized import Vectorized
from millrace.testing.strategies import Rig, StrategyContract
from millrace_api.ddl import parse_columns

pytestmark = pytest.mark.contract


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


class OurRig(Rig):
    """With a producer, for strategies that write, that is hindered too. A pool lives in real time, all else in virtual."""

    def __init__(self, name: str) -> None:
        make = {**STRATEGIES, **POOLS}[name]
        self.producer = FakeProducer()
        super().__init__(
            lambda next_, clock: make(next_, self.producer, clock),
            real=name in POOLS,
            ordered=Sequence.KEY.value not in name,
            raw=name == "decode",
        )
        self.producer.chance = self.chance
        self.slow_to_start = isinstance(self.strategy, Processes)

    def hinder(self, often: float) -> None:
        super().hinder(often)
        self.producer.fullness, self.producer.promptness = often, 0.8 - often


class TestOurs(StrategyContract):
    @pytest.fixture(params=[*STRATEGIES, *POOLS])
    def rig(self, request: pytest.FixtureRequest) -> Iterator[Rig]:
        rig = OurRig(request.param)
        yield rig
        rig.strategy.terminate()


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
