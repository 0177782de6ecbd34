"""docs/watermarks.svg is what its script draws, and what it shows follows the rules of the collector."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    return importlib.import_module("picture_watermarks"), importlib.import_module("watermark_story")


def test_the_picture_is_current(modules: tuple[ModuleType, ModuleType]) -> None:
    drawn = modules[0].picture()
    assert drawn == (ROOT / "docs" / "watermarks.svg").read_text(), "make picture-watermarks"


def test_no_row_of_the_story_comes_after_its_window_was_written(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    story = modules[1]
    batches, bars = story.run()
    records = [record for batch in batches for record in batch.records]
    rows = [record for record in records if record.kind is story.Kind.ROW]
    assert sum(bar.rows for bar in bars) == len(rows)
    for bar in bars:
        mine = [row for row in rows if bar.start <= row.time < bar.start + story.SIZE]
        assert (bar.rows, bar.first) == (len(mine), mine[0].at)
        assert mine[-1].at < bar.written
    assert {record.kind for record in records} == set(story.Kind), "it shows each kind of record"


def test_the_storys_watermark_never_goes_back_and_is_never_ahead_of_a_partition(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    story = modules[1]
    batches, _ = story.run()
    marks = [batch.watermark for batch in batches if batch.watermark is not None]
    assert marks == sorted(marks)
    for before, batch in itertools.pairwise(batches):
        for record in batch.records:
            if record.kind is story.Kind.ROW and before.watermark is not None:
                assert record.time >= before.watermark
