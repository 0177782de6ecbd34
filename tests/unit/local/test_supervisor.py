"""Supervision, with real processes: small ones that behave as told."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from millrace.clock import SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.local.backoff import Backoff
from millrace.local.state import StateDirectory
from millrace.local.supervisor import Supervisor

pytestmark = pytest.mark.unit

WORKER = """
import json, os, signal, sys, time
index, status, behaviour = int(sys.argv[1]), sys.argv[2], sys.argv[3]
address = ""
stuck = []
def say(state, ready, error=None, messages=0, positions={}):
    text = json.dumps({"index": index, "pid": os.getpid(), "started": 0, "updated": time.time(), "state": state,
                       "ready": ready, "error": error, "messages": messages, "positions": positions, "http": address,
                       "stuck": stuck})
    with open(status + ".new", "w") as file: file.write(text)
    os.replace(status + ".new", status)
def end(*_):
    say("stopped", False); sys.exit(0)
signal.signal(signal.SIGTERM, end)
if behaviour == "crash": sys.exit(1)
if behaviour == "poison": say("running", True, messages=500, positions={"0": 17}); os._exit(1)
if behaviour == "moving": say("running", True, messages=1, positions={"0": time.monotonic_ns()}); os._exit(1)
if behaviour == "stage":
    say("failed", False, {"what": "ValueError: no delay", "where": "stage score, partition 3, offset 17",
                          "remedy": "mend it", "code": 8})
    sys.exit(8)
if behaviour == "silent": print("out of luck", flush=True); os._exit(7)
if behaviour == "no room": print(json.dumps({"what": "no such module", "where": "spec", "todo": "mend it", "code": 4,
                                             "event": "failed"}), "\\n{}", flush=True); sys.exit(4)
if behaviour == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
if behaviour == "full":
    import http.server, threading
    class Live(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.send_response(200 if self.path == "/livez" else 404); self.end_headers()
        def log_message(self, *_): pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Live)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = "127.0.0.1:%d" % server.server_port
say("running", True)
if behaviour == "stuck stage":
    stuck = [{"stage": "score", "partition": 3, "first": 17, "last": 17, "seconds": 75.0, "calls": 1}]
import faulthandler; faulthandler.register(signal.SIGUSR1)
while True:
    time.sleep(0.05)
    if behaviour not in ("stuck", "full"): say("running", True)
"""

Make = Callable[..., Supervisor]


def until(condition: Callable[[], bool], supervisor: Supervisor, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        supervisor.tick()
        time.sleep(0.01)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    state = StateDirectory(tmp_path / "state")
    state.create()
    return state


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def make(state: StateDirectory, notices: list[str]) -> Iterator[Make]:
    made: list[Supervisor] = []

    def make(*behaviours: str) -> Supervisor:
        def command(index: int) -> Sequence[str]:
            status = str(state.worker_status(index))
            return [sys.executable, "-c", WORKER, str(index), status, behaviours[index]]

        supervisor = Supervisor(
            state,
            SystemClock(),
            command,
            dict(os.environ),
            lambda text, level: notices.append(f"{level}: {text}"),
            backoff=lambda: Backoff(first=0.01, longest=0.02, patience=3),
            stuck_after=2.0,
        )
        made.append(supervisor)
        supervisor.start(range(len(behaviours)))
        return supervisor

    yield make
    for supervisor in made:
        supervisor.kill()


def test_workers_are_ready_when_they_say_so(make: Make) -> None:
    supervisor = make("work", "work")
    until(lambda: supervisor.ready() == {0, 1}, supervisor)
    assert [worker.state for worker in supervisor.snapshots()] == ["running", "running"]


def test_a_killed_worker_is_started_again_and_the_others_go_on(make: Make, notices: list[str]) -> None:
    supervisor = make("work", "work")
    until(lambda: supervisor.ready() == {0, 1}, supervisor)
    first, other = (worker.pid for worker in supervisor.snapshots())
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: supervisor.snapshots()[0].restarts == 1 and supervisor.ready() == {0, 1}, supervisor)
    assert supervisor.snapshots()[0].pid != first
    assert supervisor.snapshots()[1].pid == other
    assert notices == ["warning: worker 0 was killed by SIGKILL; again in 0.0 s"]


def test_a_worker_with_a_stuck_stage_says_so_once_and_is_let_alone(make: Make, notices: list[str]) -> None:
    supervisor = make("stuck stage")
    until(lambda: supervisor.snapshots()[0].state == "stuck", supervisor)
    told = supervisor.statuses()[0].updated
    until(lambda: supervisor.statuses()[0].updated > told + 0.2, supervisor)
    assert supervisor.snapshots()[0].detail == "score stuck 0:01:15"
    assert supervisor.snapshots()[0].restarts == 0
    assert notices == ["warning: worker 0: stage score is stuck at partition 3, offset 17; stack in its log"]


def test_a_worker_whose_loop_is_stuck_is_ended_and_leaves_its_stack(
    make: Make, state: StateDirectory, notices: list[str]
) -> None:
    supervisor = make("stuck", "work")
    until(lambda: supervisor.ready() == {0, 1}, supervisor)
    other = supervisor.snapshots()[1].pid
    until(lambda: supervisor.snapshots()[0].restarts == 1, supervisor)
    assert notices[0] == "warning: worker 0 made no progress for 2 s"
    assert "most recent call first" in state.worker_log(0).read_text()
    assert supervisor.snapshots()[1].pid == other


def test_a_worker_that_only_crashes_is_given_up(make: Make, state: StateDirectory) -> None:
    supervisor = make("crash")
    with pytest.raises(MillraceError, match="failed 4 times in a row") as error:
        until(lambda: False, supervisor)
    assert error.value.code == ExitCode.FAILED
    assert error.value.where == str(state.worker_log(0))


def test_a_worker_that_dies_at_the_same_message_again_and_again_is_given_up(make: Make) -> None:
    supervisor = make("poison")
    with pytest.raises(MillraceError, match="worker 0 failed 4 times in a row"):
        until(lambda: False, supervisor)


def test_a_worker_that_gets_further_each_time_is_started_as_often_as_it_takes(make: Make) -> None:
    supervisor = make("moving")
    until(lambda: supervisor.snapshots()[0].restarts >= 6, supervisor)


def test_an_error_of_the_users_ends_the_run_with_its_words_and_code(make: Make) -> None:
    supervisor = make("stage")
    with pytest.raises(MillraceError, match="ValueError: no delay") as error:
        until(lambda: False, supervisor)
    assert error.value.code == ExitCode.STAGE_FAILED
    assert "stage score, partition 3, offset 17; worker 0" in error.value.where
    assert error.value.remedy == "mend it"


def test_a_worker_that_could_write_no_status_is_believed_by_its_log(make: Make) -> None:
    supervisor = make("no room")
    with pytest.raises(MillraceError, match="no such module") as error:
        until(lambda: False, supervisor)
    assert error.value.code == ExitCode.FUNCTION
    assert error.value.remedy == "mend it"
    assert supervisor.snapshots()[0].restarts == 0


def test_an_exit_code_that_nothing_explains_is_no_reason_of_ours(make: Make, notices: list[str]) -> None:
    """The user's function has called os._exit(7), which is not to say that a topic is missing."""
    supervisor = make("silent")
    with pytest.raises(
        MillraceError, match="failed 4 times in a row; at last it ended with exit code 7: out of luck"
    ) as error:
        until(lambda: False, supervisor)
    assert error.value.code == ExitCode.FAILED
    assert notices[0] == "warning: worker 0 ended with exit code 7; again in 0.0 s"


def test_a_worker_whose_status_is_old_and_that_says_it_lives_is_left_alone(
    make: Make, notices: list[str]
) -> None:
    supervisor = make("full", "stuck")
    until(lambda: supervisor.ready() == {0, 1}, supervisor)
    first = supervisor.snapshots()[0].pid
    until(lambda: supervisor.snapshots()[1].restarts == 2, supervisor)
    assert supervisor.snapshots()[0].pid == first
    assert [notice for notice in notices if "worker 0" in notice] == []


def test_workers_drain_when_asked_and_are_not_started_again(make: Make, notices: list[str]) -> None:
    supervisor = make("work", "work")
    until(lambda: supervisor.ready() == {0, 1}, supervisor)
    supervisor.drain()
    until(lambda: supervisor.running() == 0, supervisor)
    assert [worker.state for worker in supervisor.snapshots()] == ["stopped", "stopped"]
    assert notices == []


def test_a_worker_that_does_not_listen_can_be_killed(make: Make) -> None:
    supervisor = make("deaf")
    until(lambda: supervisor.ready() == {0}, supervisor)
    supervisor.drain()
    supervisor.tick()
    assert supervisor.running() == 1
    supervisor.kill()
    assert supervisor.running() == 0
