"""batch and reduce: when they hand on, what it answers for, and what becomes of messages that fail together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

import millrace
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord, batch_of
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.clock import Deadline, VirtualClock
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.bounds import Bounds
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.settings import ReplicaSettings
from millrace.engine.several import Several
from millrace.engine.stats import StageStats
from millrace.engine.tracker import OffsetTracker
from millrace.errors import DeadLetterLimit, MessageFailure, StageFailed
from millrace.strategies import Fill, Function, Gather, Listed, Room
from millrace.strategies.hold import MOST_BYTES, MOST_MESSAGES
from millrace.testing.strategies import Next
from millrace_api.gather import MOST_HELD, MOST_HELD_BYTES

pytestmark = pytest.mark.unit


class Rig:
    """A chain with some stages, then `use`, a map that keeps what it gets, then the topic `out`."""

    def __init__(
        self,
        *stages: dict[str, object],
        use: Callable[..., object] | None = None,
        wants_message: bool = False,
        functions: dict[str, Function] = {},  # noqa: B006  never changed
        bounds: dict[int, int] | None = None,
        max_in_flight: int = 100_000,
        **spec: object,
    ) -> None:
        spec = {"delivery": "ExactlyOnce", **spec}
        last = {"name": "use", "map": {"function": "a:b", "onError": "Stop"}}
        pipeline = pipeline_of(*stages, last, {"name": "out", "produce": {"topic": "out"}}, **spec)
        self.clock, self.tracker, self.outbox = VirtualClock(), OffsetTracker(), Outbox()
        self.consumer, self.producer = FakeConsumer(), FakeProducer(random.Random(0))
        self.outbox.attach(self.producer)
        self.stats = stage_stats(pipeline)
        self.used: list[object] = []

        def keep(value: object, message: millrace.Message) -> object:
            self.used.append(value)
            return use(*(value, message)[: 1 + wants_message]) if use is not None else value

        chain = build(
            pipeline,
            Functions({"use": Function(keep, wants_message=True), **functions}),
            self.outbox,
            None,
            self.tracker.complete,
            self.stats,
            self.clock,
        )
        bound = None if bounds is None else Bounds(bounds)
        self.engine = Engine(
            self.consumer, chain, self.tracker, self.clock, bounds=bound, max_in_flight=max_in_flight
        )
        self.engine.hold({0: 0, 1: 0})

    def feed(self, *offsets: int, partition: int = 0, body: str = "%d", ms: int = 1_000) -> None:
        self.consumer.feed(
            *(FakeRecord(o, (body.replace("%d", str(o))).encode(), partition, ms=ms + o) for o in offsets)
        )
        self.engine.step(0.05)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.engine.step(0.05)

    def position(self, partition: int = 0) -> int:
        return self.tracker.position(partition)

    def outputs(self, topic: str = "out") -> list[bytes | None]:
        return [p.value for p in self.producer.produced if p.topic == topic]


def batch(**fields: object) -> dict[str, object]:
    return {"name": "gather", "batch": fields}


def test_a_list_is_handed_on_by_the_message_that_makes_it_full_and_the_rest_waits() -> None:
    rig = Rig(batch(count=3))
    rig.feed(0, 1, 2, 3, 4, 5, 6)
    assert rig.used == [[0, 1, 2], [3, 4, 5]]
    assert rig.position() == 6
    assert rig.stats["gather"].received == 7
    assert rig.stats["gather"].emitted == 2


def test_what_is_held_delays_the_commit_until_its_time_is_over() -> None:
    rig = Rig(batch(count=100, interval="2s"))
    rig.feed(0, 1)
    rig.pass_time(1.0)
    rig.feed(2)
    assert (rig.used, rig.position()) == ([], 0)
    rig.pass_time(0.9)
    assert rig.used == []
    rig.pass_time(0.2)
    assert (rig.used, rig.position()) == ([[0, 1, 2]], 3)


def test_bytes_count_keys_and_values_as_they_are_in_the_source() -> None:
    rig = Rig(batch(count=100, bytes=10))
    rig.feed(*range(10, 17))  # of two bytes each
    assert rig.used == [[10, 11, 12, 13, 14]]
    assert rig.position() == 15


def test_partitions_have_lists_of_their_own() -> None:
    rig = Rig(batch(count=2))
    rig.feed(0)
    rig.feed(0, partition=1)
    rig.feed(1)
    assert rig.used == [[0, 1]]
    assert (rig.position(0), rig.position(1)) == (2, 0)


def test_filtered_messages_wait_with_those_before_them_and_alone_for_nothing() -> None:
    keep = {"name": "keep", "filter": {"function": "a:b"}}
    rig = Rig(keep, batch(count=10), functions={"keep": Function(lambda value: value % 5 == 0)})
    rig.feed(1, 2)
    assert rig.position() == 3
    rig.feed(5)
    rig.feed(6, 7)
    assert rig.position() == 3
    rig.pass_time(1.0)
    assert (rig.used, rig.position()) == ([[5]], 8)


def test_the_values_of_a_message_are_never_apart_and_no_list_is_longer_than_count() -> None:
    double = {"name": "many", "flatMap": {"function": "a:b"}}
    functions = {"many": Function(lambda value: [value] * (5 if value == 1 else 2))}
    rig = Rig(double, batch(count=3), functions=functions)
    rig.feed(0)
    assert rig.used == []
    rig.feed(1)
    assert rig.used == [[0, 0, 1], [1, 1, 1], [1]]
    assert rig.position() == 2


def test_a_function_gets_the_first_messages_place_and_the_latest_time() -> None:
    seen: list[millrace.Message] = []
    rig = Rig(batch(count=2), use=lambda _, message: seen.append(message), wants_message=True)
    rig.feed(3, 4)
    (message,) = seen
    assert (message.partition, message.offset, message.timestamp) == (0, 3, 1_004)
    assert (message.key, message.headers) == (None, ())


def test_a_list_that_is_invalid_makes_dead_letters_of_all_its_messages() -> None:
    def use(values: Sequence[int]) -> object:
        if 3 in values:
            raise millrace.Invalid("a three")
        return values

    rig = Rig(batch(count=2), use=use, deadLetter={"topic": "dead"})
    rig.feed(0, 1, 2, 3, 4, 5)
    assert rig.outputs() == [b"[0,1]", b"[4,5]"]
    assert rig.outputs("dead") == [b"2", b"3"]
    assert rig.position() == 6
    assert rig.stats["use"].dead == 2


def test_a_list_that_fails_stops_before_its_first_message() -> None:
    def use(values: Sequence[int]) -> object:
        return 1 // (3 - max(values))

    rig = Rig(batch(count=2), use=use)
    with pytest.raises(StageFailed) as raised:
        rig.feed(0, 1, 2, 3, 4, 5)
    assert raised.value.offset == 2
    assert rig.position() == 2
    rig.engine.close()
    assert rig.engine.join(Deadline.after(rig.clock, 5.0))
    assert rig.position() == 2


def test_a_limit_on_dead_letters_does_not_cut_a_list() -> None:
    rig = Rig(batch(count=4), deadLetter={"topic": "dead", "maxConsecutive": 1})
    rig.consumer.feed(
        *(FakeRecord(n, b"{" if n in (2, 3) else b"%d" % n) for n in range(6)),
    )
    with pytest.raises(DeadLetterLimit) as raised:
        rig.engine.step(0.05)
    assert raised.value.offset == 3
    assert rig.position() == 0
    assert rig.outputs() == []


def test_closing_hands_on_what_is_held() -> None:
    rig = Rig(batch(count=10, interval="1h"))
    rig.feed(0, 1)
    rig.engine.close()
    assert rig.engine.join(Deadline.after(rig.clock, 5.0))
    assert (rig.used, rig.position()) == ([[0, 1]], 2)


def test_a_partition_that_is_passed_on_is_handed_on_and_the_others_wait() -> None:
    rig = Rig(batch(count=10, interval="1h"))
    rig.feed(0, 1)
    rig.feed(0, partition=1)
    rig.engine.drain({0})
    rig.engine.step(0.05)
    assert rig.engine.drained(0)
    assert rig.used == [[0, 1]]
    rig.engine.hold({0: rig.engine.release(0)})
    rig.feed(2)
    assert rig.used == [[0, 1]], "held again, it waits again"


def test_two_stages_that_hold_are_drained_one_through_the_other() -> None:
    second = {"name": "second", "batch": {"count": 10, "interval": "1h"}}
    rig = Rig(batch(count=2, interval="1h"), second)
    rig.feed(0, 1, 2)
    rig.engine.drain({0})
    for _ in range(3):
        rig.engine.step(0.05)
    assert rig.engine.drained(0)
    assert rig.used == [[[0, 1]], [[2]]]


def test_the_bound_of_a_run_hands_on_what_is_held() -> None:
    rig = Rig(batch(count=10, interval="1h"), bounds={0: 2, 1: 0})
    rig.feed(0, 1, 2)
    rig.engine.step(0.05)
    assert (rig.used, rig.position()) == ([[0, 1]], 2)


def test_of_an_abandoned_partition_nothing_is_held_any_more() -> None:
    rig = Rig(batch(count=10))
    rig.feed(0, 1)
    rig.engine.abandon({0})
    rig.pass_time(5.0)
    assert rig.used == []


def test_more_than_there_is_room_for_is_handed_on_before_it_is_full() -> None:
    rig = Rig(batch(count=MOST_MESSAGES, interval="1h"))
    half = MOST_MESSAGES // 2
    for partition in (0, 1):
        for start in range(0, half, 500):
            rig.feed(*range(start, start + 500), partition=partition, body="0")
    assert rig.used == []
    rig.feed(half, body="0")
    assert [len(values) for values in rig.used] == [half + 1]  # type: ignore[arg-type]
    assert (rig.position(0), rig.position(1)) == (half + 1, 0)


def test_more_bytes_than_there_is_room_for_are_handed_on_too_the_largest_hold_first() -> None:
    next_ = Next(random.Random(0))
    gather = Gather(
        next_,
        Fill(1000, None, 3600.0),
        lambda: Listed(1000),
        Room(most_bytes=100),
        StageStats(),
        VirtualClock(),
    )
    for partition, sizes in ((0, (20,)), (1, (30, 50))):
        records = [FakeRecord(n, b"x" * size, partition) for n, size in enumerate(sizes)]
        gather.submit(batch_of(records))
    assert next_.taken == []
    gather.submit(batch_of([FakeRecord(1, b"x", 0)]))
    assert [(taken.partition, taken.end) for taken in next_.taken] == [(1, 2)]


def test_the_room_leaves_the_engine_half_of_what_it_may_have_in_flight() -> None:
    assert ReplicaSettings().max_in_flight >= MOST_MESSAGES * 2
    assert (MOST_HELD, MOST_HELD_BYTES) == (MOST_MESSAGES, MOST_BYTES), "what the manifest allows fits"


# reduce


def add(so_far: dict[str, int], order: dict[str, int]) -> dict[str, int]:
    if order.get("bad"):
        raise millrace.Invalid("bad order")
    so_far["sum"] = so_far.get("sum", 0) + order["amount"]
    return so_far


REDUCE = {
    "gather.initial": Function(dict),
    "gather.accumulate": Function(add),
    "gather.flush": Function(lambda so_far: so_far["sum"]),
}


def reduce(**fields: object) -> dict[str, object]:
    return {"name": "gather", "reduce": {"initial": "a:b", "accumulate": "a:b", "flush": "a:b", **fields}}


def orders(rig: Rig, *orders: str, start: int = 0) -> None:
    rig.consumer.feed(*(FakeRecord(start + n, text.encode()) for n, text in enumerate(orders)))
    rig.engine.step(0.05)


def test_reduce_hands_on_one_value_for_each_key_in_the_order_they_came() -> None:
    rig = Rig(reduce(count=4, key="who"), functions=REDUCE)
    orders(
        rig,
        '{"who":"b","amount":1}',
        '{"who":"a","amount":2}',
        '{"who":7,"amount":3}',
        '{"who":"b","amount":4}',
    )
    written = [(p.key, p.value) for p in rig.producer.produced]
    assert written == [(b"b", b"5"), (b"a", b"2"), (b"7", b"3")]
    assert rig.position() == 4


def test_reduce_without_a_key_has_one_value_and_none() -> None:
    rig = Rig(reduce(interval="1s"), functions=REDUCE)
    orders(rig, '{"amount":1}', '{"amount":2}')
    rig.pass_time(1.0)
    assert [(p.key, p.value) for p in rig.producer.produced] == [(None, b"3")]


def test_a_message_that_accumulate_refuses_is_a_dead_letter_and_the_others_count() -> None:
    rig = Rig(reduce(count=3), functions=REDUCE, deadLetter={"topic": "dead"})
    orders(rig, '{"amount":1}', '{"amount":2,"bad":1}', '{"amount":3}')
    assert rig.outputs() == [b"4"]
    assert rig.outputs("dead") == [b'{"amount":2,"bad":1}']
    assert rig.position() == 3
    assert rig.stats["gather"].dead == 1


def test_a_missing_key_is_a_dead_letter_that_names_the_field() -> None:
    rig = Rig(reduce(count=2, key="who.name"), functions=REDUCE, deadLetter={"topic": "dead"})
    orders(rig, '{"amount":1,"who":{"name":"a"}}', '{"amount":2,"who":3}')
    (dead,) = [p for p in rig.producer.produced if p.topic == "dead"]
    assert dict(dead.headers or ())["millrace-reason"] == (
        b"there is no field who.name: the value is a int, not a mapping"
    )
    rig.pass_time(1.0)
    assert rig.outputs() == [b"1"]


def test_where_accumulate_fails_what_was_before_is_handed_on() -> None:
    rig = Rig(reduce(count=10), functions=REDUCE)
    with pytest.raises(StageFailed) as raised:
        orders(rig, '{"amount":1}', '{"amount":2}', '{"amount":"x"}')
    assert raised.value.offset == 2
    assert rig.outputs() == [b"3"]
    assert rig.position() == 2


def test_what_flush_refuses_makes_dead_letters_of_all_that_was_accumulated() -> None:
    def flush(so_far: dict[str, int]) -> int:
        if so_far["sum"] > 4:
            raise millrace.Invalid("too much")
        return so_far["sum"]

    functions = {**REDUCE, "gather.flush": Function(flush)}
    rig = Rig(reduce(count=2, key="who"), functions=functions, deadLetter={"topic": "dead"})
    orders(rig, '{"who":"a","amount":1}', '{"who":"b","amount":9}', start=0)
    orders(rig, '{"who":"a","amount":1}', '{"who":"b","amount":2}', start=2)
    assert rig.outputs() == [b"1", b"2"]
    assert len(rig.outputs("dead")) == 2
    assert rig.position() == 4


def test_a_failure_that_leaves_half_of_a_message_behind_takes_the_others_with_it() -> None:
    """A flatMap's values are one message: its first can't be taken out again of what it was added to."""
    parts = {"name": "parts", "flatMap": {"function": "a:b"}}
    functions = {**REDUCE, "parts": Function(lambda value: value["parts"])}
    rig = Rig(parts, reduce(count=10), functions=functions, deadLetter={"topic": "dead"})
    orders(rig, '{"parts":[{"amount":1}]}', '{"parts":[{"amount":2},{"bad":1}]}')
    orders(rig, '{"parts":[{"amount":5}]}', start=2)
    rig.pass_time(1.0)
    reasons = [dict(p.headers or ())["millrace-reason"] for p in rig.producer.produced if p.topic == "dead"]
    assert reasons == [b"accumulated with a message that failed: bad order", b"bad order"]
    assert rig.outputs() == [b"5"]
    assert rig.position() == 3


def test_a_failure_in_a_hold_of_one_partition_leaves_the_others_to_be_joined() -> None:
    rig = Rig(reduce(count=3), functions=REDUCE)
    rig.consumer.feed(FakeRecord(0, b'{"amount":1}', 1))
    with pytest.raises(MessageFailure):
        orders(rig, '{"amount":"x"}')
    rig.engine.close()
    assert rig.engine.join(Deadline.after(rig.clock, 5.0))
    assert (rig.position(0), rig.position(1)) == (0, 1)


# before a collect stage


def test_rows_of_what_was_accumulated_are_told_apart_and_late_ones_are_letters_of_all_their_messages() -> (
    None
):
    def total(so_far: dict[str, int], message: millrace.Message) -> dict[str, object]:
        hour = 12 - message.offset  # each hold is an hour before the one before it
        return {"sum": so_far["sum"], "at": f"2026-01-31T{hour:02}:00:00Z"}

    collect = {
        "schema": "sum int, at timestamp",
        "window": {"size": "1h", "time": "at", "lateness": "1h", "late": "DeadLetter"},
        "aggregate": {"total": "sum(sum)"},
        "sink": {"console": {}},
    }
    pipeline = pipeline_of(
        reduce(count=2, key="who"), {"name": "hours", "collect": collect}, deadLetter={"topic": "dead"}
    )
    clock, tracker, outbox = VirtualClock(), OffsetTracker(), Outbox()
    consumer, producer = FakeConsumer(), FakeProducer(random.Random(0))
    outbox.attach(producer)
    functions = Functions({**REDUCE, "gather.flush": Function(total, wants_message=True)})
    chain = build(pipeline, functions, outbox, None, tracker.complete, stage_stats(pipeline), clock)
    engine = Engine(consumer, chain, tracker, clock)
    engine.hold({0: 0})
    bodies = [b'{"who":"%c","amount":%d}' % (n % 2 + 97, n) for n in range(6)]
    consumer.feed(*(FakeRecord(n, body) for n, body in enumerate(bodies)))
    engine.step(0.05)
    rows = [one for one in producer.produced if one.topic == "default.test.hours.channel"]
    origins = [dict(one.headers or ())["millrace-origin"] for one in rows]
    assert origins == [b"0:0:0@fake", b"0:0:1@fake"], "one hold, two keys"
    assert [one.key for one in rows] == [b"a", b"b"]
    assert [one.value for one in producer.produced if one.topic == "dead"] == bodies[2:]
    assert tracker.position(0) == 6


# the batch itself


def several(*offsets: int, end: int) -> Several:
    return Several([FakeRecord(offset) for offset in offsets], end)


def test_a_batch_is_not_cut_within_what_was_made_together() -> None:
    source = [FakeRecord(offset) for offset in range(8)]
    one, two = several(0, 1, 2, end=4), several(4, 6, 7, end=8)
    dead = (DeadLetter(source[3], "s", "no"), DeadLetter(source[5], "s", "no"))
    batch = Batch(0, 0, 8, source, [one, two], ["one", "two"], dead)
    for offset, end, values in ((8, 8, ["one", "two"]), (5, 4, ["one"]), (4, 4, ["one"]), (2, 0, [])):
        part = batch.before(offset)
        assert (part.end, part.values) == (end, values)
        assert [letter.record.offset() for letter in part.dead] == [o for o in (3, 5) if o < end]
        assert len(part.source) == end
