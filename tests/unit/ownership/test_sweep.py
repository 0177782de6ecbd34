"""What is decided about records that a broker has left open: never one of them twice, never none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.provenance import (
    ALWAYS,
    NEVER,
    Origin,
    origin,
    origin_header,
    origin_headers,
    without,
    writer,
    writer_header,
)
from millrace.ownership.sweep import (
    Stretch,
    Trace,
    counts,
    floors,
    promise,
    proves_commit,
    to_restore,
)

pytestmark = pytest.mark.unit

PARTITIONS = st.integers(0, 3)
OFFSETS = st.integers(0, 30)
CLAIMS = st.dictionaries(PARTITIONS, OFFSETS)
ORIGINS = st.builds(Origin, PARTITIONS, OFFSETS | st.sampled_from([NEVER, ALWAYS]), st.integers(0, 2))


@st.composite
def left_open(draw: st.DrawFn) -> list[Trace]:
    origins = draw(st.lists(ORIGINS | st.none(), min_size=1, max_size=8))
    first = draw(OFFSETS)
    return [Trace(first + n, one, b"5") for n, one in enumerate(origins)]


@given(left_open(), CLAIMS)
def test_what_counts_is_restored_or_kept_and_nothing_else_is_kept(
    traces: list[Trace], claims: Mapping[int, int]
) -> None:
    stretch, kept = to_restore(traces, claims), promise(traces, claims)
    counting = [one.offset for one in traces if counts(one, claims)]
    assert (stretch is not None) == bool(counting)
    if stretch is not None:
        assert (stretch.first, stretch.last) == (counting[0], counting[-1])
    if kept is not None:  # then all of it is committed as it lies there
        assert all(counts(one, claims) or (one.origin and one.origin.offset == NEVER) for one in traces)


@given(ORIGINS, CLAIMS, OFFSETS)
def test_what_counts_goes_on_counting_as_claims_grow(one: Origin, claims: dict[int, int], more: int) -> None:
    grown = {partition: offset + more for partition, offset in claims.items()}
    assert counts(Trace(0, one), grown) or not counts(Trace(0, one), claims)


@given(st.lists(ORIGINS, max_size=8), CLAIMS)
def test_proofs_put_claims_above_all_that_readers_see(seen: list[Origin], claims: dict[int, int]) -> None:
    traces = [Trace(n, one) for n, one in enumerate(seen)]
    proofs = [one for one in traces if proves_commit(one, claims, claims.keys())]
    raised = claims | floors(proofs)
    assert all(raised[p] >= offset for p, offset in claims.items())
    for one in traces:
        if one.origin is not None and one.origin.partition in claims and one.origin.offset != NEVER:
            assert counts(one, raised)


def test_nothing_is_proved_about_claims_that_are_not_pending() -> None:
    assert not proves_commit(Trace(0, Origin(1, 9, 0)), {1: 3}, {2})
    assert proves_commit(Trace(0, Origin(1, 9, 0)), {1: 3}, {1})
    assert not proves_commit(Trace(0, Origin(1, 2, 0)), {1: 3}, {1})


def test_only_what_is_a_channels_is_committed_as_it_is() -> None:
    assert promise([Trace(0, Origin(0, 1, 0), b"7")], {0: 2}) == b"7"
    assert promise([Trace(0, Origin(0, 1, 0))], {0: 2}) is None
    assert promise([Trace(0, Origin(0, NEVER, 0), b"7")], {0: 2}) is None


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_stretch_is_read_as_it_was_noted(first: int, length: int) -> None:
    stretch = Stretch(first, first + length)
    assert Stretch.noted(stretch.record()) == stretch
    assert Stretch.noted(OffsetAndMetadata(first)) is None
    assert Stretch.noted(OffsetAndMetadata(first, "whatever")) is None
    assert Stretch.noted(None) is None


@given(st.lists(st.integers(0, 5), max_size=12).map(sorted), PARTITIONS)
def test_origins_identify_the_values_of_a_batch(offsets: list[int], partition: int) -> None:
    headers = origin_headers("a%d-1", partition, offsets)
    found = [origin([header]) for header in headers]
    assert {writer([header]) for header in headers} <= {"a%d-1"}
    assert [one.offset for one in found if one is not None] == offsets
    assert len(set(found)) == len(offsets)
    assert list(headers) == [
        origin_header("a%d-1", one.partition, one.offset, one.index) for one in found if one is not None
    ]


@given(st.binary(max_size=40))
def test_what_is_no_origin_is_none(text: bytes) -> None:
    found = Origin.decode(text)
    assert found is None or Origin.decode(str(found).encode()) == found


def test_a_record_of_two_pipelines_is_the_last_ones() -> None:
    theirs = [origin_header("theirs-0", 1, 2), ("h", b"1")]
    letter = [origin_header("ours-0", 3, 4), *theirs]
    assert (origin(letter), writer(letter)) == (Origin(3, 4, 0), "ours-0")
    assert without(theirs) == [("h", b"1")]
    assert (origin([writer_header("ours-0")]), writer([writer_header("ours-0")])) == (None, "ours-0")
    assert (origin(None), writer(None), origin([]), writer([])) == (None, None, None, None)
