"""Which rows are late: what the fast passes say is what the definition says, however rows are cut into batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millrace.channel.lateness as lateness_of_rows
from millrace.channel.lateness import Lateness, rule
from millrace.channel.wire import END

pytestmark = pytest.mark.unit

times = st.lists(st.integers(-40, 40), max_size=30)
latests = st.none() | st.integers(-40, 40)
batches = st.lists(times, max_size=6)


def late(latest: int | None, times: Sequence[int], lateness: int) -> list[bool]:
    """The definition."""
    before = [[*([] if latest is None else [latest]), *times[:n]] for n in range(len(times))]
    return [bool(seen) and time < max(seen) - lateness for seen, time in zip(before, times, strict=True)]


@pytest.fixture(autouse=True, params=[1, 3, 1000])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness_of_rows, "PIECE", request.param)


@given(latests, batches, st.integers(0, 30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_late_by_the_order_of_the_source_alone(
    latest: int | None, batches: list[list[int]], lateness: int
) -> None:
    found: list[bool] = []
    come = latest
    for batch in batches:
        ruling = rule(come, batch, Lateness(lateness), range(len(batch)))
        found.extend(ruling.late or [False] * len(batch))
        assert ruling.out == ruling.late
        come = ruling.latest
    rows = list(chain.from_iterable(batches))
    assert found == late(latest, rows, lateness)
    assert come == max([*rows, *([] if latest is None else [latest])], default=None)


@given(
    latests, st.lists(st.lists(st.integers(-40, 40), min_size=1, max_size=3), max_size=12), st.integers(0, 30)
)
def test_with_dead_letters_a_message_counts_as_a_whole_or_not_at_all(
    latest: int | None, messages: list[list[int]], lateness: int
) -> None:
    offsets = [n for n, message in enumerate(messages) for _ in message]
    rows = list(chain.from_iterable(messages))
    ruling = rule(latest, rows, Lateness(lateness, dead_letters=True), offsets)

    gone, come = [], latest
    for message in messages:
        gone.append(any(late(come, message, lateness)))
        if not gone[-1]:
            come = max(message if come is None else [come, *message])
    assert [n for n, is_gone in enumerate(gone) if is_gone] == sorted(ruling.reasons)
    assert list(ruling.out or [False] * len(rows)) == [gone[offset] for offset in offsets]
    assert ruling.latest == come
    by_message = groupby(zip(offsets, ruling.late or [False] * len(rows), strict=True), lambda pair: pair[0])
    assert [any(is_late for _, is_late in pairs) for _, pairs in by_message] == gone


def test_a_row_exactly_as_old_as_the_lateness_is_not_late() -> None:
    assert rule(100, [90, 89], Lateness(10), [0, 1]).late == [False, True]


def test_of_one_message_too_a_row_is_measured_by_those_before_it() -> None:
    assert rule(None, [100, 89], Lateness(10), [0, 0]).late == [False, True]


def test_a_dead_letter_names_event_time_how_far_the_partition_had_come_and_lateness() -> None:
    by = Lateness(3_600_000_000, "1h", dead_letters=True)
    assert rule(3_600_000_001, [0], by, [7]).reasons == {
        7: "late: event time 1970-01-01T00:00:00.000000Z, the partition had come to 1970-01-01T01:00:00.000001Z, "
        "lateness 1h"
    }
    assert rule(END, [0], by, [7]).reasons == {
        7: "late: event time 1970-01-01T00:00:00.000000Z, and a bounded run had ended the partition's event time"
    }
