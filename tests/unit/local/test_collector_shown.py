"""What the console sink shows reaches the terminal, once, and nothing else of the log does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.local.collector.shown import Shown

pytestmark = pytest.mark.unit


def said(log: Path, *events: object, end: str = "\n") -> None:
    with log.open("a") as file:
        file.write(
            "\n".join(event if isinstance(event, str) else json.dumps(event) for event in events) + end
        )


def test_rows_of_batches_are_shown_as_they_come(tmp_path: Path) -> None:
    log = tmp_path / "by-kind.log"
    said(log, {"event": "result", "batch": "001-00000000", "row": {"of": "a former run"}})
    shown = Shown(log)
    assert list(shown.new()) == []
    said(log, "26/11/21 WARN not JSON", {"event": "batch done", "rows": 3})
    said(log, {"event": "result", "batch": "001-00000001", "row": {"kind": "\u00e9", "numbers": 2}})
    said(log, {"event": "more results", "batch": "001-00000001", "rows": 1200})
    said(log, '{"event": "result", "batch": "00', end="")
    assert list(shown.new()) == [
        '001-00000001 {"kind": "\\u00e9", "numbers": 2}',
        "001-00000001 and 1,200 more",
    ]
    assert list(shown.new()) == []
    said(log, '1-00000002", "row": {}}')
    assert list(shown.new()) == ["001-00000002 {}"]


def test_a_log_that_is_put_aside_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "by-kind.log"
    shown = Shown(log)
    assert list(shown.new()) == []
    said(log, {"event": "batch done", "rows": 3_000_000_000_000}, {"event": "batch done", "rows": 3})
    assert list(shown.new()) == []
    log.rename(tmp_path / "by-kind.log.1")
    said(log, {"event": "result", "batch": "2", "row": {"n": 1}})
    assert list(shown.new()) == ['2 {"n": 1}']
