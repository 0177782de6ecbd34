"""`--until FILE`: the end of a bounded run as a worker reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.engine.bounds import Bounds, BoundsError
from millrace.worker.bounds import read_bounds

pytestmark = pytest.mark.unit


def test_what_the_parent_writes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "until.json"
    file.write_text(Bounds({0: 12, 3: 0}).encode())
    assert read_bounds(file) == Bounds({0: 12, 3: 0})
    assert [read_bounds(file).of(p) for p in range(4)] == [12, 0, 0, 0]


@pytest.mark.parametrize("content", [None, b"", b"\xff", b'{"0": 12}'])
def test_a_file_that_is_missing_or_something_else_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "until.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BoundsError) as caught:
        read_bounds(file)
    assert caught.value.where == str(file)
    assert caught.value.remedy
