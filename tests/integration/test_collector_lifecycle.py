"""`millrace collector` on real Spark: what is pending, all the time, a changed query to the end; and what is seen of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import yaml

from channel import Channel, micros
from millrace.collector import CollectorStatus, status
from millrace.collector.stage import connector
from millrace.errors import ExitCode
from millrace.host import java
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.local.collector import class_data

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

pd = pytest.importorskip("pandas")

NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
Row = dict[str, object]


class Stage:
    """A manifest with a collect stage whose channel is filled by the test, and commands that collect it."""

    def __init__(self, channel: Channel, directory: Path) -> None:
        self.channel, self.directory = channel, directory
        self.storage = directory / "storage"
        self.rows: list[Row] = []
        self.commands: list[subprocess.Popen[bytes]] = []
        self.collect = {
            "schema": "carrier string, scheduled timestamp, delay double",
            "groupBy": ["carrier"],
            "window": {"size": "1h", "time": "scheduled", "lateness": "24h"},
            "aggregate": {"flights": "count(*)"},
            "trigger": {"onLag": {"messages": 1000}},
            "sink": {"parquet": {"path": "results"}},
            "spark": {"conf": {"spark.driver.memory": "700m", "spark.eventLog.enabled": "true"}},
        }

    def write(self, partition: int, count: int, first: datetime, days: float) -> None:
        chance, step = random.Random(partition), timedelta(days=days) / count
        rows: list[Row] = [
            {
                "carrier": chance.choice("ABC"),
                "scheduled": first + step * i + timedelta(seconds=chance.randrange(20 * 3600)),
                "delay": float(chance.randrange(300)),
            }
            for i in range(count)
        ]
        self.rows += rows
        self.channel.write(partition, rows, "scheduled")

    def start(self, *words: object) -> subprocess.Popen[bytes]:
        manifest = self.directory / "pipeline.yaml"
        spec = {
            "kafka": {"bootstrapServers": self.channel.bootstrap},
            "source": {"topic": "nothing", "groupId": self.channel.group.removesuffix(".collect")},
            "stages": [{"name": "collect", "collect": self.collect}],
            "deadLetter": {"topic": "dead"},
        }
        named = {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": "ConsumerPipeline",
            "metadata": {"name": "flights"},
        }
        manifest.write_text(yaml.safe_dump({**named, "spec": spec}))
        command = [
            sys.executable,
            "-m",
            "millrace.cli",
            "collector",
            "--manifest",
            manifest,
            "--storage",
            self.storage,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}",
            # only the quick compiler: the other pays off after minutes, and these runs take seconds
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (self.directory / "said").open("wb") as said:
            started = subprocess.Popen([*map(str, command), *map(str, words)], stderr=said, env=environment)
        self.commands.append(started)
        return started

    def said(self) -> str:
        return (self.directory / "said").read_text()

    def status(self) -> CollectorStatus | None:
        return status.read(self.storage / "collector" / "collect.json")

    def ended(self, command: subprocess.Popen[bytes], code: ExitCode = ExitCode.OK) -> None:
        assert command.wait(400) == code, self.said()

    def until(self, what: str, seen: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 400
        while not seen():
            assert time.monotonic() < deadline, f"not seen: {what}\n{self.said()}"
            assert self.commands[-1].poll() is None, self.said()
            time.sleep(0.05)

    def result(self) -> pd.DataFrame:
        """What is there, of all versions. A group that is there twice stays so."""
        folders = sorted((self.storage / "results").glob("batch=*"))
        return pd.concat([pd.read_parquet(folder).assign(batch=folder.name) for folder in folders])

    def expected(self) -> pd.DataFrame:
        frame = pd.DataFrame(self.rows)
        frame["window_start"] = frame["scheduled"].dt.floor("h")
        grouped = frame.groupby(["carrier", "window_start"], as_index=False)
        return grouped.agg(flights=("carrier", "size"), worst=("delay", "max"))


@pytest.fixture
def stage(kafka: EmbeddedBroker, spark: None, tmp_path: Path) -> Iterator[Stage]:
    class_data.ensure(
        java.find(), connector(), lambda _: None
    )  # before a JVM starts; `make setup` has made it
    stage = Stage(Channel(kafka.bootstrap, 2), tmp_path)
    yield stage
    for command in stage.commands:
        command.kill()
        command.wait()


def test_a_collector_from_its_first_job_to_another_query(stage: Stage) -> None:
    # what is pending: read, written as far as windows are closed, and nothing is left running
    stage.write(0, 2_000, NEW_YEAR, 10)
    stage.write(1, 1_000, NEW_YEAR, 6)
    stage.ended(stage.start("--pending"))
    first = stage.status()
    assert first is not None
    assert (first.state, first.rows, first.version) == ("ended", 3_000, 1)
    assert no_process_of(first.pid)
    latest = max(row["scheduled"] for row in stage.rows[2_000:])
    assert isinstance(latest, datetime)
    closed = latest - timedelta(hours=24)
    assert first.watermark == micros(closed.replace(minute=0, second=0, microsecond=0))
    assert stage.result()["window_end"].max() == pd.Timestamp(closed).floor("h")
    events = list((stage.storage / "collector" / "collect.events").rglob("*"))
    assert any(file.is_file() and b"SparkListenerLogStart" in file.read_bytes() for file in events)

    # all the time: seen over HTTP, alone at work, ended in order
    stage.write(1, 500, NEW_YEAR + timedelta(days=6), 2)
    running = stage.start("--http", "127.0.0.1:0", "--spark-ui", "--attempt", 3, "--restarts", 1)
    stage.until("rows are read", lambda: (found := stage.status()) is not None and found.rows == 500)
    seen = stage.status()
    assert seen is not None
    assert asked(f"http://{seen.http}/livez") == asked(f"http://{seen.http}/readyz") == "ok\n"
    figures = dict(
        line.rsplit(" ", 1) for line in asked(f"http://{seen.http}/metrics").splitlines() if line[0] != "#"
    )
    assert float(figures["millrace_collector_rows_total"]) == 500
    assert float(figures["millrace_collector_state_rows"]) > 0
    assert float(figures["millrace_collector_attempt"]) == 3
    assert float(figures["millrace_collector_restarts"]) == 1
    assert float(figures['millrace_collector_channel_lag_offsets{partition="1"}']) == 0
    assert float(figures["millrace_collector_watermark_lag_seconds"]) > 10 * 365 * 86_400
    assert json.loads(asked(f"http://{seen.http}/status"))["version"] == 1
    assert "flights.collect" in asked(f"{seen.ui}/StreamingQuery/")
    said = stage.said()
    stage.ended(stage.start("--pending"), ExitCode.BUSY)
    assert f"works on this checkpoint: process {seen.pid}, started by process {running.pid}" in stage.said()
    running.send_signal(signal.SIGTERM)
    stage.ended(running)
    assert '"event": "batch done"' in said
    assert no_process_of(seen.pid)
    stopped = stage.status()
    assert stopped is not None
    assert stopped.state == "stopped"

    # another query, to the end: what is written stays, what is open is counted anew
    before = stage.result()
    stage.collect["aggregate"] = {"flights": "count(*)", "worst": "max(delay)"}
    stage.write(1, 500, NEW_YEAR + timedelta(days=8), 2)
    stage.channel.end()
    stage.ended(stage.start("--until-end"))
    assert "its query has changed: version 2 of its checkpoint begins" in stage.said()
    last = stage.status()
    assert last is not None
    assert (last.state, last.version, last.state_rows) == ("ended", 2, 0)
    assert 500 < last.rows <= 4_000, "records of written windows may be deleted by now"
    found = stage.result()
    assert set(found["batch"].str[:9]) == {"batch=001", "batch=002"}
    old, new = found[found["batch"] < "batch=002"], found[found["batch"] >= "batch=002"]
    assert len(old) == len(before)
    assert new["window_end"].min() > old["window_end"].max()
    expected = stage.expected()
    of_new = expected[expected["window_start"] >= old["window_end"].max()].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        new.sort_values(["carrier", "window_start"])[list(of_new)].reset_index(drop=True),
        of_new,
        check_dtype=False,
    )
    assert found["flights"].sum() == len(stage.rows)


def no_process_of(pid: int) -> bool:
    """Whether the process group of a job is empty, but for what nobody has waited for yet."""
    return not [
        process
        for process in psutil.process_iter(["status"])
        if _group(process.pid) == pid and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def asked(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content.decode()
