"""Limits on dead letters: exact at their edges, whatever the batches are cut like."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_fakes import FakeRecord
from millrace.engine.batch import Batch, DeadLetter
from millrace.errors import DeadLetterLimit
from millrace.strategies import Limits

pytestmark = pytest.mark.unit


def batches(dead: Iterable[bool], sizes: Iterable[int], *, step: int = 1) -> Iterable[Batch]:
    """One partition's messages, true for a dead letter, in batches of these sizes; every `step`-th offset is used."""
    fates = list(dead)
    offset = at = 0
    for size in sizes:
        part = fates[at : at + size]
        at += size
        if not part:
            return
        records = [FakeRecord(offset + n * step) for n in range(len(part))]
        end = offset + len(part) * step
        alive = [r for r, is_dead in zip(records, part, strict=True) if not is_dead]
        letters = tuple(
            DeadLetter(r, "s", f"at {r.offset()}")
            for r, is_dead in zip(records, part, strict=True)
            if is_dead
        )
        # of those alive every other one was filtered out: it still counts as processed
        yield Batch(0, offset, end, records, alive[::2], [None] * len(alive[::2]), letters)
        offset = end


def stops_at(limits: Limits, dead: Iterable[bool], sizes: Iterable[int], *, step: int = 1) -> int | None:
    """The offset of the message that is one too many."""
    for batch in batches(dead, sizes, step=step):
        outcome = limits(batch)
        if outcome.failure is not None:
            assert isinstance(outcome.failure, DeadLetterLimit)
            offset = outcome.failure.offset
            assert outcome.batch.end == offset
            assert all(letter.record.offset() < offset for letter in outcome.batch.dead)
            assert all(record.offset() < offset for record in outcome.batch.source)
            return offset
        assert outcome.batch is batch
    return None


def expected(dead: list[bool], ratio: tuple[int, int] | None, consecutive: int | None) -> int | None:
    """The rule, said naively."""
    dead_before = [0, *accumulate(dead)]  # among the first n messages
    row = 0
    for at, is_dead in enumerate(dead):
        row = row + 1 if is_dead else 0
        if not is_dead:
            continue
        if consecutive is not None and row > consecutive:
            return at
        window = min(at + 1, 10_000)
        count = dead_before[at + 1] - dead_before[at + 1 - window]
        if ratio is not None and at + 1 >= 1000 and count * ratio[1] > window * ratio[0]:
            return at
    return None


def test_as_many_in_a_row_as_allowed_pass_and_the_next_stops() -> None:
    sizes = [500]
    assert stops_at(Limits(max_consecutive=100), [True] * 100, sizes) is None
    assert stops_at(Limits(max_consecutive=100), [True] * 101, sizes) == 100
    assert stops_at(Limits(max_consecutive=100), [True] * 100 + [False] + [True] * 101, sizes) == 201


def test_a_row_goes_on_across_batches_and_over_gaps_in_the_log() -> None:
    assert stops_at(Limits(max_consecutive=5), [True] * 6, [1] * 6) == 5
    assert stops_at(Limits(max_consecutive=5), [True] * 6, [2] * 3, step=3) == 15


def test_a_filtered_message_ends_a_row_too() -> None:
    limits = Limits(max_consecutive=2)
    dead = [True, True, False, True, True, False, True, True, True]
    assert stops_at(limits, dead, [4, 4, 4]) == 8


def test_an_empty_batch_changes_nothing() -> None:
    limits = Limits(max_consecutive=2)
    assert stops_at(limits, [True, True], [2]) is None
    assert limits(Batch(0, 2, 5, [], [], [])).failure is None
    record = FakeRecord(5)
    assert limits(Batch(0, 5, 6, [record], [], [], (DeadLetter(record, "s", "x"),))).failure is not None


def test_a_ratio_is_judged_from_1000_messages_on_and_exactly_it_passes() -> None:
    dead = [False] * 989 + [True] * 10  # 10 of the first 999
    assert stops_at(Limits(max_ratio=0.01), [*dead, False], [5000]) is None  # 10 of 1,000 is the ratio itself
    assert stops_at(Limits(max_ratio=0.01), [*dead, True], [5000]) == 999  # 11 of 1,000
    assert stops_at(Limits(max_ratio=0.01), [True] * 900, [5000]) is None  # too few to tell
    assert stops_at(Limits(max_ratio=0.01), [True] * 1000, [5000]) == 999


def test_decimal_ratios_are_exact() -> None:
    dead = [n % 100 < 29 for n in range(1000)]  # 290 of 1,000, of which the last 71 are fine
    assert stops_at(Limits(max_ratio=0.29), sorted(dead), [1000]) is None


def test_what_lies_10000_messages_back_is_forgotten() -> None:
    incident = [True] * 100 + [False] * 9_900  # 1 %
    assert stops_at(Limits(max_ratio=0.01), [*incident, True], [777] * 20) is None
    assert stops_at(Limits(max_ratio=0.01), [False, *incident[:-1], True], [777] * 20) == 10_000


def test_partitions_have_accounts_of_their_own_and_begin_anew_when_taken_up() -> None:
    limits = Limits(max_consecutive=2)
    letters = [DeadLetter(FakeRecord(n), "s", "x") for n in range(2)]
    batch = Batch(0, 0, 2, [letter.record for letter in letters], [], [], tuple(letters))
    other = Batch(1, 0, 2, batch.source, [], [], batch.dead)
    assert limits(batch).failure is None
    assert limits(other).failure is None
    limits.forget({0})
    assert limits(batch).failure is None
    assert limits(other).failure is not None


def test_the_failure_says_which_limit_and_the_last_reason() -> None:
    (batch,) = batches([True] * 3, [3])
    failure = Limits(max_consecutive=2)(batch).failure
    assert isinstance(failure, DeadLetterLimit)
    assert "2 dead letters in a row (maxConsecutive)" in failure.what
    assert "at 2" in failure.what
    assert (failure.partition, failure.offset, failure.stage) == (0, 2, "s")


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.005, 0.01, 0.05, 0.5, 0.95]),
    length=st.integers(1, 12_500),
    consecutive=st.sampled_from([None, 1, 3, 20]),
    ratio=st.sampled_from([None, (1, 100), (5, 100), (1, 2)]),
)
def test_any_stream_in_any_batches_stops_where_the_rule_says(
    seed: int, share: float, length: int, consecutive: int | None, ratio: tuple[int, int] | None
) -> None:
    chance = random.Random(seed)
    dead = [chance.random() < share for _ in range(length)]
    sizes = [chance.randrange(1, 700) for _ in range(length)]
    limits = Limits(None if ratio is None else ratio[0] / ratio[1], consecutive)
    assert stops_at(limits, dead, sizes) == expected(dead, ratio, consecutive)
