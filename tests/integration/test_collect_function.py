"""A collect stage's function, and aggregates that Spark refuses, on real Spark: what is told, and where it points."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector_specs import job_spec
from millrace.collector.failures import classify
from millrace.collector.query import Query, Window
from millrace.collector.sinks import Parquet, Settings
from millrace.errors import ExitCode, FunctionError, ManifestError
from spark_session import WHERE, Flow

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

BEGIN = datetime(2013, 1, 30, 22, tzinfo=UTC)
SCHEMA = "carrier string, at timestamp, delay double"
DECLARED = Query(
    schema=SCHEMA,
    group_by=("carrier",),
    window=Window(size=3600, time="at", lateness=3600),
    aggregate={"flights": "count(*)"},
)
MODULE = """
import os
from pathlib import Path
from pyspark.sql.functions import col, count, sum, udf, window
from beside import OUT

SET_UP = []

def setup():
    SET_UP.append(os.getpid())

@udf("double")
def in_hours(minutes):
    from beside import PER_HOUR  # found on executors too
    if minutes < 0:
        raise ValueError(f"{minutes} minutes")
    return minutes / PER_HOUR

def windows(rows):
    assert SET_UP == [os.getpid()]
    return rows.groupBy(window("at", "1 hour"), "carrier").agg(sum(in_hours("delay")).alias("hours"))

def stateless(rows):
    return rows.select("carrier", in_hours("delay").alias("hours"))

def save(frame, number):
    Path(OUT, f"{number}.txt").write_text("".join(f"{row.carrier}\\n" for row in frame.collect()))

def by_pandas(rows):
    import pandas
    from pyspark.sql.functions import pandas_udf

    @pandas_udf("double")
    def in_hours_at_once(minutes: pandas.Series) -> pandas.Series:
        return minutes / 60

    return rows.select("carrier", in_hours_at_once("delay").alias("hours"))

def mapped_by_pandas(rows):
    def in_hours_by_frame(frames):
        for frame in frames:
            yield frame[["carrier"]].assign(hours=frame["delay"] / 60)

    return rows.mapInPandas(in_hours_by_frame, "carrier string, hours double")

def by_itself(rows, writer):
    assert writer.version == 1
    writer(rows.groupBy("carrier").count()).outputMode("update").foreachBatch(save).start()

def fails_to_save(frame, number):
    {}["no such key"]

def failing(rows, writer):
    writer(rows).foreachBatch(fails_to_save).start()

def unclosed(rows):
    return rows.groupBy("carrier").count()

def stray(rows):
    rows.writeStream.format("memory").queryName("mine").start()

def twice(rows, writer):
    writer(rows).foreachBatch(save).start()
    writer(rows).foreachBatch(save).start()

def both(rows, writer):
    writer(rows).foreachBatch(save).start()
    return rows

def a_list(rows):
    return [rows]

def nothing(rows):
    pass

def still(rows):
    return rows.sparkSession.range(3)

def alike(rows):
    return rows.select(col("carrier"), col("delay").alias("Carrier"))

def no_column(rows):
    return rows.select("destination")

def three(rows, writer, more):
    return rows

value = 3
"""
Make = Callable[..., Flow]


@pytest.fixture
def flow(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.delitem(sys.modules, "gathering", raising=False)  # a process has set it up once
    (session.code / "gathering.py").write_text(MODULE)
    (session.code / "beside.py").write_text(f"OUT = {str(session.code)!r}\nPER_HOUR = 60\n")

    def make(function: str, *, window: bool = True, sink: bool = True, schema: str = SCHEMA) -> Flow:
        directory = tmp_path / f"f-{uuid.uuid4().hex[:8]}"
        directory.mkdir()
        time = Window(time="at", lateness=3600) if window else None
        query = Query(schema=schema, window=time, function=f"gathering:{function}")
        kind: Settings | None = Parquet(path=str(directory / "results")) if sink else None
        return Flow(session, directory, query, kind)

    return make


def rows(hours: int, delay: float = 30.0) -> list[dict[str, object]]:
    return [
        {"carrier": carrier, "at": BEGIN + timedelta(hours=hour), "delay": delay}
        for hour in range(hours)
        for carrier in ("AA", "UA")
    ]


def test_a_function_makes_the_result_with_udfs_that_are_found_on_executors(flow: Make) -> None:
    from pyarrow import dataset

    run = flow("windows")
    run.write(rows(4))
    run.run()
    found = dataset.dataset(run.directory / "results", partitioning="hive").to_table().to_pylist()
    assert sorted((row["carrier"], row["hours"]) for row in found) == [("AA", 0.5)] * 2 + [("UA", 0.5)] * 2
    assert {row["window"]["start"] for row in found} == {BEGIN, BEGIN + timedelta(hours=1)}


@pytest.mark.parametrize("function", ["by_pandas", "mapped_by_pandas"])
def test_a_function_may_use_pandas(flow: Make, function: str) -> None:
    from pyarrow import dataset

    run = flow(function, window=False)
    run.write(rows(2))
    run.run()
    found = dataset.dataset(run.directory / "results", partitioning="hive").to_table().to_pylist()
    assert sorted((row["carrier"], row["hours"]) for row in found) == [("AA", 0.5)] * 2 + [("UA", 0.5)] * 2


def test_a_function_writes_by_itself_and_goes_on_where_it_was(flow: Make, session: Any) -> None:
    run = flow("by_itself", window=False, sink=False)
    run.write(rows(2))
    run.run()
    run.write([{"carrier": "B6", "delay": 1.0}])
    run.run()
    assert [sorted((session.code / f"{n}.txt").read_text().split()) for n in (0, 1)] == [["AA", "UA"], ["B6"]]


@pytest.mark.parametrize(
    ("function", "what", "field", "sink"),
    [
        ("unclosed", "append", "function", True),
        ("stray", "started a query without `writer`: mine", "function", True),
        ("twice", "a second query was started with `writer`", "function", False),
        ("both", "returned a DataFrame, and has started a query as well", "function", True),
        ("a_list", "returned a list", "function", True),
        ("nothing", "returned nothing, and has started nothing", "function", False),
        ("still", "not made of the rows it was given", "function", True),
        ("alike", "named alike, carrier and Carrier", "function", True),
        (
            "no_column",
            r"`destination` cannot be resolved.*\(gathering.py:\d+, in no_column\)",
            "function",
            True,
        ),
        ("three", r"takes \(rows, writer, more\)", "function", True),
        ("value", "is a int, not a function", "function", True),
        ("nowhere", "has no function nowhere", "function", True),
        ("by_itself", "has a sink that would get nothing", "sink", True),
        ("stateless", "has no sink to write it", "sink", False),
    ],
)
def test_what_is_wrong_with_a_function_is_told_with_its_place(
    flow: Make, function: str, what: str, field: str, sink: bool
) -> None:
    run = flow(function, sink=sink)
    run.write(rows(1))
    with pytest.raises(FunctionError, match=what) as caught:
        run.run()
    assert (caught.value.where, caught.value.code) == (f"{WHERE}.{field}", ExitCode.FUNCTION)
    assert "SQLSTATE" not in caught.value.remedy
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("function", "sink", "what"),
    [
        (
            "stateless",
            True,
            r"gathering:stateless failed: ValueError: -5.0 minutes \(gathering.py:\d+, in in_hours\)",
        ),
        (
            "failing",
            False,
            r"gathering:failing failed: KeyError: 'no such key' \(gathering.py:\d+, in fails_to_save\)",
        ),
    ],
)
def test_what_a_function_raises_at_its_rows_is_told_with_its_line(
    flow: Make, function: str, sink: bool, what: str
) -> None:
    run = flow(function, sink=sink)
    run.write(rows(1, delay=-5.0))
    with pytest.raises(Exception) as caught:  # what Spark makes of it; `classify` takes it
        run.run()
    failure = classify(caught.value, msgspec.structs.replace(job_spec(query=run.query), where=WHERE))
    assert re.search(what, failure.what), failure.what
    assert (failure.where, failure.code) == (f"{WHERE}.function", ExitCode.STAGE_FAILED)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("avg(dely)", "`dely` cannot be resolved"),
        ("avg(delay", "missing '\\)'"),
        ("delay", "MISSING_AGGREGATION"),
        ("nofun(delay)", "Cannot resolve routine `nofun`"),
        ("count(distinct carrier)", "Distinct aggregations are not supported"),
    ],
)
def test_an_aggregate_that_spark_refuses_is_named(
    session: Any, tmp_path: Path, expression: str, said: str
) -> None:
    aggregate = {"flights": "count(*)", "mean": expression, "worst": "max(delay)"}
    query = msgspec.structs.replace(DECLARED, aggregate=aggregate)
    run = Flow(session, tmp_path, query, Parquet(path=str(tmp_path / "results")))
    with pytest.raises(ManifestError, match=said) as caught:
        run.run()
    assert (caught.value.where, caught.value.code) == (f"{WHERE}.aggregate.mean", ExitCode.MANIFEST)
    assert len(str(caught.value)) < 700
