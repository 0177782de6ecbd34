"""Which dead letters are meant, and the account of those that were sent again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cli.dlq.access import Place
from millrace.cli.dlq.chosen import Chosen, instant
from millrace.cli.dlq.purging import purge_letters
from millrace.cli.dlq.replayed import Replayed, TooScattered
from millrace.connectivity.ports import OffsetAndMetadata
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 6))
def test_the_account_knows_each_letter_that_was_sent_and_no_other(seed: int, rounds: int) -> None:
    """Letters lie between transaction markers; each round chooses some, may stop early, and may lose what is purged."""
    chance = random.Random(seed)
    letters = sorted(chance.sample(range(60), 20))
    sent: set[int] = set()
    known, beginning = None, 0
    for _ in range(rounds):
        account = Replayed(known, beginning)
        again = chance.random() < 0.3
        start = beginning if again else account.first
        assert all(offset in sent for offset in letters if beginning <= offset < start)
        visited = [offset for offset in letters if offset >= start][: chance.choice([3, 8, 20])]
        for offset in visited:
            before = offset in account
            assert before == (offset in sent)
            now = chance.random() < 0.5
            account.visit(offset, done=before or now)
            if now:
                sent.add(offset)
        known = account.committed()
        beginning = max(beginning, chance.choice([0, 0, account.first]))
    after = Replayed(known, beginning)
    assert {offset for offset in letters if offset >= beginning and offset in after} == {
        offset for offset in sent if offset >= beginning
    }


def test_all_that_were_sent_are_one_offset_whatever_lies_between_them() -> None:
    account = Replayed(None, 5)
    for offset in (6, 8, 9, 20):
        account.visit(offset, done=True)
    assert account.committed() == OffsetAndMetadata(21, None)


def test_more_than_can_be_kept_is_refused() -> None:
    account = Replayed(None, 0)
    for offset in range(2_000):
        account.visit(offset, done=offset % 2 == 1)
    with pytest.raises(TooScattered):
        account.committed()


@pytest.mark.parametrize("metadata", ["x", "3-", "9-7-3", ",,", "\x00"])
def test_an_account_that_can_not_be_read_counts_for_nothing(metadata: str) -> None:
    account = Replayed(OffsetAndMetadata(2, metadata), 0)
    assert (account.first, 1 in account, 5 in account) == (2, True, False)


def test_times_have_a_zone() -> None:
    assert instant("2026-01-31T00:00:00Z", "--since") == 1_769_817_600_000
    for text in ("2026-01-31T00:00:00", "yesterday"):
        with pytest.raises(MillraceError) as raised:
            instant(text, "--since")
        assert (raised.value.code, raised.value.where) == (ExitCode.USAGE, "--since")


def test_a_pattern_that_is_none_is_told() -> None:
    with pytest.raises(MillraceError) as raised:
        Chosen.of((), "(", (), None, None)
    assert raised.value.where == "--reason"


def test_purge_wants_to_know_exactly_what() -> None:
    place = Place(Path("pipeline.yaml"), None, None, None)
    for everything, before in ((False, None), (True, "2026-01-31T00:00:00Z")):
        with pytest.raises(MillraceError) as raised:
            purge_letters(
                place, everything=everything, replayed=False, before=before, yes=True, as_json=False
            )
        assert raised.value.code is ExitCode.USAGE
