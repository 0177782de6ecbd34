"""Random chains with batch and reduce stages: at every moment what is written is just what is committed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

import millrace
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.clock import Deadline, VirtualClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.errors import DeadLetterLimit, MessageFailure
from millrace.strategies import Function

pytestmark = pytest.mark.unit


@dataclass
class Plan:
    """A chain and its input. What functions do with a value follows from the value, and from where trouble is."""

    seed: int
    gathers: list[dict[str, object]]
    trouble: list[str]  # of: split, accumulate, use: there messages are Invalid
    stop: str | None  # there a message stops the worker
    key: bool
    most_in_a_row: int | None
    partitions: dict[int, list[FakeRecord]] = field(default_factory=dict)


def split(plan: Plan, value: int) -> list[int]:
    """The first stage: none to three values."""
    if plan.stop == "split" and value % 41 == 0:
        raise ZeroDivisionError
    if "split" in plan.trouble and value % 31 in (3, 4):
        raise millrace.Invalid("no")
    return [value * 10 + n for n in range(value % 4)]


def refuse(plan: Plan, at: str, values: list[int]) -> None:
    if plan.stop == at and any(value % 37 == 0 for value in values):
        raise ZeroDivisionError
    if at in plan.trouble and any(value % 17 == 0 for value in values):
        raise millrace.Invalid("17")


def flat(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for item in value:
            yield from flat(item)
    else:
        assert isinstance(value, int)
        yield value


def functions(plan: Plan, calls: Counter[tuple[str, int]]) -> Functions:
    def first(value: int) -> list[int]:
        calls["split", value] += 1
        return split(plan, value)

    def accumulate(so_far: list[object], value: object) -> list[object]:
        for one in flat(value):
            calls["accumulate", one] += 1
        refuse(plan, "accumulate", list(flat(value)))
        so_far.append(value)
        return so_far

    def use(value: object) -> object:
        for one in flat(value):
            calls["use", one] += 1
        refuse(plan, "use", list(flat(value)))
        return value

    found = {"split": Function(first), "use": Function(use)}
    for n in range(len(plan.gathers)):
        found |= {
            f"g{n}.initial": Function(list),
            f"g{n}.accumulate": Function(accumulate),
            f"g{n}.key": Function(lambda value: next(iter(flat(value))) % 3),
        }
    return Functions(found)


class World:
    """The real chain, stepped with back-pressure, drains and time, all from the plan's seed."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.chance = plan, random.Random(plan.seed)
        self.calls: Counter[tuple[str, int]] = Counter()
        stages = [
            {"name": f"g{n}", ("reduce" if "initial" in gather else "batch"): gather}
            for n, gather in enumerate(plan.gathers)
        ]
        pipeline = pipeline_of(
            {"name": "split", "flatMap": {"function": "a:b"}},
            *stages,
            {"name": "use", "map": {"function": "a:b"}},
            {"name": "out", "produce": {"topic": "out"}},
            delivery="ExactlyOnce",
            deadLetter={"topic": "dead"}
            | ({} if plan.most_in_a_row is None else {"maxConsecutive": plan.most_in_a_row}),
        )
        chance = self.chance
        self.clock, self.tracker, self.outbox = VirtualClock(), OffsetTracker(), Outbox()
        self.consumer = FakeConsumer()
        self.producer = FakeProducer(chance, fullness=chance.choice([0.0, 0.5]), promptness=1.0)
        self.outbox.attach(self.producer)
        self.stats = stage_stats(pipeline)
        chain = build(
            pipeline,
            functions(plan, self.calls),
            self.outbox,
            None,
            self.tracker.complete,
            self.stats,
            self.clock,
        )
        self.engine = Engine(
            self.consumer, chain, self.tracker, self.clock, batch_size=chance.randrange(1, 30)
        )
        self.engine.hold(dict.fromkeys(plan.partitions, 0))

    def run(self) -> MessageFailure | None:
        """Until all is done, or a failure. What is checked is checked after every step."""
        queues = {p: list(records) for p, records in self.plan.partitions.items()}
        leaving: set[int] = set()
        try:
            for _ in range(4000):
                feeding = [p for p, queue in queues.items() if queue and p not in leaving]
                if feeding and not self.consumer.ready:
                    partition = self.chance.choice(feeding)
                    count = self.chance.randrange(1, 12)
                    self.consumer.feed(*queues[partition][:count])
                    queues[partition] = queues[partition][count:]
                elif self.chance.random() < 0.02 and not leaving and not self.consumer.ready:
                    leaving = {self.chance.choice(list(self.plan.partitions))}
                    self.engine.drain(leaving)
                self.engine.step(0.05)
                self.clock.advance(self.chance.choice([0.0, 0.01, 0.2]))
                for partition in [p for p in leaving if self.tracker.drained(p)]:
                    position = self.engine.release(partition)
                    self.engine.hold({partition: position})
                    # what the engine had fetched and not submitted comes again
                    queues[partition] = [r for r in self.plan.partitions[partition] if r.offset() >= position]
                    leaving.clear()
                self.check()
                if not any(queues.values()) and not self.consumer.ready and not leaving and self.all_done():
                    return None
        except MessageFailure as failure:
            self.finish()
            self.check()
            return failure
        raise AssertionError("it does not come to its end")

    def finish(self) -> None:
        self.engine.close()
        while True:
            try:
                assert self.engine.join(Deadline.after(self.clock, 60.0))
                return
            except MessageFailure:
                continue

    def all_done(self) -> bool:
        return all(map(self.tracker.drained, self.plan.partitions))

    def check(self) -> None:
        """Below the position of a partition: each value of each message is written once, or the message is a dead
        letter; from there on nothing is written. In the order of the source, but for keys among each other.
        """
        if self.outbox.open:
            return
        for partition, records in self.plan.partitions.items():
            position = self.tracker.position(partition)
            written = self.producer.produced
            dead = [
                int(dict(p.headers or ())["millrace-offset"] or b"")
                for p in written
                if p.topic == "dead" and p.key == b"%d" % partition
            ]
            outputs = [
                value
                for p in written
                if p.topic == "out"
                for value in flat(msgspec.json.decode(p.value or b""))
                if value // 10 % 8 == partition
            ]
            expected: list[int] = []
            died = set()
            for record in records:
                if record.offset() < position and record.offset() not in dead:
                    expected += split(self.plan, msgspec.json.decode(record.value() or b""))
                elif record.offset() < position:
                    died.add(record.offset())
            assert len(dead) == len(died), f"{dead} are dead letters, committed are {position}"
            assert dead == sorted(dead)
            if self.plan.key:
                assert Counter(outputs) == Counter(expected)
            else:
                assert outputs == expected


def plan_of(seed: int) -> Plan:
    chance = random.Random(seed)
    gathers: list[dict[str, object]] = []
    key = False
    for _ in range(chance.choice([1, 1, 2])):
        gather: dict[str, object] = {
            "count": chance.choice([1, 2, 5, 40]),
            "interval": chance.choice(["10ms", "1s"]),
        }
        if chance.random() < 0.3:
            gather["bytes"] = chance.choice([1, 20])
        if chance.random() < 0.6:
            gather |= {"initial": "a:b", "accumulate": "a:b"}
            if chance.random() < 0.5:
                gather["key"], key = "a:b", True
            if chance.random() < 0.5:
                gather["onError"] = "DeadLetter"
        gathers.append(gather)
    places = ["split", "accumulate", "use"]
    trouble = [place for place in places if chance.random() < 0.6]
    plan = Plan(
        seed,
        gathers,
        trouble,
        chance.choice([None, None, *places]),
        key,
        chance.choice([None, None, 1, 2, 3]),
    )
    for partition in range(chance.randint(1, 3)):
        offset, records = 0, []
        for _ in range(chance.randrange(80)):
            offset += chance.choice([1, 1, 1, 3])
            records.append(FakeRecord(offset, b"%d" % (offset * 8 + partition), partition, b"%d" % partition))
        plan.partitions[partition] = records
    return plan


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_what_is_written_is_what_is_committed_at_every_moment(first: int) -> None:
    for seed in range(first, first + 50):
        live(plan_of(seed))


def live(plan: Plan) -> None:
    world = World(plan)
    failure = world.run()
    for times in (
        [n for (at, _), n in world.calls.items() if at != "accumulate"],
        [n for (at, _), n in world.calls.items() if at == "accumulate" and len(plan.gathers) == 1],
    ):
        assert all(n == 1 for n in times), "a function is called once per value"
    if failure is None:
        for partition, records in plan.partitions.items():
            assert world.tracker.position(partition) == (records[-1].offset() + 1 if records else 0)
    else:
        assert plan.stop is not None or isinstance(failure, DeadLetterLimit)
        assert world.tracker.position(failure.partition) <= failure.offset
