"""What is deleted from a channel is of no open window: by the definition, on random channels."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.channel import wire
from millrace.collector import floor
from millrace.collector.floor import History
from millrace.collector.progress import Step
from millrace.collector.query import Window

pytestmark = pytest.mark.unit

MINUTE = 60_000_000
HOUR = 60 * MINUTE
TUMBLING = Window(size=3600, time="at", lateness=7200)
SLIDING = Window(size=3600, slide=900, time="at", lateness=0)
FUNCTION = Window(time="at", lateness=7200)

Channel = list[tuple[int, int | None]]
"""Records in the order of their offsets: event time, and None, or what a mark right behind it promises."""


@st.composite
def channels(draw: st.DrawFn) -> Channel:
    """Each mark is the largest event time so far, or more."""
    times = draw(st.lists(st.integers(0, 60 * HOUR), min_size=1, max_size=120))
    marks = draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    ahead = draw(st.integers(0, 3 * HOUR))
    return [
        (time, latest + ahead if mark else None)
        for time, latest, mark in zip(times, accumulate(times, max), marks, strict=True)
    ]


def history_of(channel: Channel, window: Window, batches: int = 1) -> History:
    """As it is when so many records make a batch."""
    history: History = ()
    for first in range(0, len(channel), batches):
        offsets = [
            o for o, (_, mark) in enumerate(channel[first : first + batches], first) if mark is not None
        ]
        marks = [channel[o][1] or 0 for o in offsets]
        if offsets:
            before = history[-1].time if history else 0
            history = floor.extended(history, Step(max(offsets) + 1, max(before, *marks)), window)
    return history


@given(channels(), st.integers(0, 70 * HOUR), st.integers(1, 20), st.sampled_from([TUMBLING, SLIDING]))
@example([(i * HOUR, i * HOUR) for i in range(100)], 50 * HOUR, 1, TUMBLING)
def test_no_record_below_the_floor_is_of_an_open_window(
    channel: Channel, closed: int, batches: int, window: Window
) -> None:
    found = floor.floor(history_of(channel, window, batches), closed, window)
    below = channel[:found] if found is not None else []
    assert found is None or channel[found][1] is not None, (
        "how far the partition has come is still told there"
    )
    assert all(window.last_end(time) <= closed for time, _ in below)


def test_the_floor_follows_the_watermark_and_the_history_stays_short() -> None:
    """A month, a record and a mark each minute, the watermark as it is with one partition."""
    history: History = ()
    longest, furthest_behind = 0, 0
    for minute in range(30 * 24 * 60):
        now = minute * MINUTE
        history = floor.extended(history, Step(minute + 1, now), TUMBLING)
        closed = TUMBLING.end_by(now - TUMBLING.late_after)
        found = floor.floor(history, closed, TUMBLING)
        if found is not None:
            history = floor.above(history, found)
            furthest_behind = max(furthest_behind, minute - found)
        longest = max(longest, len(history))
    assert longest <= floor.LONGEST
    # at most: lateness, the window that is open, the one that the steps are apart
    assert furthest_behind <= 120 + 60 + 60


def test_a_history_of_a_partition_that_waits_for_another_is_thinned_out_and_begins_where_it_began() -> None:
    history: History = ()
    for hour in range(1_000):
        history = floor.extended(history, Step(hour + 1, hour * HOUR), TUMBLING)
        assert len(history) <= floor.LONGEST
        assert history[0] == Step(1, 0)
        assert history[-1] == Step(hour + 1, hour * HOUR)


def test_what_says_less_than_was_known_changes_nothing() -> None:
    history = floor.extended((), Step(10, 5 * HOUR), TUMBLING)
    assert floor.extended(history, Step(10, 9 * HOUR), TUMBLING) == history
    assert floor.extended(history, Step(20, 4 * HOUR), TUMBLING) == history


def test_when_all_partitions_have_ended_nothing_is_left_above_the_floor_but_the_end_mark() -> None:
    ended = floor.extended((), Step(10, wire.END), TUMBLING)
    closed = wire.END - TUMBLING.late_after
    assert floor.floor(ended, closed, TUMBLING) == 9
    assert floor.floor(ended, closed - 1, TUMBLING) is None


def test_of_a_function_s_windows_nothing_is_known_so_all_is_kept() -> None:
    history = floor.extended((), Step(10, 0), FUNCTION)
    assert floor.floor(history, 100 * HOUR, FUNCTION) is None


def test_only_floors_above_what_is_there_are_news() -> None:
    assert floor.rising({0: 5, 1: 7, 2: 1}, {0: 5, 1: 6}) == {1: 7, 2: 1}
