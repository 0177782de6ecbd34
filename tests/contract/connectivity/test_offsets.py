"""Committed offsets of groups without members: reads, metadata, strays."""

from __future__ import annotations

import pytest

from connectivity_world import PATIENCE, Refused, World
from millrace.connectivity.ports import OffsetAndMetadata, TransactionAborted, TransactionalProducer, Unstable

pytestmark = pytest.mark.contract


def commit(
    producer: TransactionalProducer, group: str, topic: str, offset: int, metadata: str | None = None
) -> None:
    producer.begin()
    producer.send_offsets(group, topic, {0: OffsetAndMetadata(offset, metadata)}, PATIENCE)
    producer.commit(PATIENCE)


def test_a_partition_without_a_commit_is_absent(world: World) -> None:
    topic, group = world.topic(3), world.fresh("g")
    commit(world.transactional(world.fresh("id")), group, topic, 4)
    assert world.offsets(group, topic, 0, 1, 2) == {0: OffsetAndMetadata(4)}
    assert world.offsets(world.fresh("nobody"), topic, 0) == {}


def test_a_stable_read_is_unstable_while_a_transaction_is_pending_and_a_plain_one_is_not(
    world: World,
) -> None:
    topic, group = world.topic(2), world.fresh("g")
    producer = world.transactional(world.fresh("id"))
    commit(producer, group, topic, 1, "old")
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1, "old")}
    producer.begin()
    producer.send_offsets(group, topic, {0: OffsetAndMetadata(2, "new")}, PATIENCE)
    admin = world.admin()

    with pytest.raises(Unstable):
        admin.group_offsets(group, topic, [0, 1], PATIENCE, stable=True)
    assert admin.group_offsets(group, topic, [1], PATIENCE, stable=True) == {}  # only the partition concerned
    assert admin.group_offsets(group, topic, [0], PATIENCE, stable=False) == {0: OffsetAndMetadata(1, "old")}
    producer.commit(PATIENCE)
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(2, "new")}


@pytest.mark.parametrize(
    "metadata",
    ['{"v":1,"uid":"a-b","holder":-1}', "grüße ✓", " spaces ", '"quoted"\\', "x" * 4095, "é" * 2047],
)
def test_metadata_comes_back_as_it_was_written(world: World, metadata: str) -> None:
    topic, group = world.topic(), world.fresh("g")
    commit(world.transactional(world.fresh("id")), group, topic, 1, metadata)
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1, metadata)}


@pytest.mark.parametrize("metadata", [None, ""])
def test_no_metadata_and_empty_metadata_are_the_same(world: World, metadata: str | None) -> None:
    topic, group = world.topic(), world.fresh("g")
    commit(world.transactional(world.fresh("id")), group, topic, 1, metadata)
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1, None)}


def test_metadata_with_a_nul_is_refused_before_it_is_sent(world: World) -> None:
    """librdkafka's strings end there. (A NUL that another client wrote at the end is stripped when it is read.)"""
    topic, group = world.topic(), world.fresh("g")
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    for metadata in ("ends with one\0", "has\0one"):
        with pytest.raises(ValueError, match="null"):
            producer.send_offsets(group, topic, {0: OffsetAndMetadata(1, metadata)}, PATIENCE)


def test_metadata_of_more_than_4095_bytes_fails_the_transaction(world: World) -> None:
    """The broker's limit is 4096; librdkafka counts, and sends, the NUL at its end."""
    topic, group = world.topic(), world.fresh("g")
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    with pytest.raises(TransactionAborted):
        producer.send_offsets(group, topic, {0: OffsetAndMetadata(1, "x" * 4096)}, PATIENCE)
    producer.abort(PATIENCE)
    commit(producer, group, topic, 2, "short")
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(2, "short")}


def test_a_simple_group_takes_plain_commits_and_they_may_go_backward(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    world.commit_plainly(group, topic, {0: 9})
    world.commit_plainly(group, topic, {0: 3})
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(3)}


def test_with_a_stray_member_a_simple_group_takes_transactional_commits_and_no_plain_ones(
    world: World,
) -> None:
    topic, group = world.topic(), world.fresh("g")
    world.fill(topic, ["a", "b"])
    producer = world.transactional(world.fresh("id"))
    stray = world.stray(group, topic)

    with pytest.raises(Refused):
        world.commit_plainly(group, topic, {0: 1})
    commit(producer, group, topic, 1, "claim")
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1, "claim")}
    stray.close()


def test_a_stray_member_overwrites_offset_and_metadata_as_it_closes(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    world.fill(topic, ["a", "b", "c"])
    stray = world.stray(group, topic)
    commit(world.transactional(world.fresh("id")), group, topic, 1, "claim")
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1, "claim")}

    stray.close()

    world.until(lambda: world.offsets(group, topic) == {0: OffsetAndMetadata(3)}, "the stray has committed")


def test_members_of_a_group_are_its_subscribers_only(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    consumer = world.keep(world.cluster("assigned").consumer(topic, group=group))
    consumer.assign({0: 0})
    consumer.fetch(1, 0.05)
    admin = world.admin()
    assert list(admin.group_members(group, PATIENCE)) == []
    stray = world.stray(group, topic)
    assert list(admin.group_members(group, PATIENCE)) == ["stray"]
    stray.close()
    world.until(lambda: not admin.group_members(group, PATIENCE), "the stray has left")


def test_a_deleted_group_has_no_offsets_and_deleting_none_is_no_error(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    commit(world.transactional(world.fresh("id")), group, topic, 1)
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1)}
    admin = world.admin()
    admin.delete_group(group, PATIENCE)
    admin.delete_group(group, PATIENCE)
    assert world.offsets(group, topic) == {}


def test_a_deleted_topic_takes_its_committed_offsets_along(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    commit(world.transactional(world.fresh("id")), group, topic, 1)
    assert world.offsets(group, topic) == {0: OffsetAndMetadata(1)}
    admin = world.admin()
    admin.delete_topic(topic, PATIENCE)
    admin.create_topic(topic, 1, PATIENCE)
    world.until(lambda: not world.offsets(group, topic), "the offsets are gone")


def test_offsets_are_committed_outside_a_transaction_too(world: World) -> None:
    topic, group, admin = world.topic(2), world.fresh("g"), world.admin()
    admin.commit_offsets(group, topic, {0: OffsetAndMetadata(3), 1: OffsetAndMetadata(5, "why")}, PATIENCE)
    admin.commit_offsets(
        group, topic, {0: OffsetAndMetadata(2)}, PATIENCE
    )  # nothing says that they only grow
    admin.commit_offsets(group, topic, {}, PATIENCE)
    assert world.offsets(group, topic, 0, 1) == {0: OffsetAndMetadata(2), 1: OffsetAndMetadata(5, "why")}
