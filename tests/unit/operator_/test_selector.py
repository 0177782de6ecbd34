"""An operator's choice of pipelines by their labels: Kubernetes' own language for it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.selector import Selector

pytestmark = pytest.mark.unit

AIR = {"team": "air", "example.com/tier": "gold", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("", True),
        ("  ", True),
        ("team", True),
        ("team=air", True),
        ("team == air", True),
        ("team!=air", False),
        ("!team", False),
        ("! legacy", True),
        ("team in (sea, air)", True),
        ("team in (sea)", False),
        ("team notin (sea,space)", True),
        ("example.com/tier=gold,team in (air),!legacy", True),
        ("example.com/tier=gold,team=sea", False),
        ("empty=", True),
        ("team=", False),
        # a label that is not there has no value: it is not one of these
        ("other!=x", True),
        ("other notin (x)", True),
        ("other in (x)", False),
    ],
)
def test_what_is_selected(text: str, selects: bool) -> None:
    assert Selector.parse(text).selects(AIR) is selects


@pytest.mark.parametrize(
    "text", ["team=air;", "=air", "team in air", "team in (air", "a b", ",", "team=air,", "in (a)"]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"selector|comma"):
        Selector.parse(text)


@given(st.text(alphabet="ab=!,() inot", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        Selector.parse(text).selects({"a": "b"})
