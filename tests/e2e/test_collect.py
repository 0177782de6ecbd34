"""A pipeline with a collect stage, as a user runs it: to the end, and once more on the same state."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, millrace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

START = datetime(2026, 1, 31, 22, tzinfo=UTC)
FUNCTIONS = '''
from datetime import datetime, timedelta, UTC

def row(value):
    """Every seven seconds a number, whose size is unknown now and then. One in fifty comes half an hour late."""
    n = value["n"]
    seconds = 7 * n - (1800 if n % 50 == 49 else 0)
    return {"kind": "abc"[n % 3], "at": datetime(2026, 1, 31, 22, tzinfo=UTC) + timedelta(seconds=seconds),
            "size": None if n % 5 == 0 else n / 4}
'''
STAGES = [
    {"name": "row", "map": {"function": "rows:row"}},
    {
        "name": "by-kind",
        "collect": {
            "schema": "kind string, at timestamp, size double",
            "groupBy": ["kind"],
            "window": {"size": "1h", "time": "at", "lateness": "10m"},
            "aggregate": {
                "numbers": "count(*)",
                "known": "count(size)",
                "mean": "avg(size)",
                "most": "max(size)",
            },
            "trigger": {"onLag": {"messages": 2000}},
            "sink": {"parquet": {"path": "results"}},
        },
    },
]


def test_a_collected_pipeline_to_the_end_equals_the_plain_computation(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker, spark: None
) -> None:
    del kafka, spark  # skip where there is none to be had
    numbers = Numbers(tmp_path, topic).write()
    manifest = json.loads(numbers.manifest.read_text())
    manifest["spec"]["stages"] = STAGES
    del manifest["spec"]["deadLetter"]
    numbers.manifest.write_text(json.dumps(manifest))
    (tmp_path / "rows.py").write_text(FUNCTIONS)
    words = ("run", numbers.manifest, "--kafka", "embedded", "--until-end", "--replicas", 2)
    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.make_topic(broker.bootstrap)
        numbers.send(broker.bootstrap, 4_000)

    ended = millrace(*words, "--state", numbers.state, timeout=500)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert "4,000 messages, 80 late, 3,920 rows collected" in ended.stdout
    assert "messages wait" in ended.stdout  # a job for them, and one for the rest if there is any
    results = read_results(numbers.state / "results")
    assert len(results) == len(set(results))
    assert dict(results) == expected(4_000)

    with EmbeddedBroker(numbers.state / "broker") as broker:
        numbers.send(broker.bootstrap, 100)
    again = millrace(*words, "--state", numbers.state, timeout=500)
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    assert "a former run has ended all windows" in again.stdout
    assert "100 late, 0 rows collected" in again.stdout
    assert dict(read_results(numbers.state / "results")) == dict(results)
    shown = json.loads(millrace("status", "--state", numbers.state, "-o", "json").stdout)
    assert shown["run"]["collector"]["state"] == "finished"
    assert shown["run"]["collector"]["lag"] == 0
    assert shown["run"]["late"] == 100
    assert sum(partition["late"] for partition in shown["run"]["partitions"]) == 180


Group = tuple[str, datetime]
Figures = tuple[int, int, float | None, float | None]


def expected(count: int) -> dict[Group, Figures]:
    sizes: dict[Group, list[float | None]] = defaultdict(list)
    for n in (n for n in range(count) if n % 50 != 49):
        hour = (START + timedelta(seconds=7 * n)).replace(minute=0, second=0)
        sizes["abc"[n % 3], hour].append(None if n % 5 == 0 else n / 4)
    return {group: _figures(found) for group, found in sizes.items()}


def _figures(sizes: list[float | None]) -> Figures:
    known = [size for size in sizes if size is not None]
    return len(sizes), len(known), sum(known) / len(known), max(known)


def read_results(path: Path) -> list[tuple[Group, Figures]]:
    from pyarrow import dataset

    rows = dataset.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()
    return [
        (
            (row["kind"], row["window_start"].replace(tzinfo=UTC)),
            (row["numbers"], row["known"], row["mean"], row["most"]),
        )
        for row in rows
    ]
