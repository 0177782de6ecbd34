"""A worker process on a real broker whose function does not return: what it says, and that it goes on by itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, environment, millrace

pytestmark = pytest.mark.integration

WAITING = """
import os, time

def server_that_never_answers():
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
        time.sleep(0.01)

def kept(value):
    return value["n"] % 2 == 0

def doubled(value):
    if value["n"] == 402:
        server_that_never_answers()
    return {"n": value["n"], "twice": value["n"] * 2}
"""


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def await_that(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"not within 120 s: {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("pool", [None, {"processes": 1}], ids=["inline", "processes"])
def test_a_stuck_stage_is_told_with_its_stack_and_clears(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker, pool: dict[str, int] | None
) -> None:
    numbers = Numbers(tmp_path, topic, bootstrap=kafka.bootstrap, partitions=2)
    numbers.make_topic(kafka.bootstrap)
    numbers.write().send(kafka.bootstrap, 400)
    words = (numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state, "--replicas", 1)
    ended = millrace("run", *words, "--until-end")  # epoch and claims are there from now on
    assert ended.returncode == 0, ended.stdout

    (tmp_path / f"functions_{topic.replace('-', '_')}.py").write_text(WAITING)
    if pool is not None:
        manifest = json.loads(numbers.manifest.read_text())
        manifest["spec"]["stages"][1]["map"]["pool"] = pool
        numbers.manifest.write_text(json.dumps(manifest))
    numbers.send(kafka.bootstrap, 100)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    log = tmp_path / "worker.log"
    with log.open("w") as out:
        command = [
            sys.executable, "-m", "millrace.cli", "worker", "--manifest", numbers.manifest, "--index", 0,
            "--epoch-file", numbers.state / "epoch.json", "--http", address, "--stuck-after", 1.5,
        ]  # fmt: skip
        worker = subprocess.Popen([str(word) for word in command], env=environment(), stdout=out, stderr=out)
    try:

        def status() -> dict[str, Any]:
            code, text = get(address, "/status")
            return json.loads(text) if code == 200 else {}

        await_that(
            lambda: worker.poll() is not None or status().get("stuck"), "the stage is told of as stuck"
        )
        assert worker.poll() is None, log.read_text()
        (stuck,) = status()["stuck"]
        # 402 is the 201st in a partition of every second number
        assert (stuck["stage"], stuck["partition"], stuck["first"], stuck["last"]) == ("doubled", 0, 201, 201)
        assert "stage doubled is stuck at partition 0, offset 201" in status()["reasons"][0]
        assert get(address, "/livez")[0] == 200
        assert 'millrace_stage_stuck_calls{stage="doubled"} 1.0' in get(address, "/metrics")[1]
        await_that(lambda: _events(log, "stage stuck"), "it stands in the log")
        (event,) = _events(log, "stage stuck")
        assert "server_that_never_answers" in event["stack"]
        assert (event["stage"], event["partition"], event["offsets"]) == ("doubled", 0, [201, 201])

        (tmp_path / "go").touch()
        await_that(lambda: not status().get("stuck", True), "it clears")
        await_that(lambda: _events(log, "stage goes on"), "that stands in the log, too")
        await_that(lambda: status().get("positions") == {"0": 250, "1": 250}, "all the rest is processed")
    finally:
        worker.terminate()
        worker.wait(120)
    assert len(_events(log, "stage stuck")) == 1


def _events(log: Path, name: str) -> list[dict[str, Any]]:
    found = []
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            if event.get("event") == name:
                found.append(event)
    return found
