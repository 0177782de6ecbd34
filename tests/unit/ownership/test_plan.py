"""The plan is balanced, and moves as little as it may."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.ownership.plan import Move, moves, plan

pytestmark = pytest.mark.unit


def loads(owners: tuple[int, ...], replicas: int) -> list[int]:
    count = Counter(owners)
    return [count[r] for r in range(replicas)]


def assert_balanced(owners: tuple[int, ...], replicas: int) -> None:
    assert all(0 <= owner < replicas for owner in owners)
    shares = loads(owners, replicas)
    assert max(shares) - min(shares) <= 1


def assert_only_to_the_new_one(partitions: int, replicas: int) -> None:
    before, after = plan(partitions, replicas), plan(partitions, replicas + 1)
    assert {move.target for move in moves(before, after)} <= {replicas}


@pytest.mark.parametrize("partitions", range(33))
def test_small_plans_are_balanced_and_grow_by_moving_to_the_new_replica_only(partitions: int) -> None:
    for replicas in range(1, 25):
        assert len(plan(partitions, replicas)) == partitions
        assert_balanced(plan(partitions, replicas), replicas)
        assert_only_to_the_new_one(partitions, replicas)


@settings(max_examples=20, deadline=None)
@given(partitions=st.integers(0, 10_000), replicas=st.integers(1, 3_000))
def test_large_plans_are_balanced_and_grow_by_moving_to_the_new_replica_only(
    partitions: int, replicas: int
) -> None:
    assert_balanced(plan(partitions, replicas), replicas)
    assert_only_to_the_new_one(partitions, replicas)


@pytest.mark.parametrize(("partitions", "replicas"), [(24, 40), (60, 6), (200, 4)])
def test_up_to_these_a_topic_can_grow_without_moving_anything(partitions: int, replicas: int) -> None:
    for n in range(1, replicas + 1):
        largest = plan(partitions, n)
        for p in range(partitions):
            assert plan(p, n) == largest[:p]


@settings(max_examples=30, deadline=None)
@given(data=st.data(), replicas=st.integers(1, 100))
def test_beyond_that_few_partitions_move_when_a_topic_grows(data: st.DataObject, replicas: int) -> None:
    before = data.draw(st.integers(1, 400))
    after = data.draw(st.integers(before, 400))
    moved = [move for move in moves(plan(before, replicas), plan(after, replicas)) if move.source is not None]
    assert len(moved) <= (replicas if replicas <= 10 else 2.5 * replicas)


@pytest.mark.parametrize(
    ("before", "after", "replicas"), [(10_000, 20_000, 100), (5_000, 5_001, 50), (1_000, 2_000, 10)]
)
def test_also_when_it_is_large(before: int, after: int, replicas: int) -> None:
    moved = [move for move in moves(plan(before, replicas), plan(after, replicas)) if move.source is not None]
    assert len(moved) <= 8 * replicas


def test_a_plan_depends_on_nothing_but_its_two_numbers() -> None:
    first = plan(1000, 17)
    plan.cache_clear()
    assert plan(1000, 17) == first


def test_more_replicas_than_partitions_leave_the_last_ones_idle() -> None:
    assert sorted(plan(3, 7)) == [0, 1, 2]


@pytest.mark.parametrize(("partitions", "replicas"), [(-1, 1), (1, 0), (5, -2)])
def test_nonsense_is_refused(partitions: int, replicas: int) -> None:
    with pytest.raises(ValueError, match=r"can't have|at least one"):
        plan(partitions, replicas)


def test_moves_tell_what_changes_hands_and_what_is_new() -> None:
    assert moves((0, 0, 0), (0, 1, 0, 1)) == (Move(1, 0, 1), Move(3, None, 1))
    assert moves((0, 1), (0,)) == (Move(1, 1, None),)


def test_the_work_of_a_plan_grows_little_faster_than_its_partitions() -> None:
    """n log n, so that ten thousand partitions are planned in a part of a second."""
    assert _calls(10_000, 5_000) < 2.5 * _calls(5_000, 2_500)
    assert _calls(10_000, 5_000) < 5_000_000


def _calls(partitions: int, replicas: int) -> int:
    """Of functions, until the plan is made."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    plan.cache_clear()
    sys.setprofile(profile)
    try:
        plan(partitions, replicas)
    finally:
        sys.setprofile(None)
    return count


def test_plans_never_change_from_one_version_to_the_next() -> None:
    """An upgrade must not move partitions, and operator and workers may be of different versions for a while."""
    digest = hashlib.sha256()
    for partitions in (0, 1, 7, 12, 24, 25, 60, 100, 333, 1000, 4096):
        for replicas in (1, 2, 3, 5, 6, 7, 12, 31, 64, 100, 500):
            digest.update(repr(plan(partitions, replicas)).encode())
    assert digest.hexdigest().startswith("4914bb806ccdd99e")
