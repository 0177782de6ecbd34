"""A pipeline with a collect stage and a topic for its results against a broker with TLS and SASL: it works, whoever the
client is (librdkafka's of workers, control plane and sink, Java's of Spark), and no secret is to be found anywhere: not in a log, in Spark's event log, on its pages, in its checkpoint, in a file of the state directory, nor in the
arguments or the environment of any process.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from kafka_fixture import SecureKafka
from millrace.local.broker import addresses
from numbers_pipeline import Numbers, Run, await_that, read_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

COUNT = 3_000
FUNCTIONS = """
from datetime import datetime, timedelta, UTC

def row(value):
    n = value["n"]
    return {"kind": "abc"[n % 3], "at": datetime(2026, 1, 31, 22, tzinfo=UTC) + timedelta(seconds=7 * n)}
"""
UNHEEDED = {"broker.address.ttl": "500", "ssl.sigalgs.list": "ECDSA+SHA256:RSA+SHA256:RSA-PSS+SHA256"}


def test_a_collector_with_credentials_collects_and_shows_none_of_them(
    tmp_path: Path, topic: str, kafka_tls: SecureKafka, spark: None
) -> None:
    numbers = Numbers(tmp_path, topic).write()
    port, output = addresses.choose(tmp_path).plain, f"{topic}.counted"
    _collect(numbers, port, output)
    numbers.make_topic(kafka_tls.broker.bootstrap)
    numbers.send(kafka_tls.broker.bootstrap, COUNT)
    secrets = _secrets(tmp_path / "secrets", kafka_tls)
    seen = Seen(port)
    # without an end: it is there for as long as looking at it takes
    with Run(
        numbers.manifest, "--kafka", kafka_tls.bootstrap, "--secrets", secrets, "--state", numbers.state,
        "--replicas", 2,
    ) as run:  # fmt: skip
        await_that(lambda: seen.look(run.process.pid), "Spark's pages", run, seconds=300)
        await_that(
            lambda: counted(kafka_tls.broker.bootstrap, output) == expected(), "results", run, seconds=300
        )
        run.interrupt()
        code, out, err = run.wait()
    assert (code, err) == (0, ""), out
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


def counted(bootstrap: str, topic: str) -> list[tuple[str, str, int]]:
    results = map(json.loads, read_all(bootstrap, topic))
    return sorted((row["kind"], row["window_start"], row["numbers"]) for row in results)


def expected() -> list[tuple[str, str, int]]:
    """Of the five hours that are closed when all is read: a row comes each seven seconds."""
    hours = (
        (n, datetime(2026, 1, 31, 22, tzinfo=UTC) + timedelta(hours=7 * n // 3600)) for n in range(COUNT)
    )
    counts = Counter(("abc"[n % 3], f"{hour:%Y-%m-%dT%H:%M:%S}.000000Z") for n, hour in hours)
    return sorted((*group, count) for group, count in counts.items() if group[1] < "2026-02-01T03")


class Seen:
    """What can be seen of a run from outside while it lives."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.processes: dict[str, str] = {}
        self.pages: dict[str, str] = {}

    def look(self, pid: int) -> bool:
        """Whether all there is has been seen."""
        with contextlib.suppress(psutil.NoSuchProcess):
            run = psutil.Process(pid)
            for process in (run, *run.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    words, environment = process.cmdline(), process.environ()
                    self.processes[f"{process.pid} {' '.join(words)}"] = f"{words} {environment}"
        if "api/environment" not in self.pages:
            self._browse()
        return "api/environment" in self.pages

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
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=60) as answer:
            return str(answer.read().decode())


def _collect(numbers: Numbers, port: int, output: str) -> None:
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
                "sink": {"kafka": {"topic": output, "key": ["kind"], "create": {"partitions": 2}}},
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
