"""A broker that goes away from a collector, in mid-batch or between two: the attempt ends within a minute or so, says why,
and the next one goes on with nothing lost and nothing twice.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from channel import Channel
from kafka_fixture import start_or_skip
from millrace.clock import Deadline, SystemClock
from millrace.collector import Attempt, JobSpec, Query
from millrace.collector.sinks import Parquet
from millrace.collector.stage import connector
from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

dataset = pytest.importorskip("pyarrow.dataset")

ROWS = 8_000
# The first row waits at the gate: so the batch can't be over, and the most of it is not fetched, when the broker goes.
MODULE = """
import os, time
from pyspark.sql.functions import udf

HERE = os.path.dirname(__file__)

@udf("int")
def measured(text):
    open(os.path.join(HERE, "begun"), "w").close()
    while not os.path.exists(os.path.join(HERE, "gate")):
        time.sleep(0.02)
    return len(text)

def collect(rows):
    return rows.select("n", measured("text").alias("length"))
"""


@pytest.fixture
def own_kafka(tmp_path: Path, spark: None) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path / "broker")
    start_or_skip(broker)
    yield broker
    broker.kill()


@pytest.mark.parametrize("mid_batch", [True, False], ids=["in mid-batch", "between two batches"])
def test_a_broker_that_goes_away_is_told_soon_and_costs_nothing(
    own_kafka: EmbeddedBroker, tmp_path: Path, mid_batch: bool
) -> None:
    channel, gate = Channel(own_kafka.bootstrap, 1), tmp_path / "gate"
    chance = random.Random(1)
    # much more than a fetch takes, whatever the compression
    rows = [{"n": n, "text": chance.randbytes(1000).hex()} for n in range(ROWS)]
    channel.write(0, rows, None)
    (tmp_path / "measuring.py").write_text(MODULE)
    spec = JobSpec(
        name="texts/measured",
        query=Query(schema="n bigint, text string", function="measuring:collect", interval=0.2),
        bootstrap=own_kafka.bootstrap,
        channel=channel.topic,
        partitions=1,
        group=channel.group,
        checkpoint=str(tmp_path / "home" / "v1"),
        sink=Parquet(path=str(tmp_path / "results")),
        code=str(tmp_path),
        where="spec.stages[1].collect",
        status_file=str(tmp_path / "collector.json"),
        log=str(tmp_path / "spark.log"),
        jars=str(connector()),
        memory="700m",
        until_end=True,
    )
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    attempt = Attempt(spec, tmp_path / "job.log", environment=environment)

    def until(what: str, reached: Callable[[], bool]) -> None:
        deadline = Deadline.after(SystemClock(), 300)
        while not reached():
            assert not deadline.expired(), f"not seen: {what}\n{(tmp_path / 'job.log').read_text()[-3000:]}"
            SystemClock().sleep(0.02)

    try:
        if not mid_batch:
            gate.touch()
        attempt.start()
        if mid_batch:
            until("a row is at the gate", (tmp_path / "begun").exists)
            own_kafka.kill()
            gate.touch()
        else:
            until("all is read", lambda: (found := attempt.status()) is not None and found.rows == ROWS)
            assert own_kafka.pid is not None
            os.kill(own_kafka.pid, signal.SIGSTOP)  # no connection is refused: nobody answers
        gone = SystemClock().monotonic()
        until("the attempt has ended", lambda: attempt.exit_code is not None)
        # what Spark's own patience would take is 120 s for a task, 180 s for the driver
        assert SystemClock().monotonic() - gone < 150
        failure = attempt.failure()
        assert failure is not None
        assert failure.code is ExitCode.BROKER_UNREACHABLE, failure
        attempt.kill()

        if mid_batch:
            own_kafka.start()
        else:
            os.kill(own_kafka.pid, signal.SIGCONT)
        channel.end()
        attempt.start()
        until("the second attempt has ended", lambda: attempt.exit_code is not None)
        assert attempt.exit_code == 0, attempt.failure()
    finally:
        attempt.kill()
    found = dataset.dataset(tmp_path / "results", partitioning="hive").to_table().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(ROWS))
    assert {row["length"] for row in found} == {2000}
