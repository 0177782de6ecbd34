"""The state directory: one user at a time, and bound to one pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace.local.state import StateDirectory

pytestmark = pytest.mark.unit

ABOUT = {"pipeline": "flights", "group_id": "default.flights", "topic": "flights", "manifest": "/p.yaml"}


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state")
    directory.create()
    return directory


def test_a_second_user_at_the_same_time_is_refused(state: StateDirectory) -> None:
    with state.locked():
        with pytest.raises(MillraceError) as refused, StateDirectory(state.path).locked():
            pass
        assert refused.value.code == ExitCode.BUSY
        assert "process" in refused.value.what
        assert refused.value.remedy
    with state.locked():
        pass


def test_a_user_that_is_killed_leaves_no_lock(state: StateDirectory) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
            "from millrace.local.state import StateDirectory\n"
            "with StateDirectory(Path(sys.argv[1])).locked():\n"
            "    print('held', flush=True); sys.stdin.read()",
            str(state.path),
            *sys.path,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert state.in_use() == holder.pid
    holder.kill()
    holder.communicate()
    assert state.in_use() is None
    with state.locked():
        pass


def test_the_uid_is_made_once(state: StateDirectory) -> None:
    first = state.belong_to(kafka="embedded", **ABOUT)
    again = state.belong_to(kafka="embedded", **ABOUT)
    assert first.uid == again.uid
    assert len(first.uid) >= 16
    assert json.loads(state.record_file.read_text())["uid"] == first.uid


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"pipeline": "trains"}, "metadata.name"),
        ({"group_id": "other"}, "spec.source.groupId"),
        ({"topic": "trains"}, "spec.source.topic"),
    ],
)
def test_what_may_not_change_is_refused_with_its_path(
    state: StateDirectory, change: dict[str, str], path: str
) -> None:
    state.belong_to(kafka="embedded", **ABOUT)
    with pytest.raises(ManifestError) as refused:
        state.belong_to(kafka="embedded", **{**ABOUT, **change})
    assert refused.value.where == path
    assert "--state" in refused.value.remedy


def test_an_embedded_broker_is_not_exchanged_for_another(state: StateDirectory) -> None:
    state.belong_to(kafka="embedded", **ABOUT)
    with pytest.raises(ManifestError, match="runs with an embedded broker"):
        state.belong_to(kafka="external", **ABOUT)


def test_a_damaged_record_is_not_taken_for_a_new_run(state: StateDirectory) -> None:
    state.record_file.write_text("{")
    with pytest.raises(MillraceError) as error:
        state.belong_to(kafka="embedded", **ABOUT)
    assert error.value.code == ExitCode.DISK


def test_a_path_that_is_no_directory_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MillraceError) as error:
        StateDirectory(tmp_path / "file" / "state").create()
    assert error.value.code == ExitCode.DISK
    assert error.value.remedy
