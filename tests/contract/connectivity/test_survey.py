"""Reading much at once: each topic and each group has its own answer, or its own error."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connectivity_world import PATIENCE, World
from millrace.connectivity.ports import OffsetAndMetadata, TopicDescription, TopicMissing
from millrace.connectivity.survey import At, Progress, Spots, Survey

pytestmark = pytest.mark.contract


def survey(world: World) -> Survey:
    return world.keep(world.cluster().survey())


def commit(world: World, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata]) -> None:
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.send_offsets(group, topic, offsets, PATIENCE)
    producer.commit(PATIENCE)
    assert world.offsets(group, topic, *offsets) == offsets  # the marker may take its time


def test_topics_are_described_together_and_one_that_is_not_there_is_none(world: World) -> None:
    one, other, no = world.topic(3), world.topic(1), world.fresh("no")
    admin = world.admin()
    assert survey(world).topics([one, no, other], PATIENCE) == {
        one: admin.describe_topic(one, PATIENCE),
        no: None,
        other: admin.describe_topic(other, PATIENCE),
    }
    found = survey(world).topics([one], PATIENCE)[one]
    assert isinstance(found, TopicDescription)
    assert found.partitions == 3


def test_offsets_of_many_topics_are_those_that_are_found_one_by_one(world: World) -> None:
    one, other, no = world.topic(2), world.topic(1), world.fresh("no")
    world.fill(one, ["a", "b", "c"], timestamps=[1_000, 2_000, 3_000])
    world.fill(other, ["a"])
    ats: list[At] = ["beginning", "end", "stable end", 2_000, 9_000]
    asked = [Spots(topic, partitions, at) for topic, partitions in ((one, 2), (other, 1)) for at in ats[:3]]
    asked += [Spots(one, 2, at) for at in ats[3:]]
    found = survey(world).offsets([*asked, Spots(no, 1, "end"), Spots(other, 2, "end")], PATIENCE)
    assert {spots: found[spots] for spots in asked} == {
        Spots(one, 2, "beginning"): {0: 0, 1: 0},
        Spots(one, 2, "end"): {0: 3, 1: 0},
        Spots(one, 2, "stable end"): {0: 3, 1: 0},
        Spots(one, 2, 2_000): {0: 1, 1: 0},
        Spots(one, 2, 9_000): {0: 3, 1: 0},
        Spots(other, 1, "beginning"): {0: 0},
        Spots(other, 1, "end"): {0: 1},
        Spots(other, 1, "stable end"): {0: 1},
    }
    assert isinstance(found[Spots(no, 1, "end")], TopicMissing)
    assert isinstance(found[Spots(other, 2, "end")], TopicMissing)


def test_the_stable_end_is_before_a_transaction_that_is_open_and_the_end_behind_it(world: World) -> None:
    topic = world.topic()
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.produce(topic, b"x", partition=0)
    producer.flush(PATIENCE)
    stable, end = Spots(topic, 1, "stable end"), Spots(topic, 1, "end")
    assert survey(world).offsets([stable, end], PATIENCE) == {stable: {0: 0}, end: {0: 1}}
    producer.abort(PATIENCE)


def test_offsets_of_many_groups_come_together_each_with_its_own(world: World) -> None:
    topic, other = world.topic(3), world.topic(1)
    groups = [world.fresh("g") for _ in range(5)]
    for at, group in enumerate(groups):
        offsets = {0: OffsetAndMetadata(at, f"é {at}"), 2: OffsetAndMetadata(at + 7)}
        commit(world, group, topic, offsets)
    commit(world, groups[0], other, {0: OffsetAndMetadata(99)})
    nobody = Progress(world.fresh("nobody"), topic, 3)
    asked = [Progress(group, topic, 3) for group in groups]

    found = survey(world).committed([*asked, nobody, Progress(groups[0], other, 1)], PATIENCE)

    for at, one in enumerate(asked):
        assert found[one] == {0: OffsetAndMetadata(at, f"é {at}"), 2: OffsetAndMetadata(at + 7)}
    assert found[nobody] == {}
    assert found[Progress(groups[0], other, 1)] == {0: OffsetAndMetadata(99)}


def test_what_is_committed_is_read_although_a_transaction_is_pending(world: World) -> None:
    topic, group = world.topic(), world.fresh("g")
    commit(world, group, topic, {0: OffsetAndMetadata(1)})
    producer = world.transactional(world.fresh("id"))
    producer.begin()
    producer.send_offsets(group, topic, {0: OffsetAndMetadata(2)}, PATIENCE)
    one, reader = Progress(group, topic, 1), survey(world)
    assert reader.committed([one], PATIENCE) == {one: {0: OffsetAndMetadata(1)}}
    producer.commit(PATIENCE)
    world.until(lambda: reader.committed([one], PATIENCE) == {one: {0: OffsetAndMetadata(2)}}, "it is ended")


def test_members_are_those_who_are_subscribed(world: World) -> None:
    topic, group, empty, reader = world.topic(), world.fresh("g"), world.fresh("g"), survey(world)
    commit(world, empty, topic, {0: OffsetAndMetadata(1)})
    world.fill(topic, ["a"])
    stray = world.stray(group, topic)
    found = reader.members([group, empty, world.fresh("nobody")], PATIENCE)
    assert [list(clients) for clients in found.values() if not isinstance(clients, Exception)] == [
        ["stray"],
        [],
        [],
    ]
    stray.close()
    world.until(lambda: not reader.members([group], PATIENCE)[group], "the stray has left")


def test_nothing_asked_is_nothing_answered(world: World) -> None:
    reader = survey(world)
    assert not reader.topics([], PATIENCE)
    assert not reader.offsets([], PATIENCE)
    assert not reader.committed([], PATIENCE)
    assert not reader.members([], PATIENCE)
