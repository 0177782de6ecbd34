"""The records of a channel: what is written is read as the same, what is none of ours is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.channel.wire import (
    END,
    TIME,
    Mark,
    MarkKind,
    Origin,
    Row,
    WireError,
    event_time,
    mark_headers,
    parse,
    row_headers,
)
from millrace.ownership.provenance import origin_header

pytestmark = pytest.mark.unit

TIMES = st.integers(-62_135_596_800_000_000, END)
OFFSETS = st.integers(0, 2**63 - 1)
ORIGIN = origin_header("u-0", 2, 3, 4)


@given(TIMES, st.integers(0, 100_000), OFFSETS, st.integers(0, 10**6), st.binary())
def test_a_row_is_read_as_it_was_written(
    time: int, partition: int, offset: int, index: int, value: bytes
) -> None:
    headers = row_headers(time, origin_header("u-0", partition, offset, index))
    assert parse(value, headers) == Row(time, Origin(partition, offset, index), value)
    assert dict(headers)["millrace-origin"] == f"{Origin(partition, offset, index)}@u-0".encode()


@given(st.sampled_from(MarkKind), TIMES)
def test_a_mark_is_read_as_it_was_written(kind: MarkKind, time: int) -> None:
    assert parse(None, mark_headers(kind, time, "u-0", 0)) == Mark(kind, time)


def test_the_wire_form_is_the_one_that_is_documented() -> None:
    assert row_headers(1, ORIGIN) == [("millrace-time", b"1"), ("millrace-origin", b"2:3:4@u-0")]
    assert mark_headers(MarkKind.END, END, "u-0", 3) == [
        ("millrace-mark", b"end"),
        ("millrace-time", b"253402300799000000"),
        ("millrace-origin", b"3:-1:0@u-0"),
    ]


def test_a_mark_of_a_kind_that_came_later_still_promises_its_time() -> None:
    assert parse(None, [("millrace-mark", b"snooze"), ("millrace-time", b"7")]) == Mark("snooze", 7)


def test_headers_of_others_are_ignored() -> None:
    assert parse(b"{}", [("trace", None), *row_headers(1, ORIGIN)]) == Row(1, Origin(2, 3, 4), b"{}")


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"{}", None),
        (b"{}", [("millrace-time", b"1")]),
        (b"{}", [("millrace-time", b"soon"), ("millrace-origin", b"0:0:0")]),
        (b"{}", [("millrace-time", b"1" * 30), ("millrace-origin", b"0:0:0")]),
        (b"{}", [("millrace-time", None), ("millrace-origin", b"0:0:0")]),
        (b"{}", [("millrace-time", b"1"), ("millrace-origin", b"0:0")]),
        (b"{}", [("millrace-time", b"1"), ("millrace-origin", b"0:-1:0")]),
        (b"{}", mark_headers(MarkKind.IDLE, 1, "u-0", 0)),
        (None, row_headers(1, ORIGIN)),
        (None, [("millrace-mark", b"idle")]),
        (None, None),
    ],
)
def test_what_is_neither_row_nor_mark_is_refused(
    value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    with pytest.raises(WireError):
        parse(value, headers)


def test_a_record_without_event_time_says_that_this_is_no_channel() -> None:
    assert event_time([("a", b"1"), (TIME, b"-5")]) == -5
    for headers in (None, [], [("a", b"1")], [(TIME, None)]):
        with pytest.raises(WireError, match="not a channel"):
            event_time(headers)
