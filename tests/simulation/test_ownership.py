"""Workers and control planes keep their promises in every world that a seed makes.

MILLRACE_SEEDS: how many worlds (200), MILLRACE_SEED: only this one, with its whole trace printed.
"""

from __future__ import annotations

import os

import pytest

from simulator.world import World

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("MILLRACE_SEEDS", "200"))
ONLY = os.environ.get("MILLRACE_SEED")
CHUNK = 20


def live(seed: int) -> None:
    """Run one world; a failure tells the seed and how it came to it."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  whatever it was, the seed has to be told
        tail = world.trace if ONLY else world.trace[-60:]
        pytest.fail(
            "\n".join(
                [
                    *tail,
                    f"seed {seed}: {type(error).__name__}: {error}",
                    f"replay with MILLRACE_SEED={seed} make test",
                ]
            ),
            pytrace=not isinstance(error, AssertionError),
        )
    if ONLY:
        print("\n".join(world.trace))  # noqa: T201


@pytest.mark.parametrize("first", [int(ONLY)] if ONLY else range(0, SEEDS, CHUNK))
def test_every_world_comes_to_a_good_end(first: int) -> None:
    for seed in [first] if ONLY else range(first, min(first + CHUNK, SEEDS)):
        live(seed)


def test_worlds_are_eventful() -> None:
    """What the worlds are about does happen in them: else they would prove nothing."""
    told: list[str] = []
    for seed in range(60):
        world = World(seed)
        world.run()
        told += world.trace
    for what in (
        "CRASH",
        "stalls for",
        "becomes a zombie",
        "is killed",
        "ended with Fenced",
        "the broker is away",
        "nothing that is produced gets through",
        "replicas are wanted",
        "the topic has",
        "is taken for overdue",
        "lands, rejected",
        "commit reply lost",
        "commit late",
        "commit refused",
        "send_offsets lost",
        "Passed(",
        "Interrupted(",
        "closed, complete",
        "FORGOTTEN a marker of u-0, prepared to abort",
        "FORGOTTEN a marker of u-0, prepared to commit",
        "g.claims.0",
    ):
        assert any(what in line for line in told), what
