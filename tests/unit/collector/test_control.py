"""The control stream's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.collector.control import Control
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit


def opened(checkpoint: Path) -> Control:
    control = Control(checkpoint)
    control.open()
    return control


def files(control: Control) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(control.folder.iterdir())}


def test_each_watermark_is_a_file_of_its_own_and_what_is_not_higher_is_none(tmp_path: Path) -> None:
    control = opened(tmp_path)
    assert [control.tell(at) for at in (-5, 0, 100, 100, 90, 200)] == [False, False, True, False, False, True]
    assert files(control) == {"00000001.txt": "100\n", "00000002.txt": "200\n"}


def test_it_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    opened(tmp_path).tell(100)
    again = opened(tmp_path)
    assert again.told == 100
    assert (again.tell(100), again.tell(101)) == (False, True)
    assert list(files(again)) == ["00000001.txt", "00000002.txt"]


def test_a_few_files_are_kept_and_no_name_comes_twice(tmp_path: Path) -> None:
    control = opened(tmp_path)
    for at in range(1, 101):
        control.tell(at)
    assert list(files(control)) == [f"{number:08}.txt" for number in range(85, 101)]
    again = opened(tmp_path)
    again.tell(1_000)
    assert list(files(again))[-1] == "00000101.txt"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    control = opened(tmp_path)
    control.tell(5)
    (control.folder / "00000001.txt").write_text("{")
    with pytest.raises(MillraceError, match="damaged") as caught:
        opened(tmp_path)
    assert caught.value.code is ExitCode.CHECKPOINT
