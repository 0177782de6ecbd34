"""What setting offsets by hand would write, and as whom."""

from __future__ import annotations

import pytest

from millrace.connectivity.ports import OffsetAndMetadata, Span
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace.ownership.repositioning import (
    Damage,
    NoPosition,
    OutsideLog,
    Writer,
    again,
    check,
    damaged,
    repairs,
    resets,
)

pytestmark = pytest.mark.unit

US = Identity("u", "t", "id-1", "g", "g.claims")
EPOCH = Epoch("u", 3, 4, 2, 2)


def record(
    offset: int, holder: int, *, uid: str = "u", topic: str = "id-1", note: str | None = None
) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, Claim(uid, topic, 3, holder, note).encode())


def test_a_reset_changes_the_offset_and_nothing_else() -> None:
    claims = {0: record(5, 1, note="n"), 1: record(7, OP), 2: record(2, 0)}
    first, second = resets(US, claims, {0: 9, 1: 0, 2: 2})
    assert (first.writer, first.before, first.record) == (Writer("u", 1), 5, record(9, 1, note="n"))
    assert (second.writer, second.record) == (Writer("u", OP), record(0, OP))


def test_a_reset_leaves_claims_alone_that_are_not_ours() -> None:
    claims = {0: record(5, 1, uid="v"), 1: record(5, 1, topic="id-0"), 2: OffsetAndMetadata(5, "stray")}
    assert resets(US, claims, dict.fromkeys(range(4), 0)) == ()


def test_what_is_damaged_is_what_stalls_a_pipeline() -> None:
    claims = {0: record(5, 1), 1: record(5, 1, uid="v"), 2: OffsetAndMetadata(5, "stray")}
    assert damaged(US, EPOCH, claims, range(6)) == {
        1: Damage.FOREIGN,
        2: Damage.NO_CLAIM,
        3: Damage.LOST,
    }
    parked = {4: record(1, OP, uid="v"), 0: record(1, OP, uid="v")}
    assert damaged(US, EPOCH, parked, [0, 4]) == {0: Damage.FOREIGN}


def test_a_repair_is_written_as_whoever_the_claim_names_and_parks_it() -> None:
    claims = {0: record(5, 1), 1: record(6, 7, uid="v"), 2: record(9, 0, topic="id-0")}
    parked = Claim("u", "id-1", 3, OP)
    found = repairs(US, EPOCH, claims, {0: 0, 1: 1, 2: 2, 3: 3})
    assert [(c.partition, c.writer, c.before, c.after) for c in found] == [
        (1, Writer("v", 7), 6, 1),
        (2, Writer("u", 0), None, 2),  # an offset in another topic says nothing
        (3, Writer("u", OP), None, 3),
    ]
    assert {c.claim for c in found} == {parked}


def test_what_will_be_processed_again() -> None:
    spans = dict.fromkeys(range(4), Span(0, 10))
    claims = {0: record(5, 1), 1: record(5, 1), 2: record(9, 0, topic="id-0")}
    back = resets(US, claims, {0: 4, 1: 6})
    assert again(back, {}, spans) == (0,)
    anew = repairs(US, EPOCH, claims, {2: 0, 3: 4})
    assert again(anew, {3: OffsetAndMetadata(4)}, spans) == ()
    assert again(anew, {3: OffsetAndMetadata(5)}, spans) == (3,)
    assert again(anew, {}, spans) == (3,)  # nobody knows: it may be so


def test_a_position_that_is_not_in_the_log_is_refused_by_name() -> None:
    spans = {0: Span(2, 10), 1: Span(2, 10)}
    check("t", "g", [0, 1], {0: 2, 1: 10}, spans)
    with pytest.raises(OutsideLog, match="partitions 1 of t") as caught:
        check("t", "g", [0, 1], {0: 2, 1: 11}, spans)
    assert "1: 11 is not in 2 to 10" in caught.value.where
    with pytest.raises(NoPosition, match="group g has no offset for partitions 1 of t") as none:
        check("t", "g", [0, 1], {0: 2}, spans)
    assert "--partitions 1 --to earliest" in none.value.remedy
