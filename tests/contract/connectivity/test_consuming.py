"""The consumer of assigned partitions."""

from __future__ import annotations

import pytest

from connectivity_world import PATIENCE, World
from millrace.connectivity.ports import KafkaError, OffsetOutOfRange, TopicMissing
from millrace.errors import ExitCode

pytestmark = pytest.mark.contract


def test_it_begins_where_it_is_told_and_says_where_it_waits(world: World) -> None:
    topic = world.topic(3)
    world.fill(topic, ["a", "b", "c"], partition=0)
    world.fill(topic, ["d"], partition=1)
    records = world.read(world.reader(topic, {0: 1, 1: 0, 2: 0}), {0: 3, 1: 1, 2: 0})
    assert sorted((r.partition(), r.offset(), r.value()) for r in records) == [
        (0, 1, b"b"), (0, 2, b"c"), (1, 0, b"d")
    ]  # fmt: skip


def test_it_never_takes_more_than_asked_and_keeps_the_order(world: World) -> None:
    topic = world.topic(2)
    for p in (0, 1):
        world.fill(topic, [str(i) for i in range(250)], partition=p)
    consumer = world.reader(topic, {0: 0, 1: 0})
    taken: dict[int, list[int]] = {0: [], 1: []}

    def fetched() -> bool:
        records = consumer.fetch(7, 0.05)
        assert len(records) <= 7
        for record in records:
            taken[record.partition()].append(record.offset())
        return sum(map(len, taken.values())) >= 500

    world.until(fetched, "all records")
    assert taken == {0: list(range(250)), 1: list(range(250))}


def test_an_empty_fetch_returns_after_its_timeout(world: World) -> None:
    consumer = world.reader(world.topic(), {0: 0})
    world.read(consumer, {0: 0})
    before = world.clock.monotonic()
    assert list(consumer.fetch(500, 0.05)) == []
    assert list(consumer.fetch(500, 0.0)) == []
    assert world.clock.monotonic() - before < 1.0


def test_the_end_is_told_once_and_again_when_it_has_moved(world: World) -> None:
    topic = world.topic()
    world.fill(topic, ["a"])
    consumer = world.reader(topic, {0: 0})
    world.read(consumer, {0: 1})
    assert consumer.ends() == {}
    world.fill(topic, ["b"])
    assert [r.value() for r in world.read(consumer, {0: 2})] == [b"b"]


def test_aborted_records_are_passed_over_and_the_end_is_past_all_markers(world: World) -> None:
    topic = world.topic()
    producer, admin = world.transactional(world.fresh("id")), world.admin()
    length = 0

    def written() -> bool:
        producer.poll()
        return admin.spans(topic, [0], PATIENCE, read_committed=False)[0].end == length

    for value, commits in ((b"one", True), (b"two", False), (b"three", True), (b"four", False)):
        producer.begin()
        producer.produce(topic, value, partition=0)
        length += 1
        world.until(written, "the record is in the log, so that there is something to abort")
        producer.commit(PATIENCE) if commits else producer.abort(PATIENCE)
        length += 1
        world.until(written, "the marker is in the log")
    records = world.read(world.reader(topic, {0: 0}), {0: 8})
    assert [(r.offset(), r.value()) for r in records] == [(0, b"one"), (4, b"three")]
    assert world.read(world.reader(topic, {0: 5}), {0: 8}) == []


def test_after_unassign_nothing_comes_of_a_partition_but_perhaps_in_the_next_fetch(world: World) -> None:
    topic = world.topic(2)
    for p in (0, 1):
        world.fill(topic, [str(i) for i in range(100)], partition=p)
    consumer = world.reader(topic, {0: 0, 1: 0})
    world.until(lambda: len(consumer.fetch(10, 0.05)) > 0, "a first batch")
    consumer.unassign([0])
    consumer.fetch(10, 0.05)
    rest = world.read(consumer, {1: 100})
    assert {r.partition() for r in rest} == {1}

    consumer.assign({0: 42})
    records = world.read(consumer, {0: 100})
    assert [r.offset() for r in records] == list(range(42, 100))


def test_unassigning_what_is_not_assigned_is_no_error(world: World) -> None:
    consumer = world.reader(world.topic(2), {0: 0})
    consumer.unassign([1])
    consumer.unassign([0])
    consumer.unassign([0])
    assert list(consumer.fetch(1, 0.05)) == []


@pytest.mark.parametrize("position", [0, 77])
def test_a_position_outside_the_log_is_an_error_and_never_reset(world: World, position: int) -> None:
    """Position 0: retention has overtaken it. 77: the log is shorter."""
    topic = world.topic()
    world.fill(topic, ["a", "b", "c"])
    world.admin().delete_records(topic, {0: 2}, PATIENCE)
    consumer = world.reader(topic, {0: position})

    def fetch() -> bool:
        assert list(consumer.fetch(500, 0.05)) == []
        return False

    with pytest.raises(OffsetOutOfRange) as error:
        world.until(fetch, "the error")
    assert (error.value.topic, error.value.partition, error.value.offset) == (topic, 0, position)
    assert error.value.code is ExitCode.OFFSET_GONE


def test_an_error_of_one_partition_loses_no_record_of_another(world: World) -> None:
    topic = world.topic(2)
    world.fill(topic, [str(i) for i in range(300)], partition=0)
    consumer = world.reader(topic, {0: 0, 1: 99})
    taken: list[int] = []
    errors: list[KafkaError] = []

    def fetched() -> bool:
        try:
            taken.extend(r.offset() for r in consumer.fetch(50, 0.05))
        except OffsetOutOfRange as error:
            errors.append(error)
            consumer.unassign([1])
        return len(taken) >= 300 and bool(errors)

    world.until(fetched, "all of partition 0, and the error of 1")
    assert taken == list(range(300))


def test_retention_that_overtakes_a_reader_is_noticed(world: World) -> None:
    topic = world.topic()
    world.fill(topic, ["a", "b"])
    consumer = world.reader(topic, {0: 0})
    world.read(consumer, {0: 2})
    consumer.unassign([0])
    world.fill(topic, ["c", "d"])
    world.admin().delete_records(topic, {0: 4}, PATIENCE)
    consumer.assign({0: 2})
    with pytest.raises(OffsetOutOfRange):
        world.until(lambda: bool(consumer.fetch(10, 0.05)), "the error")


def test_partitions_that_were_added_can_be_read(world: World) -> None:
    topic = world.topic()
    consumer = world.reader(topic, {0: 0})
    world.read(consumer, {0: 0})
    world.admin().create_partitions(topic, 3, PATIENCE)
    world.fill(topic, ["new"], partition=2)
    consumer.assign({2: 0})
    assert [r.value() for r in world.read(consumer, {2: 1})] == [b"new"]


def test_a_topic_that_was_deleted_is_noticed(world: World) -> None:
    topic = world.topic()
    world.fill(topic, ["a"])
    consumer = world.reader(topic, {0: 0})
    world.read(consumer, {0: 1})
    world.admin().delete_topic(topic, PATIENCE)
    with pytest.raises(TopicMissing) as error:
        world.until(lambda: bool(consumer.fetch(10, 0.05)), "the error", patience=40)
    assert error.value.code is ExitCode.TOPIC


def test_a_topic_that_was_made_anew_is_noticed_by_a_position_that_its_log_does_not_have(world: World) -> None:
    """A reader can only notice what its position tells it. If the new log has grown past the position before the next
    fetch, nothing is wrong as far as the reader knows: that is why claims carry the topic's id (docs/protocol.md).
    """
    topic = world.topic()
    world.fill(topic, ["a", "b", "c"])
    consumer = world.reader(topic, {0: 0})
    world.read(consumer, {0: 3})
    admin = world.admin()
    admin.delete_topic(topic, PATIENCE)
    admin.create_topic(topic, 1, PATIENCE)
    with pytest.raises((OffsetOutOfRange, TopicMissing)):
        world.until(lambda: bool(consumer.fetch(10, 0.05)), "the error", patience=40)


def test_closing_twice_is_once(world: World) -> None:
    consumer = world.reader(world.topic(), {0: 0})
    consumer.close()
    consumer.close()
