"""Files: written whole or not at all; and what the disk says is told as what to do."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.clock import VirtualClock
from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace.ownership.epoch import Epoch, EpochError
from millrace.worker.epoch_watch import LOOK_EVERY, EpochWatch
from millrace.worker.files import disk_error, write_whole
from millrace.worker.manifest import unpack

pytestmark = pytest.mark.unit


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "epoch.json"
    write_whole(file, b"one")
    write_whole(file, b"two", durable=True)
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_former_content_and_nothing_else(tmp_path: Path) -> None:
    """A limit on the size of files gives the very error path of a full disk, without a disk to fill."""
    file = tmp_path / "status.json"
    write_whole(file, b"before")
    script = (
        "import sys, resource; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from millrace.worker.files import write_whole; from millrace.errors import MillraceError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    write_whole(Path(sys.argv[1]), b'x' * 100_000)\n"
        "except MillraceError as error:\n    print(error); sys.exit(error.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file), *sys.path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == ExitCode.DISK, done.stderr
    assert "can't write" in done.stdout
    assert "to do: free some space" in done.stdout
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "make /state writable"), (errno.EROFS, "writable")],
)
def test_each_refusal_says_what_to_do(number: int, said: str) -> None:
    error = disk_error(OSError(number, os.strerror(number)), Path("/state/run.json"))
    assert error.code == ExitCode.DISK
    assert said in error.remedy


def test_a_config_map_becomes_a_directory_of_modules_without_what_was_there_before(tmp_path: Path) -> None:
    unpack({"flights.py": "A = 1\n", "weather.csv": "x\n"}, tmp_path / "code")
    unpack({"flights.py": "A = 2\n"}, tmp_path / "code")
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["flights.py"]
    assert (tmp_path / "code" / "flights.py").read_text() == "A = 2\n"


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/b.py", "..", ""])
def test_a_config_map_cannot_write_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ManifestError):
        unpack({name: ""}, tmp_path / "code")
    assert not (tmp_path / "x.py").exists()


def test_an_epoch_is_seen_when_its_file_changes(tmp_path: Path) -> None:
    clock = VirtualClock()
    file = tmp_path / "epoch.json"
    watch = EpochWatch(file, clock)
    assert watch() is None
    write_whole(file, Epoch("u", 1, 4, 2, 2).encode().encode())
    clock.advance(LOOK_EVERY)
    assert watch() == Epoch("u", 1, 4, 2, 2)
    write_whole(file, Epoch("u", 2, 4, 3, 3).encode().encode())
    assert watch() == Epoch("u", 1, 4, 2, 2)
    clock.advance(LOOK_EVERY)
    assert watch() == Epoch("u", 2, 4, 3, 3)
    file.unlink()
    clock.advance(LOOK_EVERY)
    assert watch() == Epoch("u", 2, 4, 3, 3)


def test_a_damaged_epoch_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "epoch.json"
    file.write_bytes(b"\xff{")
    with pytest.raises(EpochError) as error:
        EpochWatch(file, VirtualClock())()
    assert error.value.where == str(file)
    assert isinstance(error.value, MillraceError)
