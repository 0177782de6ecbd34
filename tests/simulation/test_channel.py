"""A bounded run that collects keeps its promises in every world that a seed makes: each row exactly once in the channel,
in order, but for those that are late by the source's order, whose number is in the claim; nothing from beyond the bound,
and every partition closed by an end mark. The invariants of ownership and of
the produce stage before it are checked at every step, as in test_ownership.

MILLRACE_SEEDS, MILLRACE_SEED: as there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from unittest.mock import patch

import pytest

from channel_worlds import BoundedWorld
from millrace.engine.marks import End, Ends
from millrace.ownership import acting, control_plane
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace.strategies import Marker
from simulator.checks import Violation

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("MILLRACE_SEEDS", "200"))
ONLY = os.environ.get("MILLRACE_SEED")
CHUNK = 20


def live(seed: int) -> None:
    world = BoundedWorld(seed)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  whatever it was, the seed has to be told
        tail = world.trace if ONLY else world.trace[-60:]
        told = [*tail, f"seed {seed}: {type(error).__name__}: {error}", f"replay with MILLRACE_SEED={seed}"]
        pytest.fail("\n".join(told), pytrace=not isinstance(error, AssertionError))


@pytest.mark.parametrize("first", [int(ONLY)] if ONLY else range(0, SEEDS, CHUNK))
def test_every_bounded_run_fills_its_channel_exactly(first: int) -> None:
    for seed in [first] if ONLY else range(first, min(first + CHUNK, SEEDS)):
        live(seed)


_write, _unmarked, _adopt, _claim = Marker.write, Marker._unmarked, Marker.adopt, acting.claim_of


def _too_early(marker: Marker, ends: Ends) -> Set[int]:
    """End marks with the first commit, wherever the partition stands."""
    return _write(marker, dict.fromkeys(ends, End.BOUND))


def _left_to_others(marker: Marker, ends: Ends) -> list[int]:
    """Whoever finds a partition at its bound takes it that somebody has marked the end."""
    seen = marker.__dict__.setdefault("seen", set())
    marker._ended |= {p for p, end in ends.items() if end is End.BOUND and p not in seen}
    seen |= ends.keys()
    return _unmarked(marker, ends)


def _from_nothing(marker: Marker, partition: int, note: str | None) -> None:
    """The next holder does not look at the note."""
    _adopt(marker, partition, None)


def _claim_without_note(identity: Identity, epoch: Epoch, holder: int, *_: object) -> str:
    """The control plane passes a partition on, and not what is noted of it."""
    return _claim(identity, epoch, holder)


@pytest.mark.parametrize(
    ("broken", "method", "mistake"),
    [
        (Marker, "write", _too_early),
        (Marker, "_unmarked", _left_to_others),
        (Marker, "adopt", _from_nothing),
        (control_plane, "claim_of", _claim_without_note),
    ],
    ids=["too early", "left to others", "from nothing", "without the note"],
)
def test_a_broken_rule_is_found(broken: object, method: str, mistake: Callable[..., object]) -> None:
    with patch.object(broken, method, mistake):
        for seed in range(100):
            try:
                BoundedWorld(seed).run()
            except Violation:
                return
    pytest.fail("100 worlds did not notice")
