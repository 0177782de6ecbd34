"""Transactions and the fence: what docs/protocol.md builds on."""

from __future__ import annotations

import random

import pytest

from connectivity_world import PATIENCE, World
from millrace.connectivity.ports import (
    DeliveryFailed,
    Fenced,
    OffsetAndMetadata,
    TransactionAborted,
    Unstable,
)
from millrace.errors import ExitCode

pytestmark = pytest.mark.contract


def test_outputs_and_the_offsets_of_two_groups_are_committed_together(world: World) -> None:
    source, output = world.topic(), world.topic()
    claims, mirror = world.fresh("claims"), world.fresh("mirror")
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.produce(output, b"result", partition=0)
    producer.send_offsets(claims, source, {0: OffsetAndMetadata(7, "claim")}, PATIENCE)
    producer.send_offsets(mirror, source, {0: OffsetAndMetadata(7)}, PATIENCE)
    producer.commit(PATIENCE)

    assert world.offsets(claims, source) == {0: OffsetAndMetadata(7, "claim")}
    assert world.offsets(mirror, source) == {0: OffsetAndMetadata(7)}
    assert world.values(output) == ["result"]


def test_several_partitions_are_committed_in_one_transaction(world: World) -> None:
    source, output = world.topic(5), world.topic(3)
    group = world.fresh("claims")
    producer = world.transactional(world.fresh("id"))
    offsets = {p: OffsetAndMetadata(10 + p, f"claim of {p}") for p in range(5)}
    producer.begin()
    for p in range(3):
        producer.produce(output, b"for %d" % p, partition=p)
    producer.send_offsets(group, source, {p: offsets[p] for p in (0, 1, 2)}, PATIENCE)
    producer.send_offsets(group, source, {p: offsets[p] for p in (3, 4)}, PATIENCE)
    producer.commit(PATIENCE)

    assert world.offsets(group, source, 0, 1, 2, 3, 4) == offsets
    assert [world.values(output, p) for p in range(3)] == [["for 0"], ["for 1"], ["for 2"]]


def test_an_aborted_transaction_leaves_nothing_to_see(world: World) -> None:
    source, output, group = world.topic(), world.topic(), world.fresh("claims")
    producer = world.transactional(world.fresh("id"))
    for value, commits in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin()
        producer.produce(output, value, partition=0)
        producer.send_offsets(group, source, {0: OffsetAndMetadata(len(value), value.decode())}, PATIENCE)
        producer.commit(PATIENCE) if commits else producer.abort(PATIENCE)

    assert world.values(output) == ["one", "three"]
    assert world.offsets(group, source) == {0: OffsetAndMetadata(5, "three")}


def test_a_transaction_without_anything_in_it_can_be_committed_and_aborted(world: World) -> None:
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.commit(PATIENCE)
    producer.begin()
    producer.abort(PATIENCE)


def test_nothing_of_an_open_transaction_is_read(world: World) -> None:
    output = world.topic()
    producer = world.transactional(world.fresh("id"))
    world.fill(output, ["before"])
    producer.begin()
    producer.produce(output, b"open", partition=0)
    admin = world.admin()

    def written() -> bool:
        producer.poll()
        return admin.spans(output, [0], PATIENCE, read_committed=False)[0].end == 2

    world.until(written, "the record is in the log")
    world.fill(output, ["after"])

    assert admin.spans(output, [0], PATIENCE)[0].end == 1
    assert world.values(output) == ["before"]
    producer.commit(PATIENCE)
    world.until(lambda: admin.spans(output, [0], PATIENCE)[0].end == 4, "the marker is in the log")
    assert world.values(output) == ["before", "open", "after"]


def test_a_second_init_fences_the_first_producer_at_its_next_commit(world: World) -> None:
    source, group, name = world.topic(), world.fresh("claims"), world.fresh("id")
    first = world.transactional(name)
    first.begin()
    first.send_offsets(group, source, {0: OffsetAndMetadata(1, "first")}, PATIENCE)
    second = world.transactional(name)

    with pytest.raises(Fenced):
        first.commit(PATIENCE)
    for act in (first.begin, first.poll, lambda: first.abort(PATIENCE)):
        with pytest.raises(Fenced):  # for good
            act()
    second.begin()
    second.send_offsets(group, source, {0: OffsetAndMetadata(2, "second")}, PATIENCE)
    second.commit(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(2, "second")}


@pytest.mark.parametrize("ends", ["commit", "flush"])
def test_a_fenced_producer_learns_it_while_its_records_are_delivered(world: World, ends: str) -> None:
    output, name = world.topic(), world.fresh("id")
    first = world.transactional(name)
    first.begin()
    first.produce(output, b"before", partition=0)
    first.flush(PATIENCE)
    world.transactional(name)

    first.produce(output, b"too late", partition=0)
    with pytest.raises(Fenced):
        getattr(first, ends)(PATIENCE)
    with pytest.raises(Fenced):  # for good
        first.poll()
    assert world.values(output) == []


def test_a_fenced_producer_learns_it_when_it_sends_offsets_in_a_new_transaction(world: World) -> None:
    source, group, name = world.topic(), world.fresh("claims"), world.fresh("id")
    first = world.transactional(name)
    first.begin()
    first.send_offsets(group, source, {0: OffsetAndMetadata(1)}, PATIENCE)
    first.commit(PATIENCE)
    world.transactional(name)

    first.begin()
    with pytest.raises(Fenced):
        first.send_offsets(group, source, {0: OffsetAndMetadata(9)}, PATIENCE)
    assert world.offsets(group, source)[0].offset == 1


def test_init_aborts_what_the_former_producer_left_open(world: World) -> None:
    source, output, group, name = world.topic(), world.topic(), world.fresh("claims"), world.fresh("id")
    dead = world.transactional(name)
    dead.begin()
    dead.produce(output, b"never", partition=0)
    dead.send_offsets(group, source, {0: OffsetAndMetadata(5, "never")}, PATIENCE)
    with pytest.raises(Unstable):
        world.admin().group_offsets(group, source, [0], PATIENCE, stable=True)

    world.transactional(name)

    assert world.admin().group_offsets(group, source, [0], PATIENCE, stable=True) == {}
    assert world.values(output) == []


def test_another_transactional_id_takes_over_the_offsets_and_does_not_fence(world: World) -> None:
    """Adoption under a new uid: the new id may write the same offsets; the old one is not stopped by that, only by an
    init of its own id.
    """
    source, group = world.topic(), world.fresh("claims")
    old, new = world.transactional(world.fresh("old")), world.transactional(world.fresh("new"))
    for producer, offset in ((old, 3), (new, 4), (old, 5)):
        producer.begin()
        producer.send_offsets(group, source, {0: OffsetAndMetadata(offset, str(offset))}, PATIENCE)
        producer.commit(PATIENCE)
        assert world.offsets(group, source) == {0: OffsetAndMetadata(offset, str(offset))}


def test_of_two_ids_with_pending_offsets_of_one_partition_the_one_that_sent_last_counts(world: World) -> None:
    """Not the one that committed last: a commit that lands late does not overwrite what was sent after it."""
    source, group = world.topic(), world.fresh("claims")
    a, b = world.transactional(world.fresh("a")), world.transactional(world.fresh("b"))
    a.begin()
    b.begin()
    a.send_offsets(group, source, {0: OffsetAndMetadata(10, "a")}, PATIENCE)
    b.send_offsets(group, source, {0: OffsetAndMetadata(20, "b")}, PATIENCE)
    b.commit(PATIENCE)
    with pytest.raises(Unstable):  # a's is pending still
        world.admin().group_offsets(group, source, [0], PATIENCE, stable=True)
    a.commit(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(20, "b")}


def test_offsets_of_a_topic_that_is_not_there_fail_the_transaction_only(world: World) -> None:
    source, group = world.topic(), world.fresh("claims")
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    with pytest.raises(TransactionAborted):
        producer.send_offsets(group, world.fresh("missing"), {0: OffsetAndMetadata(1)}, PATIENCE)
    with pytest.raises(TransactionAborted):
        producer.commit(PATIENCE)
    producer.abort(PATIENCE)

    producer.begin()
    producer.send_offsets(group, source, {0: OffsetAndMetadata(2)}, PATIENCE)
    producer.commit(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(2)}


def test_a_record_that_can_not_be_delivered_fails_its_transaction_and_not_the_producer(world: World) -> None:
    """On the real broker the next transaction may fail too (a gap in the sequence numbers), the one after that not."""
    output = world.topic(max_message_bytes="1000")
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.produce(output, random.Random(1).randbytes(5000), partition=0)
    with pytest.raises(TransactionAborted) as error:
        producer.commit(PATIENCE)
    reason = error.value.__cause__  # or whoever tries again would do so for ever
    assert isinstance(reason, DeliveryFailed)
    assert reason.code is ExitCode.TOPIC
    assert output in reason.where
    producer.abort(PATIENCE)

    later: list[BaseException | None] = []

    def committed() -> bool:
        producer.begin()
        producer.produce(output, b"small", partition=0)
        try:
            producer.commit(PATIENCE)
        except TransactionAborted as gap:
            later.append(gap.__cause__)
            producer.abort(PATIENCE)
            return False
        return True

    world.until(committed, "a later transaction is committed")
    assert not any(later)
    assert world.values(output) == ["small"]


def test_work_without_a_transaction_is_a_mistake_of_the_caller(world: World) -> None:
    source = world.topic()
    producer = world.transactional(world.fresh("id"))
    with pytest.raises(ValueError, match="no transaction"):
        producer.send_offsets("g", source, {0: OffsetAndMetadata(1)}, PATIENCE)
    with pytest.raises(ValueError, match="no transaction"):
        producer.commit(PATIENCE)
    producer.begin()
    with pytest.raises(ValueError, match="open"):
        producer.begin()
