"""The plain producer."""

from __future__ import annotations

import random

import pytest

from connectivity_world import PATIENCE, World
from millrace.connectivity.memory import partition_of
from millrace.connectivity.ports import BufferFull, DeliveryFailed, RecordTooLarge, Row
from millrace.errors import ExitCode

pytestmark = pytest.mark.contract


def test_a_record_arrives_with_all_its_parts(world: World) -> None:
    topic = world.topic(3)
    producer = world.keep(world.cluster().producer())
    producer.produce(topic, b"value", b"key", [("a", b"1"), ("b", None), ("a", b"2")], 2, 1_234_567)
    producer.produce(topic, None, b"gone", None, 2, 1_234_568)
    producer.produce(topic, b"", None, [], 2, 1_234_569)
    producer.flush(PATIENCE)

    full, tombstone, empty = world.read(world.reader(topic, {2: 0}), {2: 3})
    assert (full.topic(), full.partition(), full.offset()) == (topic, 2, 0)
    assert (full.key(), full.value()) == (b"key", b"value")
    assert full.headers() == [("a", b"1"), ("b", None), ("a", b"2")]
    assert full.timestamp() == (1, 1_234_567)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"gone", None, None)
    assert (empty.key(), empty.value(), empty.headers()) == (None, b"", None)


def test_records_of_a_partition_keep_the_order_of_the_calls(world: World) -> None:
    topic = world.topic()
    values = [str(i) for i in range(2_000)]
    world.fill(topic, values)
    assert world.values(topic) == values


def test_a_key_chooses_the_partition_as_javas_producer_does(world: World) -> None:
    topic, partitions, rng = world.topic(7), 7, random.Random(20130101)
    keys = [b"", b"a", b"N14228"] + [rng.randbytes(rng.randint(1, 40)) for _ in range(300)]
    producer = world.keep(world.cluster().producer())
    for key in keys:
        producer.produce(topic, b"v", key)
    producer.flush(PATIENCE)
    spans = world.admin().spans(topic, range(partitions), PATIENCE)
    records = world.read(
        world.reader(topic, dict.fromkeys(range(partitions), 0)), {p: s.end for p, s in spans.items()}
    )
    assert sorted((r.key(), r.partition()) for r in records) == sorted(
        (key, partition_of(key, partitions)) for key in keys
    )


def test_flush_returns_when_all_is_acknowledged(world: World) -> None:
    topic = world.topic()
    producer = world.keep(world.cluster().producer())
    for _ in range(100):
        producer.produce(topic, b"v", partition=0)
    assert producer.buffered() > 0
    producer.flush(PATIENCE)
    assert producer.buffered() == 0
    assert world.admin().spans(topic, [0], PATIENCE)[0].end == 100


def test_a_full_buffer_takes_nothing_and_goes_on_after_poll(world: World) -> None:
    topic = world.topic()
    producer = world.keep(world.cluster(buffer=10).producer())
    sent = full = 0
    while sent < 200:
        try:
            producer.produce(topic, b"%d" % sent, partition=0)
            sent += 1
        except BufferFull:
            full += 1
            producer.poll()
            world.clock.sleep(0.001)
    producer.flush(PATIENCE)
    assert full > 0
    assert world.values(topic) == [str(i) for i in range(200)]


@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_many_at_once_arrive_as_one_by_one_with_all_their_parts(world: World, kind: str) -> None:
    topic = world.topic(2)
    rows: list[Row] = [
        (topic, b"value", b"key", [("a", b"1"), ("b", None)], 1, 1_234_567),
        (topic, None, b"gone", None, 1, 1_234_568),
        (topic, b"", None, [], 1, 1_234_569),
        *((topic, b"%d" % n, None, None, 0, 0) for n in range(500)),
    ]
    if kind == "plain":
        plain = world.keep(world.cluster().producer())
        assert plain.produce_all(rows, 0) == len(rows)
        plain.flush(PATIENCE)
    else:
        producer = world.transactional(world.fresh("id"))
        producer.begin()
        assert producer.produce_all(rows, 0) == len(rows)
        producer.commit(PATIENCE)

    marker = 0 if kind == "plain" else 1
    full, tombstone, empty = world.read(world.reader(topic, {1: 0}), {1: 3 + marker})
    assert (full.key(), full.value(), full.headers()) == (b"key", b"value", [("a", b"1"), ("b", None)])
    assert full.timestamp() == (1, 1_234_567)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"gone", None, None)
    assert (empty.key(), empty.value(), empty.headers()) == (None, b"", None)
    assert world.values(topic) == [str(n) for n in range(500)]


def test_many_at_once_stop_where_the_buffer_is_full_and_go_on_there(world: World) -> None:
    topic = world.topic()
    producer = world.keep(world.cluster(buffer=10).producer())
    rows: list[Row] = [(topic, b"%d" % n, None, None, 0, 0) for n in range(200)]
    taken = full = 0
    while taken < len(rows):
        try:
            after = producer.produce_all(rows, taken)
            assert after > taken
            taken = after
        except BufferFull:
            full += 1
            producer.poll()
            world.clock.sleep(0.001)
    producer.flush(PATIENCE)
    assert full > 0
    assert world.values(topic) == [str(n) for n in range(200)]


def test_many_at_once_stop_before_one_that_is_too_large(world: World) -> None:
    topic = world.topic()
    producer = world.keep(world.cluster().producer())
    rows: list[Row] = [(topic, value, None, None, 0, 0) for value in (b"1", b"2", b"x" * 2_000_000, b"3")]
    assert producer.produce_all(rows, 0) == 2
    with pytest.raises(RecordTooLarge):
        producer.produce_all(rows, 2)
    assert producer.produce_all(rows, 3) == 4
    producer.flush(PATIENCE)
    assert world.values(topic) == ["1", "2", "3"]


def test_a_record_larger_than_the_client_takes_is_refused_at_once(world: World) -> None:
    topic = world.topic()
    producer = world.keep(world.cluster().producer())
    with pytest.raises(RecordTooLarge, match="larg"):
        producer.produce(topic, bytes(2_000_000), partition=0)
    producer.produce(topic, b"small", partition=0)
    producer.flush(PATIENCE)
    assert world.values(topic) == ["small"]


def test_a_record_larger_than_the_topic_takes_is_not_delivered(world: World) -> None:
    topic = world.topic(max_message_bytes="1000")
    producer = world.keep(world.cluster().producer())
    producer.produce(topic, random.Random(2).randbytes(5_000), partition=0)
    with pytest.raises(DeliveryFailed) as error:
        producer.flush(PATIENCE)
    assert topic in error.value.where
    assert "max.message.bytes" in error.value.remedy


def test_records_for_a_missing_topic_are_not_delivered(world: World) -> None:
    producer = world.keep(world.cluster().producer())
    producer.produce(world.fresh("missing"), b"v")
    with pytest.raises(DeliveryFailed) as error:
        producer.flush(60)
    assert error.value.code is ExitCode.TOPIC


def test_closing_twice_is_once(world: World) -> None:
    producer = world.cluster().producer()
    producer.produce(world.topic(), b"given up")
    producer.close()
    producer.close()
    assert producer.buffered() == 0
