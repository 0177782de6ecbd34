"""A collector with the trigger `onLag: {age}`, as a user runs it: no JVM while nothing has waited for so long, then a job
for what waits, and no JVM again.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psutil
import pytest

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, Run, await_that, status

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

FUNCTIONS = """
from datetime import datetime, timedelta, UTC

def row(value):
    n = value["n"]
    return {"kind": "abc"[n % 3], "at": datetime(2026, 1, 31, 22, tzinfo=UTC) + timedelta(seconds=2 * n)}
"""
# A partition that rests may be told by marks of what has come in another: what is sent at once is within the lateness.
STAGES = [
    {"name": "row", "map": {"function": "rows:row"}},
    {
        "name": "by-kind",
        "collect": {
            "schema": "kind string, at timestamp",
            "groupBy": ["kind"],
            "window": {"size": "5m", "time": "at", "lateness": "40m"},
            "aggregate": {"numbers": "count(*)"},
            "trigger": {"onLag": {"age": "4s"}},
            "sink": {"parquet": {"path": "results"}},
        },
    },
]


def test_what_has_waited_long_enough_is_collected_by_a_job_that_is_gone_afterwards(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker, spark: None
) -> None:
    numbers = Numbers(tmp_path, topic).write()
    manifest = json.loads(numbers.manifest.read_text())
    manifest["spec"]["stages"] = STAGES
    del manifest["spec"]["deadLetter"]
    numbers.manifest.write_text(json.dumps(manifest))
    (tmp_path / "rows.py").write_text(FUNCTIONS)
    numbers.make_topic(kafka.bootstrap)

    with Run(numbers.manifest, "--kafka", kafka.bootstrap, "--state", numbers.state) as run:
        await_that(lambda: status(numbers.state).get("state") == "running", "the run is up", run)
        assert collector(numbers)["state"] == "waiting"
        assert collector(numbers)["attempts"] == 0, "nothing waits"

        for rows, windows in ((1_000, 0), (2_000, 5)):
            before = collector(numbers)["attempts"]
            numbers.send(kafka.bootstrap, 1_000)  # 2,000 s of event time
            await_that(
                lambda rows=rows: collector(numbers)["rows"] == rows, "all rows are read", run, seconds=500
            )
            await_that(
                lambda windows=windows: written(numbers) == expected(windows),
                "windows close",
                run,
                seconds=500,
            )
            await_that(lambda: nothing_runs(numbers, run), "the job is gone", run, seconds=500)
            assert collector(numbers)["attempts"] > before
        run.interrupt()
        code, out, err = run.wait()
    assert (code, err) == (0, ""), out
    assert "wait for 4 s or more" in out
    assert collector(numbers)["restarts"] == 0
    events = [json.loads(line) for line in log(numbers).read_text().splitlines() if line.startswith("{")]
    said = Counter(event["event"] for event in events)
    assert said["ended"] >= 2
    # idle partitions may have given one more something to do, and that one may have been interrupted
    assert said["ended"] + said["stopped"] == said["the session is up"]


def nothing_runs(numbers: Numbers, run: Run) -> bool:
    found = collector(numbers)
    return (found["state"], found["lag"], found["pid"]) == ("waiting", 0, None) and "java" not in kinds(
        run.process.pid
    )


def collector(numbers: Numbers) -> dict[str, object]:
    found = status(numbers.state).get("collector")
    assert isinstance(found, dict)
    return {"pid": None, "rows": 0, "attempts": 0, "restarts": 0, **found}


def log(numbers: Numbers) -> Path:
    return numbers.state / "collector" / "by-kind.log"


def kinds(pid: int) -> set[str]:
    """Names of the programs below this process."""
    return {child.name() for child in psutil.Process(pid).children(recursive=True) if child.is_running()}


def written(numbers: Numbers) -> list[tuple[str, str, int]]:
    from pyarrow import dataset

    folder = numbers.state / "results"
    if not folder.exists():
        return []
    rows = dataset.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((row["kind"], f"{row['window_start']:%H:%M}", row["numbers"]) for row in rows)


def expected(windows: int) -> list[tuple[str, str, int]]:
    """Of the first so many: 150 numbers come in each, a third of each kind."""
    return sorted((kind, f"22:{5 * window:02}", 50) for window in range(windows) for kind in "abc")
