"""Topics and questions about them."""

from __future__ import annotations

import pytest

from connectivity_world import PATIENCE, World
from millrace.connectivity.ports import KafkaError, OffsetOutOfRange, Span, TopicExists, TopicMissing
from millrace.errors import ExitCode

pytestmark = pytest.mark.contract


def test_a_topic_is_described_as_soon_as_it_was_made(world: World) -> None:
    admin, name = world.admin(), world.fresh("t")
    assert admin.describe_topic(name, PATIENCE) is None
    admin.create_topic(name, 5, PATIENCE, {"retention.ms": "-1"})
    described = admin.describe_topic(name, PATIENCE)
    assert described is not None
    assert (described.name, described.partitions) == (name, 5)
    assert described.id


def test_a_topic_can_not_be_made_twice(world: World) -> None:
    name = world.topic()
    with pytest.raises(TopicExists) as error:
        world.admin().create_topic(name, 1, PATIENCE)
    assert error.value.code is ExitCode.TOPIC


def test_a_topic_grows_and_does_not_shrink(world: World) -> None:
    admin, name = world.admin(), world.topic(2)
    before = admin.describe_topic(name, PATIENCE)
    admin.create_partitions(name, 4, PATIENCE)
    after = admin.describe_topic(name, PATIENCE)
    assert before is not None
    assert after is not None
    assert (after.partitions, after.id) == (4, before.id)
    with pytest.raises(KafkaError) as error:
        admin.create_partitions(name, 3, PATIENCE)
    assert error.value.code is ExitCode.TOPIC


def test_a_topic_made_anew_has_another_id(world: World) -> None:
    admin, name = world.admin(), world.topic()
    first = admin.describe_topic(name, PATIENCE)
    admin.delete_topic(name, PATIENCE)
    assert admin.describe_topic(name, PATIENCE) is None
    admin.create_topic(name, 1, PATIENCE)
    second = admin.describe_topic(name, PATIENCE)
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_what_is_asked_of_a_missing_topic_is_refused(world: World) -> None:
    admin, name = world.admin(), world.fresh("missing")
    for ask in (
        lambda: admin.delete_topic(name, PATIENCE),
        lambda: admin.create_partitions(name, 3, PATIENCE),
        lambda: admin.spans(name, [0], PATIENCE),
        lambda: admin.offsets_at(name, [0], 0, PATIENCE),
        lambda: admin.delete_records(name, {0: 0}, PATIENCE),
    ):
        with pytest.raises(TopicMissing) as error:
            ask()
        assert error.value.code is ExitCode.TOPIC


def test_a_span_is_that_of_the_log(world: World) -> None:
    admin, name = world.admin(), world.topic(2)
    world.fill(name, ["a", "b", "c"], partition=1)
    assert admin.spans(name, [0, 1], PATIENCE) == {0: Span(0, 0), 1: Span(0, 3)}
    admin.delete_records(name, {1: 2}, PATIENCE)
    assert admin.spans(name, [1], PATIENCE) == {1: Span(2, 3)}


def test_records_beyond_the_end_can_not_be_deleted(world: World) -> None:
    name = world.topic()
    world.fill(name, ["a"])
    with pytest.raises(OffsetOutOfRange) as error:
        world.admin().delete_records(name, {0: 2}, PATIENCE)
    assert (error.value.topic, error.value.partition, error.value.offset) == (name, 0, 2)


def test_offsets_are_found_by_time(world: World) -> None:
    admin, name = world.admin(), world.topic(2)
    world.fill(name, ["a", "b", "c"], timestamps=[1_000, 2_000, 3_000])

    def at(milliseconds: int) -> dict[int, int]:
        return dict(admin.offsets_at(name, [0, 1], milliseconds, PATIENCE))

    assert at(0) == {0: 0, 1: 0}
    assert at(2_000) == {0: 1, 1: 0}
    assert at(2_001) == {0: 2, 1: 0}
    assert at(3_001) == {0: 3, 1: 0}  # none: the end
