"""The simulation finds each rule that is broken on purpose."""

from __future__ import annotations

import pytest

from simulator.mutations import MUTATIONS, Mutation
from simulator.world import World

pytestmark = pytest.mark.simulation

WORLDS = 400  # in which a mistake has to show


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_found(mutation: Mutation) -> None:
    with mutation.make():
        for seed in range(WORLDS):
            try:
                World(seed).run()
            except Exception as found:  # noqa: BLE001  whatever the mistake leads to
                print(f"{mutation.name}: seed {seed}: {type(found).__name__}: {str(found)[:120]}")  # noqa: T201
                return
    pytest.fail(f"{WORLDS} worlds did not notice: {mutation.name}")
