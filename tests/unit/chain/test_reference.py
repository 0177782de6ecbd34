"""Random chains under random back-pressure against an interpreter of a few lines that is obviously right."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millrace
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.errors import DeadLetterLimit, MessageFailure, StageFailed
from millrace.strategies import Function

pytestmark = pytest.mark.unit

ATTEMPTS = 2  # of a stage that is called again
INVALID, RAISE, TOO_MANY = "invalid", "raise", "half-way"


@dataclass
class Plan:
    """A chain and its input, all drawn from a seed; what a function does with a value is fixed, whoever asks."""

    seed: int
    kinds: list[str]
    on_error: list[str]
    delivery: str
    dead_letters: bool
    max_consecutive: int | None
    trouble: float  # share of values at which a function does not simply return
    pools: list[str | None]  # how each stage is executed; in all of these ways messages leave it in order
    partitions: dict[int, list[FakeRecord]] = field(default_factory=dict)

    def fate(self, stage: int, value: int) -> str | int:
        """What the function of this stage does with this value: a number decides what it returns."""
        chance = random.Random(f"{self.seed} {stage} {value}")
        if chance.random() < self.trouble:
            return chance.choice([INVALID, RAISE, TOO_MANY])
        return chance.randrange(4)


class Stop(Exception):
    """The reference stops at a message."""


@dataclass
class Result:
    outputs: list[int] = field(default_factory=list)
    dead: list[tuple[int, str]] = field(default_factory=list)
    position: int = 0
    stopped: type[MessageFailure] | None = None


def reference(plan: Plan, records: list[FakeRecord]) -> Result:
    """One partition, one message at a time."""
    result = Result()
    row = 0
    for record in records:
        made, dead_at = process(plan, record)
        if dead_at is not None:
            stage, stops = dead_at
            row += 1
            if stops or not plan.dead_letters:
                result.stopped = StageFailed
            elif plan.max_consecutive is not None and row > plan.max_consecutive:
                result.stopped = DeadLetterLimit
            if result.stopped:
                result.position = record.offset()
                return result
            result.dead.append((record.offset(), stage))
        else:
            row = 0
            result.outputs += made
        result.position = record.offset() + 1
    return result


def process(plan: Plan, record: FakeRecord) -> tuple[list[int], tuple[str, bool] | None]:
    """What becomes of a message: outputs, or the stage at which it died and whether that stops the worker."""
    try:
        values = [msgspec.json.decode(record.value() or b"")]
    except msgspec.DecodeError:
        return [], ("decode", False)
    for stage, kind in enumerate(plan.kinds):
        after, first_death = [], None
        for value in values:
            fate = plan.fate(stage, value)
            died = fate in (INVALID, RAISE) or (fate == TOO_MANY and kind == "flatMap")
            if died:
                stops = fate != INVALID and plan.on_error[stage] == "Stop"
                if stops:
                    return [], (f"s{stage}", True)
                first_death = first_death or (f"s{stage}", False)
            number = 1 if fate == TOO_MANY else fate
            if kind == "map":
                after.append(value * 4 + 1)
            elif kind == "filter":
                after += [value] if number != 0 else []
            elif not died:
                after += [value * 4 + n for n in range(int(number))]
        if first_death is not None:
            return [], first_death
        values = after
    return values, None


def functions(plan: Plan, calls: Counter[tuple[int, int, int]]) -> Functions:
    def make_async(function: Callable[[int, millrace.Message], object]) -> Callable[..., object]:
        async def coroutine(value: int, message: millrace.Message) -> object:
            if value % 3 == 0:
                await asyncio.sleep(0)
            try:
                return function(value, message)
            except StopIteration as error:  # which a coroutine can't raise
                raise ArithmeticError from error

        return coroutine

    def make(stage: int, kind: str) -> Callable[[int, millrace.Message], object]:
        def many(value: int, number: int, breaks: bool) -> Iterator[int]:
            for n in range(number):
                yield value * 4 + n
            if breaks:
                raise TimeoutError("half-way")

        def function(value: int, message: millrace.Message) -> object:
            with lock:
                calls[stage, message.partition, message.offset, value] += 1  # type: ignore[index]
            fate = plan.fate(stage, value)
            if fate == INVALID:
                raise millrace.Invalid("no")
            if fate == RAISE:
                raise StopIteration if value % 2 else ZeroDivisionError
            number = 1 if fate == TOO_MANY else int(fate)
            if kind == "map":
                return value * 4 + 1
            return number != 0 if kind == "filter" else many(value, number, fate == TOO_MANY)

        return function

    def of(stage: int) -> Function:
        function = make(stage, plan.kinds[stage])
        if plan.pools[stage] == "asyncio":
            return Function(make_async(function), wants_message=True, asynchronous=True)
        return Function(function, wants_message=True)

    lock = threading.Lock()
    return Functions({f"s{n}": of(n) for n in range(len(plan.kinds))})


EXECUTED: dict[str, dict[str, object]] = {
    "again": {"retry": {"attempts": ATTEMPTS, "backoff": "1ms", "maxBackoff": "1ms"}},
    "threads": {"pool": {"threads": 2}},
    "asyncio": {"pool": {"asyncio": 3}},
}


@dataclass
class Run:
    """The real chain, stepped until it has nothing more to do or fails."""

    positions: dict[int, int]
    failure: MessageFailure | None
    failures: int
    produced: FakeProducer
    calls: Counter[tuple[int, int, int]]
    open: set[int]


def run(plan: Plan, chance: random.Random) -> Run:
    stages: list[dict[str, object]] = [
        {
            "name": f"s{n}",
            kind: {"function": "operator:truth", "onError": on_error, **EXECUTED.get(pool or "", {})},
        }
        for n, (kind, on_error, pool) in enumerate(zip(plan.kinds, plan.on_error, plan.pools, strict=True))
    ]
    spec: dict[str, object] = {"delivery": plan.delivery}
    if plan.dead_letters:
        spec["deadLetter"] = {"topic": "dead"}
        if plan.max_consecutive is not None:
            spec["deadLetter"] = {"topic": "dead", "maxConsecutive": plan.max_consecutive}
    pipeline = pipeline_of(*stages, {"name": "out", "produce": {"topic": "out"}}, **spec)
    calls: Counter[tuple[int, int, int]] = Counter()
    real = any(plan.pools)
    clock: Clock = SystemClock() if real else VirtualClock()
    tracker, outbox, consumer = OffsetTracker(), Outbox(), FakeConsumer()
    producer = FakeProducer(
        chance, fullness=chance.choice([0.0, 0.3, 0.8]), promptness=chance.choice([0.1, 1.0])
    )
    outbox.attach(producer)
    chain = build(
        pipeline, functions(plan, calls), outbox, producer, tracker.complete, stage_stats(pipeline), clock
    )
    engine = Engine(consumer, chain, tracker, clock, batch_size=chance.randrange(1, 12))
    engine.hold(dict.fromkeys(plan.partitions, 0))
    queues = {p: list(records) for p, records in plan.partitions.items()}
    while any(queues.values()):
        partition = chance.choice([p for p, queue in queues.items() if queue])
        count = chance.randrange(1, 5)
        consumer.feed(*queues[partition][:count])
        queues[partition] = queues[partition][count:]
    failure = None
    deadline = Deadline.after(SystemClock(), 60.0)
    try:
        for _ in itertools.count() if real else range(3000):
            engine.step(0.05)
            assert not deadline.expired(), "it does not come to an end"
            if not consumer.ready and all(map(tracker.drained, plan.partitions)):
                break
    except MessageFailure as error:
        failure = error
    engine.close()
    told = [] if failure is None else [failure]
    while True:
        try:
            assert engine.join(Deadline.after(clock, 60.0))
            break
        except MessageFailure as error:
            told.append(error)
    engine.terminate()
    assert len(told) == len(set(map(id, told))), "a failure is told once"
    return Run(
        dict(engine.positions()), told[-1] if told else None, len(told), producer, calls, set(outbox.open)
    )


@st.composite
def plans(draw: st.DrawFn, pools: Sequence[str | None] = (None,)) -> Plan:
    kinds = draw(st.lists(st.sampled_from(["map", "filter", "flatMap"]), min_size=1, max_size=4))
    dead_letters = draw(st.booleans())
    errors = ["Stop", "DeadLetter"] if dead_letters else ["Stop"]
    seed = draw(st.integers(0, 2**32))
    plan = Plan(
        seed,
        kinds,
        [draw(st.sampled_from(errors)) for _ in kinds],
        draw(st.sampled_from(["AtLeastOnce", "ExactlyOnce"])),
        dead_letters,
        draw(st.sampled_from([None, 1, 3])),
        draw(st.sampled_from([0.0, 0.02, 0.3])),
        [draw(st.sampled_from(pools)) for _ in kinds],
    )
    chance = random.Random(seed)
    for partition in range(draw(st.integers(1, 3))):
        offset, records = 0, []
        for _ in range(chance.randrange(40)):
            offset += chance.choice([1, 1, 1, 3])
            body = b"{" if chance.random() < plan.trouble / 3 else b"%d" % (offset * 8 + partition)
            records.append(FakeRecord(offset, body, partition, b"%d" % partition))
        plan.partitions[partition] = records
    return plan


@settings(max_examples=200, deadline=None)
@given(plan=plans(), seed=st.integers(0, 2**32))
def test_a_chain_does_what_the_reference_does_whatever_back_pressure_there_is(plan: Plan, seed: int) -> None:
    check(plan, seed)


@settings(max_examples=60, deadline=None)
@given(plan=plans(pools=[None, *EXECUTED]), seed=st.integers(0, 2**32))
def test_a_chain_of_pools_does_what_the_reference_does(plan: Plan, seed: int) -> None:
    check(plan, seed)


def check(plan: Plan, seed: int) -> None:
    result = run(plan, random.Random(seed))
    for (stage, *_), times in result.calls.items():
        most = ATTEMPTS if plan.pools[stage] == "again" else 1
        assert 1 <= times <= most, "a function is called once per value"
    wanted = {p: reference(plan, records) for p, records in plan.partitions.items()}
    if result.failure is None:
        assert not any(w.stopped for w in wanted.values())
    elif result.failures == 1 or not any(plan.pools):
        # pools go on at the same time: where several stages fail, what one has handed on may be dropped by the next
        stopped = wanted[result.failure.partition]
        assert type(result.failure) is stopped.stopped
        assert result.failure.offset == stopped.position
    assert result.open == set(), "nothing is left half-written"
    for partition, records in plan.partitions.items():
        position = result.positions[partition]
        whole = wanted[partition]
        exact = result.failures == 1 or not any(plan.pools)
        if result.failure is None or (exact and result.failure.partition == partition):
            assert position == (whole.position if records else 0)
        assert position <= max(whole.position, 0)
        done = [record for record in records if record.offset() < position]
        expected = reference(plan, done)
        key = b"%d" % partition
        outputs = [p.value for p in result.produced.produced if p.topic == "out" and p.key == key]
        assert outputs == [msgspec.json.encode(value) for value in expected.outputs]
        dead = [p.headers for p in result.produced.produced if p.topic == "dead" and p.key == key]
        told = [(int(dict(h or ())["millrace-offset"] or b""), dict(h or ())["millrace-stage"]) for h in dead]
        assert told == [(offset, stage.encode()) for offset, stage in expected.dead]
