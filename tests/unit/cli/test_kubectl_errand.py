"""A pod sent on an errand: made, heard, and taken away, with a kubectl that says what a test wants."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from millrace.cli.dlq.in_pod import Show
from millrace.cli.errand.in_pod import Found
from millrace.cli.errand.wire import PIECE, Voice
from millrace.cli.kubectl.client import Kubectl, KubectlFailed, Scope
from millrace.cli.kubectl.errand.hearing import _waits
from millrace.cli.kubectl.errand.pod import TOKEN, Errand
from millrace.cli.kubectl.errand.sending import Place, rehearse, send
from millrace.clock import Deadline, SystemClock, VirtualClock
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
# get KIND: the file of that name; logs: the file `followed` or `log`; create fails once with what is in `refused`.
KUBECTL = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >> calls
case "$1 $*" in
get*) cat "$2" 2>/dev/null || { echo 'Error from server (NotFound): not found' >&2; exit 1; } ;;
create*) cat > created; test ! -f refused || { cat refused >&2; rm refused; exit 1; } ;;
logs*--follow*) exec cat followed ;;
logs*) cat log ;;
esac
"""
PIPELINE = {"metadata": {"name": "flights", "namespace": "air", "uid": "u-1"}}
WORKER = {"name": "worker", "command": ["millrace"], "args": ["worker", "--manifest=/m/pipeline.yaml"]}
STATEFUL = {
    "metadata": {"ownerReferences": [{"uid": "u-1"}]},
    "spec": {"template": {"spec": {"containers": [WORKER]}}},
}
ERRAND = Errand.of("dlq", Show(0, 17), ("--manifest=",), alone=True, patience=60)


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kubectl").write_text(KUBECTL)
        (folder / "kubectl").chmod(0o755)
        self.write("consumerpipelines.millrace.dev", PIPELINE)
        self.write("statefulset", STATEFUL)
        self.write("followed", "")
        self.phase("Running")

    def write(self, name: str, content: object) -> None:
        (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def phase(self, phase: str, **status: object) -> None:
        self.write("pod", {"status": {"phase": phase, **status}})

    def answers(self, found: object, *messages: str) -> list[str]:
        out = io.StringIO()
        voice = Voice(out)
        for message in messages:
            voice.say(message)
        voice.answer(msgspec.json.encode(Found(msgspec.Raw(msgspec.json.encode(found)))))
        return out.getvalue().splitlines()

    def send(self, patience: float = 60) -> list[int]:
        place = Place(Kubectl(Scope()), "flights", patience, VirtualClock())
        return send(place, place.pipeline(), ERRAND, list[int])

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def taken_away(self) -> bool:
        return f"delete pods --selector {TOKEN}={ERRAND.token} --wait=false" in self.calls


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Desk(tmp_path)


def test_messages_are_shown_and_the_answer_is_had_as_it_comes(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.write("followed", "\n".join(["rdkafka: noise", *desk.answers([7], "500 looked at")]))
    assert desk.send() == [7]
    assert capsys.readouterr() == ("", "500 looked at\n")
    assert json.loads((desk.folder / "created").read_text())["metadata"]["name"] == "flights.dlq"
    assert desk.calls[-1].startswith("delete")
    assert desk.taken_away


def test_a_log_that_breaks_off_is_read_again_and_nothing_is_told_twice(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = desk.answers([7], "one", "two")
    desk.write("followed", "\n".join(whole[:1]))
    desk.write("log", "\n".join(whole))
    desk.phase("Succeeded")
    assert desk.send() == [7]
    assert capsys.readouterr().err == "one\ntwo\n"


def test_an_answer_that_was_cut_is_no_answer(desk: Desk) -> None:
    desk.phase("Succeeded")
    noise = [random.Random(n).getrandbits(60) for n in range(PIECE)]  # that compresses badly
    desk.write("log", "\n".join(desk.answers(noise)[2:]))
    with pytest.raises(MillraceError, match="was cut: 2 pieces") as raised:
        desk.send()
    assert "containerLogMaxSize" in raised.value.where
    assert desk.taken_away


def test_a_pod_that_ends_without_an_answer_is_told_with_its_last_words(desk: Desk) -> None:
    mesh = {"name": "mesh", "state": {"running": {}}}
    own = {"name": "errand", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}
    desk.phase("Running", containerStatuses=[mesh, own])  # a container that others have added never ends
    desk.write("log", "Error: No such command 'in-pod'\n")
    with pytest.raises(MillraceError, match="No such command") as raised:
        desk.send()
    assert (raised.value.code, "version of millrace" in raised.value.remedy) == (ExitCode.USAGE, True)
    desk.phase("Failed", reason="DeadlineExceeded")
    with pytest.raises(MillraceError, match="DeadlineExceeded") as raised:
        desk.send()
    assert "--timeout" in raised.value.remedy


def test_another_one_at_work_is_left_alone_and_one_that_has_ended_is_not_in_the_way(desk: Desk) -> None:
    refused = 'Error from server (AlreadyExists): pods "flights.dlq" already exists'
    desk.write("refused", refused)
    with pytest.raises(MillraceError, match="another `kubectl millrace dlq`") as raised:
        desk.send()
    assert raised.value.code is ExitCode.BUSY
    place = Place(Kubectl(Scope()), "flights", 60, VirtualClock())
    desk.write("refused", refused)
    with pytest.raises(MillraceError, match="another `kubectl millrace dlq`"):
        rehearse(place, place.pipeline(), ERRAND)
    assert not any(call.startswith("delete") for call in desk.calls)
    desk.write("refused", refused)
    going = {"deletionTimestamp": "now", "labels": {TOKEN: "old"}}
    desk.write("pod", {"metadata": going, "status": {"phase": "Running"}})
    desk.write("followed", "\n".join(desk.answers([7])))
    assert desk.send() == [7]
    assert f"delete pods --selector {TOKEN}=old --timeout=60s" in desk.calls


def test_what_is_not_made_is_not_taken_away(desk: Desk) -> None:
    desk.write("refused", "Error from server (Forbidden): pods is forbidden")
    with pytest.raises(KubectlFailed):
        desk.send()
    assert not any(call.startswith("delete") for call in desk.calls)


def test_the_wait_has_an_end(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    desk.phase("Pending", conditions=[unscheduled])
    with pytest.raises(MillraceError, match="no room"):
        desk.send(patience=2)
    assert capsys.readouterr().err == "pod flights.dlq waits: Unschedulable: no room\n"  # once
    assert desk.taken_away
    desk.phase("Pending", containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}])
    with pytest.raises(MillraceError, match="ImagePullBackOff"):
        desk.send(patience=10**6)


def test_a_pod_that_somebody_else_deletes_is_told_as_that(desk: Desk) -> None:
    (desk.folder / "pod").unlink()
    with pytest.raises(MillraceError, match="deleted by somebody else"):
        desk.send()


def test_what_a_pod_waits_for_is_named_by_its_reason_first() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    assert _waits({"status": {"containerStatuses": [waiting]}}) == "ImagePullBackOff: no such image"
    usual = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    assert _waits({"status": {"containerStatuses": [usual]}}) == ""
    assert _waits({}) == ""


def test_ctrl_c_takes_the_pod_away(desk: Desk) -> None:
    """A log that never ends: the reading of a pipe that nobody writes to."""
    (desk.folder / "followed").unlink()
    os.mkfifo(desk.folder / "followed")
    command = [sys.executable, "-m", "millrace.cli.kubectl", "dlq", "show", "flights", "0:17"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = Deadline.after(SystemClock(), 240)
        while not any(
            "--follow" in call for call in (desk.calls if (desk.folder / "calls").exists() else ())
        ):
            assert not deadline.expired()
            assert process.poll() is None
            deadline.clock.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ExitCode.INTERRUPTED
    token = json.loads((desk.folder / "created").read_text())["metadata"]["labels"][TOKEN]
    assert desk.calls[-1] == f"delete pods --selector {TOKEN}={token} --wait=false"
