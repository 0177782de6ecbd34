"""Claims and epochs as text: what was written is read, and nothing that others wrote does harm."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.ownership.claim import OP, VERSION, Claim, transactional_id
from millrace.ownership.epoch import Epoch, EpochError

pytestmark = pytest.mark.unit

claims = st.builds(
    Claim,
    uid=st.text(min_size=1, max_size=40),
    topic_id=st.text(max_size=22),
    epoch=st.integers(0, 2**53),
    holder=st.integers(OP, 10_000),
    note=st.none() | st.text(max_size=20),
)
counts = st.integers(0, 20_000)
epochs = st.builds(
    lambda uid, number, partitions, replicas, more: Epoch(uid, number, partitions, replicas, replicas + more),
    st.text(min_size=1),
    counts,
    counts,
    counts,
    counts,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(claims)
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert Claim.decode(claim.encode()) == claim


def test_a_claim_is_small_ascii() -> None:
    text = Claim("0123456789abcdef" * 2, "LM4cJ1RpQY2dYyXBhYpdBQ", 2**31, 9_999).encode()
    assert text.isascii()
    assert len(text) < 150


@given(st.none() | st.text())
def test_any_text_that_is_no_claim_is_read_as_none(text: str | None) -> None:
    assert Claim.decode(text) is None


@given(
    st.dictionaries(st.sampled_from(["v", "uid", "topic", "epoch", "holder", "note", "more"]), json_values),
)
def test_any_json_is_read_as_none_or_as_a_well_formed_claim(fields: dict[str, object]) -> None:
    claim = Claim.decode(json.dumps(fields))
    if claim is not None:
        assert fields["v"] == VERSION
        assert claim.uid
        assert claim.epoch >= 0
        assert claim.holder >= OP


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "[" * 100_000,
        "1" * 5_000,
        '{"v": 1',
        '{"v": true}',
        '{"v": 2, "uid": "u"}',
        '"v"',
        "NaN",
        "null",
    ],
)
def test_hostile_metadata_is_no_claim(text: str) -> None:
    assert Claim.decode(text) is None


def test_a_claim_of_a_later_version_is_not_understood() -> None:
    fields = json.loads(Claim("u", "t", 3, 1).encode()) | {"v": VERSION + 1}
    assert Claim.decode(json.dumps(fields)) is None


def test_a_key_that_was_added_later_is_ignored() -> None:
    fields = json.loads(Claim("u", "t", 3, 1).encode()) | {"more": "hello"}
    assert Claim.decode(json.dumps(fields)) == Claim("u", "t", 3, 1)


def test_transactional_ids_are_those_of_the_protocol() -> None:
    assert transactional_id("u", 3) == "u-3"
    assert transactional_id("u", OP) == "u-op"


@given(epochs)
def test_an_epoch_is_read_as_it_was_written(epoch: Epoch) -> None:
    assert Epoch.decode(epoch.encode()) == epoch


@given(
    st.text()
    | st.dictionaries(
        st.sampled_from(["uid", "number", "partitions", "replicas", "replicasEver"]), json_values
    ).map(json.dumps)
)
def test_anything_else_is_an_epoch_or_an_epoch_error(text: str) -> None:
    try:
        epoch = Epoch.decode(text, where="epoch.json")
    except EpochError:
        return
    assert epoch.replicas_ever >= epoch.replicas


def test_an_epoch_error_says_where_and_what_to_do() -> None:
    with pytest.raises(EpochError) as caught:
        Epoch.decode('{"uid": "u", "number": -1}', where="epoch.json")
    assert caught.value.where == "epoch.json"
    assert "number is -1" in str(caught.value)
    assert caught.value.remedy


def test_without_replicas_everything_is_parked_with_the_control_plane() -> None:
    epoch = Epoch("u", 4, 3, 0, 2)
    assert [epoch.owner(p) for p in range(3)] == [OP] * 3
    assert epoch.owned_by(OP) == {0, 1, 2}
    assert epoch.owned_by(0) == frozenset()


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_beyond_the_epoch_has_no_owner(partition: int) -> None:
    with pytest.raises(IndexError, match="not among the 3"):
        Epoch("u", 4, 3, 2, 2).owner(partition)


def test_what_a_worker_owns_is_what_the_plan_gives_it() -> None:
    epoch = Epoch("u", 1, 12, 3, 3)
    shares = [epoch.owned_by(i) for i in range(3)]
    assert frozenset().union(*shares) == frozenset(range(12))
    assert all(epoch.owner(p) == i for i in range(3) for p in shares[i])
