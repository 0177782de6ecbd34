"""What is told of an aggregate's SQL without Spark, and what is left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.expressions import fault, unknown_columns

pytestmark = pytest.mark.unit

COLUMNS = {"carrier", "at", "delay", "of"}


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("avg(dely)", ["dely"]),
        ("sum(`my delay`) + max(Delay)", ["my delay"]),
        ("max(other.delay)", ["other"]),
        ("count_if(a > b and a > delay)", ["a", "b"]),
        ("max(of.anything.below)", []),
        ("sum(case when DELAY > 15 then 1 else 0 end)", []),
        ("cast(avg(delay) as decimal(10, 2))", []),
        ("avg(delay)::int", []),
        ("percentile_cont(0.5) within group (order by delay desc)", []),
        ("extract(year from max(at))", []),
        ("max(DATE '2026-01-31') - INTERVAL '1' DAY", []),
        ("transform(collect_list(delay), x -> x + unknown)", []),
        ("max(delay) /* of all */ -- in minutes", []),
        ("first('delay''s x', true)", []),
        ("approx_percentile(delay, array(0.5, 1e-1D))", []),
    ],
)
def test_only_what_can_be_nothing_but_a_column_is_reported(expression: str, unknown: list[str]) -> None:
    assert fault(expression) is None
    assert unknown_columns(expression, COLUMNS) == unknown


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("avg(delay", "a ) is missing"),
        ("avg(delay))", "a ) has nothing to close"),
        ("array(1][0)", "a ] has nothing to close"),
        ("first('x)", "a ' is not closed"),
        ("max(`delay)", "a ` is not closed"),
        ("max('(')", None),
    ],
)
def test_what_is_left_open_is_told(expression: str, wrong: str | None) -> None:
    assert fault(expression) == wrong


@given(st.text(max_size=60))
def test_any_text_is_looked_at(text: str) -> None:
    fault(text)
    unknown_columns(text, COLUMNS)
