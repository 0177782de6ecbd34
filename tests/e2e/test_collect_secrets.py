"""A pipeline with a collect stage against a broker with TLS and SASL: it works, and no secret is to be found anywhere:
not in a log, in Spark's event log, on its pages, in its checkpoint, in a file of the state directory, nor in the
arguments or the environment of any process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafka_fixture import SecureKafka
from millrace.local.broker import addresses
from numbers_pipeline import Numbers, Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

COUNT = 3_000
FUNCTIONS = """
from datetime import datetime, timedelta, UTC

def row(value):
    n = value["n"]
    return {"kind": "abc"[n % 3], "at": datetime(2026, 1, 31, 22, tzinfo=UTC) + timedelta(seconds=7 * n)}
"""
UNHEEDED = {"broker.address.ttl": "500", "ssl.sigalgs.list": "ECDSA+SHA256:RSA+SHA256:RSA-PSS+SHA256"}


def test_a_collector_with_credentials_reaches_the_end_and_shows_none_of_them(
    tmp_path: Path, topic: str, kafka_tls: SecureKafka, spark: None
) -> None:
    numbers = Numbers(tmp_path, topic).write()
    port = addresses.choose(tmp_path).plain
    _collect(numbers, port)
    numbers.make_topic(kafka_tls.broker.bootstrap)
    numbers.send(kafka_tls.broker.bootstrap, COUNT)
    secrets = _secrets(tmp_path / "secrets", kafka_tls)
    seen = Seen(port)
    with Run(
        numbers.manifest, "--kafka", kafka_tls.bootstrap, "--secrets", secrets, "--state", numbers.state,
        "--until-end", "--replicas", 2,
    ) as run:  # fmt: skip
        while run.process.poll() is None:
            seen.look(run.process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(0.1)
        code, out, err = run.wait()
    assert (code, err) == (0, ""), out
    assert f"{COUNT:,} rows collected" in out
    assert "ssl.sigalgs.list: heeded by workers and not by the collector" in out

    assert {"java", "worker", "millrace.collector.job"} <= seen.kinds()
    assert {"environment/", "api/environment"} <= seen.pages.keys()
    places = {"output": out, **seen.pages, **seen.processes, **dict(_files(tmp_path, secrets))}
    key = kafka_tls.key.splitlines()[1]
    found = [name for name, text in places.items() if "alice-secret" in text or key in text]
    assert not found
    searched = "\n".join(places)
    for place in (
        "/events/",
        "/by-kind/v1/offsets/",
        "/by-kind.spark.log",
        "/by-kind.log",
        "job.json",
        "/workers/",
    ):
        assert place in searched, f"{place} was not searched"


class Seen:
    """What can be seen of a run from outside while it lives."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.processes: dict[str, str] = {}
        self.pages: dict[str, str] = {}

    def look(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            run = psutil.Process(pid)
            for process in (run, *run.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    words, environment = process.cmdline(), process.environ()
                    self.processes[f"{process.pid} {' '.join(words)}"] = f"{words} {environment}"
        if "api/environment" not in self.pages:
            self._browse()

    def kinds(self) -> set[str]:
        return {
            kind
            for name in self.processes
            for kind in ("java", "worker", "millrace.collector.job")
            if kind in name
        }

    def _browse(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is not there yet, or still starting
            applications = json.loads(self._get("api/v1/applications"))
            for page in ("environment/", "SQL/", "StreamingQuery/", "jobs/"):
                self.pages[page] = self._get(page)
            self.pages["api/environment"] = self._get(
                f"api/v1/applications/{applications[0]['id']}/environment"
            )

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())


def _collect(numbers: Numbers, port: int) -> None:
    events = numbers.directory / "events"
    events.mkdir()
    manifest = json.loads(numbers.manifest.read_text())
    manifest["spec"]["kafka"]["properties"] = UNHEEDED
    manifest["spec"]["stages"] = [
        {"name": "row", "map": {"function": "rows:row"}},
        {
            "name": "by-kind",
            "collect": {
                "schema": "kind string, at timestamp",
                "groupBy": ["kind"],
                "window": {"size": "1h", "time": "at", "lateness": "10m"},
                "aggregate": {"numbers": "count(*)"},
                "trigger": {"interval": "1s"},
                "sink": {"parquet": {"path": "results"}},
                "spark": {
                    "conf": {
                        "spark.ui.enabled": "true",
                        "spark.ui.port": str(port),
                        "spark.eventLog.enabled": "true",
                        "spark.eventLog.compress": "false",
                        "spark.eventLog.dir": events.as_uri(),
                    }
                },
            },
        },
    ]
    del manifest["spec"]["deadLetter"]
    numbers.manifest.write_text(json.dumps(manifest))
    (numbers.directory / "rows.py").write_text(FUNCTIONS)


def _secrets(directory: Path, kafka: SecureKafka) -> Path:
    directory.mkdir()
    (directory / "username").write_text("alice\n")
    (directory / "password").write_text("alice-secret\n")
    (directory / "ca.crt").write_bytes(kafka.ca.read_bytes())
    (directory / "user.crt").write_text(kafka.certificate)
    (directory / "user.key").write_text(kafka.key)
    return directory


def _files(directory: Path, but: Path) -> Iterator[tuple[str, str]]:
    for path in directory.rglob("*"):
        if path.is_file() and but not in path.parents:
            yield str(path), path.read_bytes().decode(errors="replace")
