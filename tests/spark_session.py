"""One Spark session in the test's own process, and streams of rows made of files: quick, once it is up."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from channel import micros, rfc3339
from millrace.clock import SystemClock
from millrace.collector import compute, functions, sinks
from millrace.collector.query import EVENT_TIME, ROW, Query
from millrace.connectivity.confluent import ConfluentCluster

WHERE = "spec.stages[1].collect"


@pytest.fixture(scope="session")
def session(spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SparkSession. Functions on its executors are found in the folder `session.code`."""
    del spark  # skip where there is none
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        code = tmp_path_factory.mktemp("code")
        made = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "600m")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "3")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            .config("spark.executorEnv.PYTHONPATH", str(code))
            .getOrCreate()
        )
    made.sparkContext.setLogLevel("OFF")
    made.code = code
    yield made
    made.stop()


class Flow:
    """Rows in files, a query over them, and its checkpoint, as the collector has them; without a channel."""

    def __init__(
        self, session: Any, directory: Path, query: Query, sink: sinks.Settings | None, bootstrap: str = ""
    ) -> None:
        self.session, self.directory, self.query, self.sink, self.bootstrap = (
            session,
            directory,
            query,
            sink,
            bootstrap,
        )
        self.checkpoint, self.source = directory / "checkpoint", directory / "source"
        self.source.mkdir(exist_ok=True)
        self.group, self.version = directory.name, 1
        self.outlet: sinks.Outlet | None = None
        self.opened: Callable[[], None] = lambda: None  # called when the sink is open, before the first batch

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Rows, one file of them: a batch at most."""
        time = self.query.window.time if self.query.window else ""
        lines = []
        for row in rows:
            moment = row.get(time, datetime(1970, 1, 1, tzinfo=UTC))
            assert isinstance(moment, datetime)
            plain = {
                name: rfc3339(value) if isinstance(value, datetime) else value for name, value in row.items()
            }
            lines.append(json.dumps({"t": micros(moment), "r": json.dumps(plain)}))
        number = len(list(self.source.glob("*.json")))
        whole = self.directory / "whole"
        whole.write_text("\n".join(lines) + "\n")
        whole.rename(self.source / f"{number:04}.json")

    def rows(self) -> Any:
        read = self.session.readStream.schema("t long, r string").option("maxFilesPerTrigger", 1)
        rows = read.json(str(self.source)).selectExpr(f"timestamp_micros(t) {EVENT_TIME}", f"r {ROW}")
        return rows.withWatermark(EVENT_TIME, "1 hour") if self.query.window else rows

    def run(self) -> None:
        """Start, take all that there is, stop. Raises what the query or the start of it raises."""
        writer = functions.Writer(
            self.session,
            self.group,
            self.checkpoint,
            lambda w: w.trigger(processingTime="0 seconds"),
            self.version,
        )
        self.outlet = None
        try:
            query = self._start(writer)
            query.processAllAvailable()
        except Exception as error:
            if self.outlet is not None and self.outlet.failure is not None:
                raise self.outlet.failure from error
            raise
        finally:
            for active in self.session.streams.active:
                active.stop()
            if self.outlet is not None:
                self.outlet.close()

    def forget_the_last_commit(self) -> None:
        """As if killed between a batch's results and Spark's own word that it is done."""
        newest = max(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))
        for file in (self.checkpoint / "commits").glob(f"*{newest}*"):
            file.unlink()

    def begin_anew(self) -> None:
        shutil.rmtree(self.checkpoint)

    def _start(self, writer: functions.Writer) -> Any:
        rows = self.rows()
        if self.query.function is None:
            result = compute.declared(rows, self.query, WHERE)
        else:
            function = functions.load(self.query.function, self.session.code, f"{WHERE}.function")
            timed = compute.parsed(rows, self.query)
            result = functions.call(function, timed, writer, self.query, WHERE, sink=self.sink is not None)
        if result is None:
            return writer.query
        assert self.sink is not None
        self.outlet = sinks.make(
            self.sink,
            version=self.version,
            checkpoint=self.checkpoint,
            group=self.group,
            cluster=lambda: ConfluentCluster(self.bootstrap, client_id="t", transaction_timeout=60.0),
            clock=SystemClock(),
            where=f"{WHERE}.sink",
        )
        self.outlet.open(result.schema)
        self.opened()
        return functions.started(writer(result).foreachBatch(self.outlet), self.query, WHERE)
