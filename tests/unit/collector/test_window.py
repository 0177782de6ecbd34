"""When windows end: what the watermark and the floor are told by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.collector.query import Window

pytestmark = pytest.mark.unit

SECOND = 1_000_000
MOMENTS = st.integers(-(10**16), 253_402_300_799_000_000)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    slide = draw(st.sampled_from([0.1, 1.0, 7.5, 60.0, 3600.0, 86_400.0]))
    size = slide * draw(st.sampled_from([1, 1, 2, 3, 24]))
    return Window(size=size, slide=slide, time="at", lateness=draw(st.sampled_from([0.0, 1.5, 86_400.0])))


def ends(window: Window, moment: int) -> list[int]:
    """The ends of the windows that a row is in, as Spark's `window` has them."""
    latest = moment - moment % window.step
    begins = range(latest, moment - window.open_for, -window.step)
    return [begin + window.open_for for begin in begins]


@given(windows(), MOMENTS, MOMENTS)
def test_the_moment_that_spark_is_told_closes_the_windows_that_the_exact_one_would(
    window: Window, moment: int, row: int
) -> None:
    told = window.end_by(moment)
    assert told <= moment
    assert [end <= told for end in ends(window, row)] == [end <= moment for end in ends(window, row)]


@given(windows(), MOMENTS, st.integers(0, 10**12))
def test_rows_up_to_a_moment_are_in_no_later_window_than_its_last(
    window: Window, moment: int, before: int
) -> None:
    assert max(ends(window, moment)) == window.last_end(moment)
    assert max(ends(window, moment - before)) <= window.last_end(moment)


def test_the_watermark_of_a_function_moves_by_a_hundredth_of_the_lateness_but_a_minute_at_most() -> None:
    for lateness, step in ((0.0, 1), (10.0, 1), (600.0, 6), (86_400.0, 60)):
        assert Window(time="at", lateness=lateness).step == step * SECOND
    assert Window(time="at", lateness=600.0).end_by(61 * SECOND + 5) == 60 * SECOND
