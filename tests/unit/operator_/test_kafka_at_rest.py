"""What a pipeline at which nothing is to be done costs its broker: readings, and no client of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from millrace.connectivity.memory.faults import Call, Phase
from operator_world import OPERATOR, World


def counted(world: World) -> Callable[[], Counter[str]]:
    """Calls of the operator's clients, by their kind, since this was asked last."""
    calls: Counter[str] = Counter()

    def hook(call: Call) -> None:
        if call.client == OPERATOR and call.phase is Phase.BEFORE:
            calls[call.kind] += 1

    world.broker.hook = hook

    def since() -> Counter[str]:
        found = Counter(calls)
        calls.clear()
        return found

    return since


def test_at_rest_a_pipeline_is_only_read() -> None:
    world = World()
    world.settle()
    since = counted(world)
    for _ in range(20):
        world.reconcile()
        world.clock.advance(30.0)
    assert since() == {"survey": 20 * 4}


def test_a_calm_pipeline_takes_an_older_reading_and_one_that_changes_does_not() -> None:
    world = World()
    assert world.reconcile().look_within == 0.0
    world.settle()
    assert world.reconcile().look_within == world.settings.settled_look / 2
    assert world.pipeline is not None
    world.pipeline["spec"]["replicas"] = 3
    assert world.reconcile().look_within == 0.0


def test_parked_claims_are_looked_after_more_and_more_seldom() -> None:
    world = World(suspend=True)
    world.settle()
    since = counted(world)
    seen = []
    for _ in range(240):  # two hours
        world.clock.advance(30.0)
        world.reconcile()
        seen.append(since()["admin"] > 0)
    assert 3 <= sum(seen) <= 10
    assert seen.index(True) <= 4


def test_parked_claims_are_renewed_within_a_day_and_an_hour() -> None:
    world = World(suspend=True)
    world.settle()
    since, renewed = counted(world), 0
    for _ in range(25 * 12):
        world.clock.advance(300.0)
        world.reconcile()
        renewed += since()["transactional"] > 0
    assert renewed == 1


def test_claims_that_are_lost_are_read_stably_once_and_again_when_they_are_others() -> None:
    world = World()
    world.settle()
    world.broker.groups.expire("air.flights.claims", "flights", [1])
    world.reconcile()
    world.reconcile()
    assert world.condition("Stalled")[1] == "ClaimLost"
    since = counted(world)
    for _ in range(5):
        world.reconcile()
    assert since()["admin"] == 0
    assert world.condition("Stalled")[1] == "ClaimLost"
    world.broker.groups.expire("air.flights.claims", "flights", [2])
    world.reconcile()
    assert since()["admin"] > 0
