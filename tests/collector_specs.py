"""Jobs of a collector for tests that start none."""

from __future__ import annotations

import msgspec

from millrace.collector import JobSpec, Query, Window
from millrace.collector.sinks import Parquet

QUERY = Query(
    schema="kind string, at timestamp, size double",
    group_by=("kind",),
    window=Window(size=3600.0, time="at", lateness=600.0),
    aggregate={"numbers": "count(*)"},
)
SPEC = JobSpec(
    name="numbers.by-kind",
    query=QUERY,
    bootstrap="localhost:9",
    channel="numbers.by-kind.channel",
    partitions=2,
    group="numbers.by-kind",
    checkpoint="checkpoint/v1",
    sink=Parquet(path="results"),
    where="spec.stages[1].collect",
    status_file="status.json",
    log="spark.log",
    jars="jars",
)


def query(**changes: object) -> Query:
    return msgspec.structs.replace(QUERY, **changes)


def job_spec(**changes: object) -> JobSpec:
    return msgspec.structs.replace(SPEC, **changes)
