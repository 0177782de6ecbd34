"""R4-R6 as decisions: who is acted for, what is found wrong, and in which order the number of replicas changes."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import (
    Advance,
    AwaitPassing,
    AwaitReady,
    Fleet,
    Identity,
    Pass,
    Scale,
    Settled,
    Standing,
    Step,
    examine,
    next_number,
    next_step,
    passes,
    standing,
    unseeded,
)
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import ClaimLost, ForeignClaim, shorten

pytestmark = pytest.mark.unit

US = Identity("u", "flights", "topic-1", "g", "g.claims")


def record(
    holder: int, *, offset: int = 7, epoch: int = 1, uid: str = "u", topic: str = "topic-1"
) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, Claim(uid, topic, epoch, holder).encode())


def planned(epoch: Epoch) -> dict[int, OffsetAndMetadata]:
    return {p: record(epoch.owner(p), epoch=epoch.number) for p in range(epoch.partitions)}


def step(
    epoch: Epoch, claims: dict[int, OffsetAndMetadata], fleet: Fleet, *, replicas: int, partitions: int = 4
) -> Step:
    return next_step(US, epoch, claims, replicas=replicas, partitions=partitions, fleet=fleet)


def fleet(scale: int, **more: frozenset[int]) -> Fleet:
    everybody = frozenset(range(scale))
    return Fleet(scale, **{"running": everybody, "ready": everybody, **more})


TWO = Epoch("u", 1, 4, 2, 2)


class TestStanding:
    def test_nothing_is_absent(self) -> None:
        assert standing(US, None) is Standing.ABSENT

    def test_a_claim_with_our_uid_and_topic_is_ours(self) -> None:
        assert standing(US, record(0)) is Standing.OURS
        assert standing(US, record(OP)) is Standing.OURS

    def test_a_parked_claim_of_another_uid_can_be_adopted(self) -> None:
        assert standing(US, record(OP, uid="former")) is Standing.ADOPTABLE

    @pytest.mark.parametrize(
        "found",
        [
            record(0, uid="other"),
            record(0, topic="topic-0"),
            record(OP, uid="former", topic="topic-0"),
            OffsetAndMetadata(5),
            OffsetAndMetadata(5, "written by a stray"),
        ],
    )
    def test_everything_else_is_foreign(self, found: OffsetAndMetadata) -> None:
        assert standing(US, found) is Standing.FOREIGN


class TestExamination:
    def test_claims_as_the_protocol_leaves_them_are_fine(self) -> None:
        examine(US, TWO, planned(TWO) | {4: record(1), 5: record(OP, uid="former")}, {})

    def test_a_lost_claim_is_named_with_the_last_offset_known(self) -> None:
        claims = planned(TWO)
        del claims[1], claims[3]
        with pytest.raises(ClaimLost) as caught:
            examine(US, TWO, claims, {1: OffsetAndMetadata(41), 2: OffsetAndMetadata(9)})
        assert caught.value.partitions == (1, 3)
        assert caught.value.last_known == {1: 41}
        assert "1: 41" in str(caught.value)

    def test_a_partition_not_yet_seeded_is_not_lost(self) -> None:
        examine(US, TWO, planned(TWO), {})

    def test_foreign_claims_are_named_with_whose_they_are(self) -> None:
        claims = planned(TWO) | {2: record(0, uid="other", offset=99)}
        with pytest.raises(ForeignClaim) as caught:
            examine(US, TWO, claims, {})
        assert list(caught.value.partitions) == [2]
        assert caught.value.last_known == {2: 99}
        assert "other" in str(caught.value)

    def test_a_topic_made_anew_makes_all_claims_foreign(self) -> None:
        with pytest.raises(ForeignClaim, match="earlier topic of this name"):
            examine(Identity("u", "flights", "topic-2", "g", "g.claims"), TWO, planned(TWO), {})

    def test_a_parked_claim_of_another_uid_over_one_of_ours_is_foreign(self) -> None:
        with pytest.raises(ForeignClaim):
            examine(US, TWO, planned(TWO) | {0: record(OP, uid="former")}, {})

    @pytest.mark.parametrize(
        "error",
        [
            ClaimLost("t", "g", "g.claims", [1, 2], {1: 5}),
            ForeignClaim("t", "g", "g.claims", {3: "pipeline x"}, {3: 8}),
        ],
    )
    def test_errors_keep_their_reasons_when_pickled(self, error: ClaimLost | ForeignClaim) -> None:
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert again.partitions == error.partitions
        assert again.code == error.code


class TestPassing:
    def test_nothing_is_passed_for_workers_that_run(self) -> None:
        claims = {p: record(p % 2) for p in range(4)}
        assert passes(US, TWO, claims, fleet(2)) == ()

    def test_parked_claims_go_to_their_planned_owners(self) -> None:
        claims = {p: record(OP) for p in range(4)}
        assert passes(US, TWO, claims, fleet(2)) == (Pass(OP, {p: TWO.owner(p) for p in range(4)}),)

    def test_a_worker_beyond_the_scale_and_without_process_is_acted_for(self) -> None:
        claims = planned(TWO) | {1: record(5)}
        assert passes(US, TWO, claims, fleet(2)) == (Pass(5, {1: TWO.owner(1)}),)

    def test_a_worker_beyond_the_scale_that_still_runs_is_not(self) -> None:
        claims = planned(TWO) | {1: record(5)}
        assert passes(US, TWO, claims, fleet(2, running=frozenset({0, 1, 5}))) == ()

    def test_an_overdue_worker_loses_only_what_is_planned_for_others(self) -> None:
        claims = {p: record(0) for p in range(4)}
        (todo,) = passes(US, TWO, claims, fleet(2, overdue=frozenset({0})))
        assert todo == Pass(0, {p: 1 for p in range(4) if TWO.owner(p) == 1})

    def test_without_replicas_claims_of_the_gone_are_parked(self) -> None:
        none = Epoch("u", 2, 4, 0, 2)
        assert passes(US, none, planned(TWO), Fleet(0)) == tuple(
            Pass(i, {p: OP for p in range(4) if TWO.owner(p) == i}) for i in (0, 1)
        )

    def test_a_claim_of_a_newer_epoch_is_left_to_whoever_knows_that_epoch(self) -> None:
        assert passes(US, TWO, {0: record(OP, epoch=2)}, fleet(2)) == ()

    def test_claims_that_are_not_ours_are_not_touched(self) -> None:
        claims = planned(TWO) | {1: record(OP, uid="former"), 2: OffsetAndMetadata(3)}
        assert passes(US, TWO, claims, Fleet(2)) == ()


class TestNumbers:
    @given(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=5))
    def test_the_next_number_is_above_all_that_were_ever_seen(
        self, published: int, claimed: list[int]
    ) -> None:
        epoch = Epoch("u", published, 0, 0, 0)
        claims = {p: record(0, epoch=e) for p, e in enumerate(claimed)}
        assert next_number(epoch, claims) == max([published, *claimed]) + 1

    def test_a_parked_claim_of_an_earlier_pipeline_counts_too(self) -> None:
        assert next_number(Epoch.first("u"), {0: record(OP, epoch=40, uid="former")}) == 41


class TestSteps:
    def test_a_new_pipeline_starts_workers_first(self) -> None:
        assert step(Epoch.first("u"), {}, Fleet(0), replicas=2) == Scale(2)

    def test_then_waits_until_they_are_ready(self) -> None:
        waiting = fleet(2, ready=frozenset({1}))
        assert step(Epoch.first("u"), {}, waiting, replicas=2) == AwaitReady((0,))

    def test_then_seeds_and_publishes(self) -> None:
        assert step(Epoch.first("u"), {}, fleet(2), replicas=2) == Advance(TWO, (0, 1, 2, 3))

    def test_then_rests(self) -> None:
        assert step(TWO, planned(TWO), fleet(2), replicas=2) == Settled()

    def test_growing_waits_for_the_new_worker_only(self) -> None:
        ready = fleet(3, ready=frozenset({2}))
        assert step(TWO, planned(TWO), fleet(2), replicas=3) == Scale(3)
        assert step(TWO, planned(TWO), ready, replicas=3) == Advance(Epoch("u", 2, 4, 3, 3), ())

    def test_shrinking_publishes_first(self) -> None:
        assert step(TWO, planned(TWO), fleet(2), replicas=1) == Advance(Epoch("u", 2, 4, 1, 2), ())

    def test_then_waits_for_claims_to_be_passed_then_scales(self) -> None:
        one = Epoch("u", 2, 4, 1, 2)
        claims = {p: record(0, epoch=2) for p in range(4)} | {3: record(1)}
        assert step(one, claims, fleet(2), replicas=1) == AwaitPassing({3: 1})
        assert step(one, claims, fleet(2, overdue=frozenset({1})), replicas=1) == Scale(1)
        assert step(one, claims | {3: record(0)}, fleet(2), replicas=1) == Scale(1)

    def test_added_partitions_are_seeded_before_they_are_published(self) -> None:
        claims = planned(TWO) | {4: record(0, epoch=2)}  # an attempt that died after a first seed
        assert step(TWO, claims, fleet(2), replicas=2, partitions=6) == Advance(Epoch("u", 3, 6, 2, 2), (5,))

    def test_no_replicas_publish_then_scale_to_none(self) -> None:
        none = Epoch("u", 2, 4, 0, 2)
        assert step(TWO, planned(TWO), fleet(2), replicas=0) == Advance(none, ())
        assert step(none, {p: record(OP) for p in range(4)}, fleet(2), replicas=0) == Scale(0)

    def test_an_epoch_behind_its_claims_is_published_anew(self) -> None:
        claims = planned(TWO) | {2: record(1, epoch=7)}
        assert step(TWO, claims, fleet(2), replicas=2) == Advance(Epoch("u", 8, 4, 2, 2), ())

    def test_workers_that_ended_are_asked_for_again(self) -> None:
        assert step(TWO, planned(TWO), Fleet(0), replicas=2) == Scale(2)


def test_what_is_to_be_seeded_are_absent_claims_and_parked_ones_of_others() -> None:
    assert unseeded(US, {0: record(0), 2: record(OP, uid="former")}, 4) == (1, 2, 3)


def test_partitions_are_written_as_people_write_them() -> None:
    assert shorten([9, 0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-9"
    assert shorten([]) == ""
