"""produce: key, headers and partition of an output, by fields and functions of the value."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import millrace
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord, Produced
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.clock import VirtualClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.errors import StageFailed
from millrace.strategies import Function

pytestmark = pytest.mark.unit

HEADS = (("trace", b"1"), ("kind", b"old"), ("trace", b"2"))


def produced(
    *bodies: bytes,
    calls: dict[str, Callable[..., object]] | None = None,
    delivery: str = "ExactlyOnce",
    spec: dict[str, object] | None = None,
    **options: object,
) -> list[Produced]:
    """What a chain of one produce stage with these options writes."""
    functions = {}
    for name, call in (calls or {}).items():
        functions[f"out.{name}"] = Function(call, wants_message=call.__code__.co_argcount == 2)
    pipeline = pipeline_of(
        {"name": "out", "produce": {"topic": "out", **options}},
        delivery=delivery,
        **({"deadLetter": {"topic": "dead"}} if spec is None else spec),
    )
    clock, tracker, outbox, consumer = VirtualClock(), OffsetTracker(), Outbox(), FakeConsumer()
    producer = FakeProducer(random.Random(1), fullness=0.3)
    outbox.attach(producer)
    stats = stage_stats(pipeline)
    chain = build(pipeline, Functions(functions), outbox, producer, tracker.complete, stats, clock)
    engine = Engine(consumer, chain, tracker, clock)
    engine.hold({0: 0})
    consumer.feed(*(FakeRecord(n, body, 0, b"source", HEADS) for n, body in enumerate(bodies)))
    for _ in range(50):
        engine.step(0.05)
    assert tracker.position(0) == len(bodies)
    return producer.produced


def headers(one: Produced) -> list[tuple[str, bytes | None]]:
    """All but those that say where a record comes from."""
    return [header for header in one.headers or () if not header[0].startswith("millrace-")]


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "ExactlyOnce"])
def test_a_key_may_be_a_field_of_a_field(delivery: str) -> None:
    bodies = [b'{"order":{"who":"a"}}', b'{"order":{"who":7}}', b'{"order":{"who":null}}']
    written = produced(*bodies, delivery=delivery, key="order.who")
    assert [one.key for one in written] == [b"a", b"7", None]
    assert [one.value for one in written] == bodies
    assert all(headers(one) == list(HEADS) and one.partition == -1 for one in written)


def test_a_key_may_be_what_a_function_makes_of_value_and_message() -> None:
    def key(value: dict[str, int], message: millrace.Message) -> list[object]:
        return [value["n"], (message.key or b"").decode()]

    (one,) = produced(b'{"n":1}', calls={"key": key}, key="a:key")
    assert one.key == b'[1,"source"]'


def test_headers_are_added_and_replace_those_of_the_same_name_and_none_leaves_one_out() -> None:
    declared = [
        {"name": "kind", "from": "a:kind"},
        {"name": "size", "from": "count"},
        {"name": "trace", "from": "id"},
    ]
    calls = {"headers[0].from": lambda value: b"new"}
    (one,) = produced(b'{"count":3,"id":null}', calls=calls, headers=declared)
    assert headers(one) == [("kind", b"new"), ("size", b"3")]
    assert one.key == b"source"


def test_a_partitioner_says_the_number_of_the_partition() -> None:
    calls = {"partitioner": lambda value: millrace.partition_of(value["k"].encode(), 12)}
    (one,) = produced(b'{"k":"abc"}', calls=calls, partitioner="a:b")
    assert one.partition == millrace.partition_of(b"abc", 12)
    assert [one.partition for one in produced(b'{"p":0}', b'{"p":5}', partitioner="p")] == [0, 5]


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        (b'{"p":-1}', {"partitioner": "p"}, b"the partitioner gave -1, not the number of a partition"),
        (b'{"p":true}', {"partitioner": "p"}, b"the partitioner gave True, not the number of a partition"),
        (b'{"p":1}', {"key": "q"}, b"there is no field q"),
        (b'{"p":1}', {"headers": [{"name": "x", "from": "p.q"}]},
         b"there is no field p.q: the value is a int, not a mapping"),
    ],
)  # fmt: skip
def test_what_can_not_be_addressed_is_a_dead_letter(
    body: bytes, options: dict[str, object], reason: bytes
) -> None:
    (one,) = produced(body, **options)  # type: ignore[arg-type]
    assert (one.topic, one.value, one.key) == ("dead", body, b"source")
    assert dict(one.headers or ())["millrace-reason"] == reason


def test_a_function_that_raises_follows_on_error() -> None:
    calls: dict[str, Callable[..., object]] = {"key": lambda value: 1 // value["n"]}
    with pytest.raises(StageFailed) as raised:
        produced(b'{"n":1}', b'{"n":0}', calls=calls, key="a:b")
    assert (raised.value.stage, raised.value.offset) == ("out", 1)
    written = produced(b'{"n":1}', b'{"n":0}', calls=calls, key="a:b", onError="DeadLetter")
    assert [one.topic for one in written] == ["out", "dead"]


def test_key_and_headers_count_for_the_size() -> None:
    (one,) = produced(b'{"k":"%s"}' % (b"x" * 600_000), key="k")
    assert one.topic == "dead"
    assert dict(one.headers or ())["millrace-reason"].startswith(b"too large to produce")  # type: ignore[union-attr]


def test_a_collect_stage_after_it_gets_the_value_and_the_sources_key() -> None:
    collect = {
        "schema": "who string, at timestamp",
        "window": {"size": "1h", "time": "at", "lateness": "0s"},
        "aggregate": {"rows": "count(*)"},
        "sink": {"console": {}},
    }
    pipeline = pipeline_of(
        {"name": "out", "produce": {"topic": "out", "key": "who"}},
        {"name": "by-hour", "collect": collect},
        delivery="ExactlyOnce",
    )
    clock, tracker, outbox, consumer = VirtualClock(), OffsetTracker(), Outbox(), FakeConsumer()
    producer = FakeProducer(random.Random(1))
    outbox.attach(producer)
    chain = build(pipeline, Functions({}), outbox, None, tracker.complete, stage_stats(pipeline), clock)
    engine = Engine(consumer, chain, tracker, clock)
    engine.hold({0: 0})
    consumer.feed(FakeRecord(0, b'{"who":"a","at":"2026-01-31T00:00:00Z"}', 0, b"source"))
    engine.step(0.05)
    assert {one.topic: one.key for one in producer.produced} == {
        "out": b"a",
        "default.test.by-hour.channel": b"source",
    }
