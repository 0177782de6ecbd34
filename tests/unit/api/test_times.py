"""Durations as Go writes them, times as RFC 3339 does."""

from __future__ import annotations

import pytest

from millrace_api.times import duration_seconds, timestamp_ms

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1h30m", 5400.0),
        ("0s", 0.0),
        ("100us", 1e-4),
        ("5ns", 5e-9),
    ],
)
def test_a_duration_in_seconds(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "1d", "-1s", "1s ", ".5s", "1.s", "1s2"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-01-31T00:00:00Z", 1_769_817_600_000),
    ],
)
def test_a_time_in_milliseconds(text: str, milliseconds: int) -> None:
    assert timestamp_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30T00:00:00Z", "2026-01-31T00:00:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        timestamp_ms(text)
