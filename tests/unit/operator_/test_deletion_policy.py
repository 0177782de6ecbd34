"""Topics are made only once it is written down whose they are; Retain leaves all, Delete leaves nothing of ours."""

from __future__ import annotations

import copy

import pytest

from millrace.ownership.claim import OP
from millrace_operator.outcome import Cleanup
from operator_world import World

pytestmark = pytest.mark.unit

SCORED = [
    {"name": "scored", "map": {"function": "flights:score"}},
    {"name": "out", "produce": {"topic": "flights.scored", "create": {"partitions": 3}}},
]


def running(**spec: object) -> World:
    """The source is there already, the output is not."""
    world = World(stages=copy.deepcopy(SCORED), **spec)
    world.settle()
    world.writes.clear()
    return world


def ended(world: World, seconds: int = 300) -> World:
    world.delete()
    for _ in range(seconds):
        if world.pipeline is None:
            return world
        world.reconcile()
        world.kubelet()
        world.clock.advance(1.0)
    raise AssertionError(f"it never ended: {world.writes[-12:]}")


def topics(world: World) -> set[str]:
    return {name for name in ("flights", "flights.scored") if world.broker.find_topic(name) is not None}


def groups(world: World) -> set[str]:
    admin = world.broker.cluster(client_id="t").admin()
    names = ("air.flights", "air.flights.claims")
    return {name for name in names if admin.group_offsets(name, "flights", range(6), 1, stable=False)}


def test_the_status_has_the_topics_that_were_made_and_no_other() -> None:
    world = running()

    assert world.pipeline is not None
    [made] = world.pipeline["status"]["topics"]
    found = world.broker.find_topic("flights.scored")
    assert found is not None
    assert made == {"name": "flights.scored", "id": found.id}


@pytest.mark.parametrize("parts", range(14))
def test_no_topic_is_ever_made_that_is_not_written_down(parts: int) -> None:
    world = World(stages=copy.deepcopy(SCORED))
    for _ in range(3):  # crashes after so many parts of a reconcile
        world.reconcile(parts=parts)
        assert world.pipeline is not None
        told = {topic["name"] for topic in world.pipeline["status"].get("topics", ())}
        assert topics(world) - {"flights"} <= told
        world.restart_operator()
    world.settle()

    assert topics(world) == {"flights", "flights.scored"}


def test_a_topic_that_somebody_else_is_to_make_keeps_all_others_from_being_made() -> None:
    world = World(stages=copy.deepcopy(SCORED), deadLetter={"topic": "dead"})
    world.settle()

    assert world.condition("SourceReady") == ("False", "TopicMissing")
    assert topics(world) == {"flights"}


def test_retain_leaves_all_and_the_next_goes_on() -> None:
    world = ended(running())

    assert topics(world) == {"flights", "flights.scored"}
    assert groups(world) == {"air.flights", "air.flights.claims"}


def test_delete_leaves_the_topics_of_others_and_nothing_else() -> None:
    world = ended(running(deletionPolicy="Delete"))

    assert topics(world) == {"flights"}
    assert groups(world) == set()
    assert not world.pods
    assert ("Warning", "DrainAbandoned") not in world.events


def test_the_policy_may_be_changed_later_and_rolls_nobody() -> None:
    world = running()
    world.change(deletionPolicy="Delete")
    world.settle()
    assert not [write for write in world.writes if write.startswith("apply")]

    assert topics(ended(world)) == {"flights"}


def test_a_topic_that_was_made_anew_by_somebody_else_stays() -> None:
    world = running(deletionPolicy="Delete")
    world.broker.delete_topic("flights.scored")
    world.broker.create_topic("flights.scored", 3)
    ended(world)

    assert topics(world) == {"flights", "flights.scored"}


@pytest.mark.parametrize("crash", range(1, 9))
def test_a_crash_in_the_midst_leaves_nothing_behind(crash: int) -> None:
    world = running(deletionPolicy="Delete")
    world.delete()
    for at in range(200):
        if world.pipeline is None:
            break
        world.reconcile(parts=at % (crash + 1))
        world.kubelet()
        world.clock.advance(0.2)
        if at % 3 == 0:
            world.restart_operator()

    assert world.pipeline is None
    assert topics(world) == {"flights"}
    assert groups(world) == set()


def test_the_claims_are_the_last_to_go() -> None:
    world = running(deletionPolicy="Delete")
    orders: list[Cleanup] = []
    kafka = world.kafka()
    clean = kafka.clean

    def keep(order: Cleanup) -> object:
        orders.append(order)
        return clean(order)

    kafka.clean = keep  # type: ignore[assignment, method-assign]
    ended(world)

    claims = "air.flights.claims"
    notes = tuple(f"{claims}.{holder}" for holder in (OP, *range(2)))
    assert [order.groups for order in orders] == [("air.flights", claims, *notes)]


def test_a_broker_that_is_gone_keeps_no_pipeline_for_ever() -> None:
    world = running(deletionPolicy="Delete")
    world.broker_away = True
    ended(world)

    assert ("Warning", "DrainAbandoned") in world.events
    assert ("Warning", "CleanupAbandoned") in world.events


def test_nor_does_a_namespace_that_is_going() -> None:
    world = running()
    world.broker_away = world.namespace_ends = True

    ended(world, seconds=30)
