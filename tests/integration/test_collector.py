"""The collector on real Spark and a real broker: whatever happens on the way, its results are those of pandas."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from channel import Channel, micros
from millrace.channel import wire
from millrace.clock import Deadline, SystemClock
from millrace.collector import Attempt, CollectorStatus, JobSpec, Query, Window, versions
from millrace.collector.jars import CONNECTOR
from millrace.collector.sinks import Parquet
from millrace.errors import ExitCode, MillraceError
from millrace.host import jars
from millrace.local.broker.embedded import EmbeddedBroker
from millrace_api import Spark

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

if os.environ.get("MILLRACE_REQUIRE_ALL") == "1":
    import pyspark  # noqa: F401
else:
    pytest.importorskip("pyspark", reason="NO SPARK HERE: pip install 'millrace[spark]'")
pd = pytest.importorskip("pandas")
dataset = pytest.importorskip("pyarrow.dataset")

NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
QUERY = Query(
    schema="carrier string, scheduled timestamp, delay double",
    group_by=("carrier",),
    window=Window(size=3600, time="scheduled", lateness=86_400),
    aggregate={"flights": "count(*)", "total": "sum(delay)", "delay": "avg(delay)", "worst": "max(delay)"},
    interval=0.5,
)
Row = dict[str, object]


@dataclass
class World:
    """A channel, and attempts of a collector on it."""

    channel: Channel
    directory: Path
    spec: JobSpec
    attempt: Attempt
    rows: list[Row]

    def write(self, partition: int, rows: list[Row]) -> None:
        self.rows += rows
        self.channel.write(partition, rows, "scheduled")

    def start(self, *, until_end: bool) -> Attempt:
        spec = msgspec.structs.replace(self.spec, until_end=until_end)
        # only the quick compiler: the other pays off after minutes, and these runs take seconds
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        self.attempt = Attempt(spec, self.directory / "job.log", environment=environment)
        self.attempt.start()
        return self.attempt

    def until(
        self, what: str, reached: Callable[[CollectorStatus | None], bool], seconds: float = 300
    ) -> None:
        clock = SystemClock()
        deadline = Deadline.after(clock, seconds)
        while not reached(self.attempt.status()):
            if deadline.expired() or self.attempt.exit_code is not None:
                raise AssertionError(
                    f"not seen: {what}; exit code {self.attempt.exit_code}, {self.attempt.status()}\n{self.said()}"
                )
            clock.sleep(0.02)

    def ended(self, seconds: float = 300) -> None:
        """It has ended in order, and its JVM is gone, too."""
        clock = SystemClock()
        deadline = Deadline.after(clock, seconds)
        while self.attempt.exit_code is None and not deadline.expired():
            clock.sleep(0.05)
        assert self.attempt.exit_code == 0, f"{self.attempt.failure()}\n{self.said()}"
        self.attempt.kill()

    def said(self) -> str:
        return (self.directory / "job.log").read_text()[-4000:]

    def folders(self) -> set[str]:
        return {file.name for file in (self.directory / "results").glob("batch=*")}

    def result(self) -> pd.DataFrame:
        table = dataset.dataset(self.directory / "results", partitioning="hive").to_table()
        return table.to_pandas().sort_values(["window_start", "carrier"], ignore_index=True)

    def expected(self) -> pd.DataFrame:
        """What pandas makes of all that was written."""
        frame = pd.DataFrame(self.rows)
        frame["window_start"] = frame["scheduled"].dt.floor("h")
        grouped = frame.groupby(["carrier", "window_start"], as_index=False).agg(
            flights=("carrier", "size"),
            total=("delay", lambda delays: delays.sum(min_count=1)),
            delay=("delay", "mean"),
            worst=("delay", "max"),
        )
        return grouped.sort_values(["window_start", "carrier"], ignore_index=True)

    def equals_pandas(self) -> None:
        found, expected = self.result(), self.expected()
        assert found["flights"].sum() == len(self.rows)
        assert not found.duplicated(["carrier", "window_start"]).any()
        assert (found["window_end"] - found["window_start"] == pd.Timedelta("1h")).all()
        pd.testing.assert_frame_equal(
            found[list(expected.columns)], expected, check_dtype=False, check_exact=True
        )

    def committed(self) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self.channel.bootstrap})
        slots = [TopicPartition(self.channel.topic, p) for p in range(self.channel.partitions)]
        asked = ConsumerGroupTopicPartitions(self.channel.group, slots)
        found = admin.list_consumer_group_offsets([asked])[self.channel.group].result(120)
        return {slot.partition: slot.offset for slot in found.topic_partitions}


@pytest.fixture
def make_world(kafka: EmbeddedBroker, tmp_path: Path) -> Iterator[Callable[[int], World]]:
    worlds = []

    def make(partitions: int) -> World:
        try:
            folder = jars.ensure(CONNECTOR)
        except MillraceError as error:
            if os.environ.get("MILLRACE_REQUIRE_ALL") == "1":
                raise
            pytest.skip(f"NO KAFKA CONNECTOR FOR SPARK HERE: {error}")
        channel = Channel(kafka.bootstrap, partitions)
        spec = JobSpec(
            name="flights/by-carrier",
            query=QUERY,
            bootstrap=kafka.bootstrap,
            channel=channel.topic,
            partitions=partitions,
            group=channel.group,
            checkpoint=str(tmp_path / "checkpoint" / "v1"),
            sink=Parquet(path=str(tmp_path / "results")),
            where="spec.stages[1].collect",
            status_file=str(tmp_path / "collector.json"),
            log=str(tmp_path / "spark.log"),
            jars=str(folder),
            memory="700m",
            records_per_batch=5_000 * partitions,
        )
        worlds.append(World(channel, tmp_path, spec, Attempt(spec, tmp_path / "job.log"), []))
        return worlds[-1]

    yield make
    for world in worlds:
        world.attempt.kill()


def flights(random_: random.Random, count: int, first: datetime, days: float) -> list[Row]:
    """Flights of some days, up to 20 hours out of order; a few have no delay."""
    step = timedelta(days=days) / count
    return [
        {
            "carrier": random_.choice(["AA", "B6", "DL", "UA"]),
            "scheduled": first + step * i + timedelta(seconds=random_.randrange(20 * 3600)),
            "delay": None if random_.random() < 0.01 else float(random_.randrange(-30, 300)),
        }
        for i in range(count)
    ]


def test_executors_of_their_own_one_of_which_is_killed_and_state_on_disk_change_nothing(
    make_world: Callable[[int], World],
) -> None:
    """Processes of Spark's own on this machine: as on a cluster, but for how they are started."""
    chance, world = random.Random(7), make_world(2)
    spark = Spark.model_validate({"stateStore": "RocksDB", "shufflePartitions": 2})
    query = msgspec.structs.replace(QUERY, conf=dict(spark.settings))
    place = {"spark.master": "local-cluster[2,1,700]", "spark.executor.memory": "600m"}
    world.spec = msgspec.structs.replace(world.spec, query=query, place=place, records_per_batch=1_000)
    world.write(0, flights(chance, 3_000, NEW_YEAR, 60))
    world.write(1, flights(chance, 3_000, NEW_YEAR, 60))

    world.start(until_end=True)
    world.until("half is read", lambda status: bool(status and status.rows >= 3_000))
    executors = [
        process
        for process in psutil.Process(world.attempt.pid).children(recursive=True)
        if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    ]
    assert len(executors) == 2
    executors[0].kill()
    world.channel.end(0, 1)
    world.ended()

    world.equals_pandas()
    state = world.directory / "checkpoint" / "v1" / "state"
    assert {folder.name for folder in (state / "0").iterdir() if folder.name.isdigit()} == {"0", "1"}
    assert list(state.rglob("*.zip")) or list(state.rglob("*.changelog"))


def test_skewed_empty_and_stopped_partitions_and_kills_change_nothing(
    make_world: Callable[[int], World],
) -> None:
    """Partition 0 has a year of flights, 1 a week, 2 none, 3 stands still with its year half written."""
    seed = random.randrange(2**32)
    sys.stderr.write(f"seed {seed}\n")
    chance, world = random.Random(seed), make_world(4)
    world.write(0, flights(chance, 20_000, NEW_YEAR, 365))
    world.write(1, flights(chance, 4_000, NEW_YEAR, 7))
    stopped = flights(chance, 10_000, NEW_YEAR, 365)
    world.write(3, stopped[:2_000])
    world.channel.end(0, 1, 2)  # read, and forgotten by Spark, before the kills

    world.start(until_end=True)
    world.until("all that was written is read", lambda status: bool(status and status.rows == 26_000))
    assert world.attempt.exit_code is None, "partition 3 has not ended"
    # partition 0 is at the end of the year; partition 3 goes on where it stood
    begun = _newest(world, "offsets")
    world.write(3, stopped[2_000:6_000])
    _until(lambda: _newest(world, "offsets") > begun, "a batch is begun")
    world.attempt.kill()  # in mid-batch: begun, not committed

    world.write(3, stopped[6_000:])
    world.channel.end(3)
    before = world.folders()
    world.start(until_end=True)
    assert world.attempt.pid is not None
    _until(lambda: world.folders() != before, "a batch is written")
    os.kill(world.attempt.pid, signal.SIGKILL)  # the Python; the JVM may live on for seconds, and commit
    world.attempt.kill()

    world.start(until_end=True)
    world.ended()
    world.equals_pandas()
    status = world.attempt.status()
    assert status is not None
    assert (status.state, status.state_rows, status.late) == ("ended", 0, 0)
    assert world.committed() == status.offsets
    assert not list((world.directory / "results").glob(".*"))


def test_marks_move_the_watermark_of_their_partition_and_a_stop_is_in_order(
    make_world: Callable[[int], World],
) -> None:
    world = make_world(2)
    chance = random.Random(1)
    world.write(0, flights(chance, 1_000, NEW_YEAR, 10))
    world.start(until_end=False)
    world.until("the rows are read", lambda status: bool(status and status.rows == 1_000))
    assert world.folders() == set(), "partition 1 is empty: it holds back all windows"

    world.channel.mark(1, wire.MarkKind.IDLE, micros(NEW_YEAR + timedelta(days=5)))
    _until(lambda: bool(world.folders()), "the mark closes windows")
    with pytest.raises(MillraceError, match="another attempt") as caught:
        Attempt(world.spec, world.directory / "job.log").start(timeout=0.1)
    assert caught.value.code is ExitCode.BUSY
    closed = NEW_YEAR + timedelta(days=4)  # five days, less the lateness
    world.until("windows are closed", lambda status: bool(status and status.watermark == micros(closed)))
    assert world.result()["window_end"].max() <= closed

    world.attempt.terminate()
    world.ended()
    stopped = world.attempt.status()
    assert stopped is not None
    assert stopped.state == "stopped"
    assert world.committed() == stopped.offsets

    # what waits when the last attempt starts: rows of another time, and the end
    world.write(1, flights(chance, 500, NEW_YEAR + timedelta(days=5), 3))
    world.channel.end()
    world.start(until_end=True)
    world.ended()
    world.equals_pandas()


def test_what_is_deleted_no_open_window_needs_and_a_partition_that_is_added_is_waited_for(
    make_world: Callable[[int], World],
) -> None:
    seed = random.randrange(2**32)
    sys.stderr.write(f"seed {seed}\n")
    chance, world = random.Random(seed), make_world(2)
    for part in range(20):  # a transaction is 3 days in one partition, 2 in the other
        world.write(0, flights(chance, 450, NEW_YEAR + timedelta(days=3 * part), 3))
        world.write(1, flights(chance, 450, NEW_YEAR + timedelta(days=2 * part), 2))
    world.start(until_end=False)
    _until(lambda: min(world.channel.beginnings().values()) > 0, "records are deleted")

    world.channel.grow(3)
    world.write(0, flights(chance, 500, NEW_YEAR + timedelta(days=60), 10))
    world.write(1, flights(chance, 500, NEW_YEAR + timedelta(days=40), 30))
    for _ in range(3):  # batches enough to close windows, if that were to be
        world.write(0, flights(chance, 1, NEW_YEAR + timedelta(days=69), 1))
        world.until("all is read", lambda status: bool(status and status.rows == len(world.rows)))
    # ahead of what was closed, weeks behind the others
    world.write(2, flights(chance, 300, NEW_YEAR + timedelta(days=42), 20))
    world.until("all is read", lambda status: bool(status and status.rows == len(world.rows)))
    beyond = micros(NEW_YEAR + timedelta(days=45))
    world.until("its windows are closed", lambda status: bool(status and (status.watermark or 0) >= beyond))
    status = world.attempt.status()
    assert status is not None
    assert status.late == 0
    world.attempt.kill()

    # another version of the checkpoint has only what was not deleted
    former = versions.newest(world.directory / "checkpoint")
    assert former is not None
    assert former.closed is not None
    world.channel.end()
    world.spec = msgspec.structs.replace(
        world.spec,
        version=2,
        checkpoint=str(world.directory / "checkpoint" / "v2"),
        after=former.closed,
        partitions=3,
    )
    world.start(until_end=True)
    world.ended()
    world.equals_pandas()


def test_a_channel_that_is_gone_is_named(make_world: Callable[[int], World]) -> None:
    world = make_world(1)
    world.spec = msgspec.structs.replace(world.spec, channel="nowhere.channel")
    attempt = world.start(until_end=True)
    _until(lambda: attempt.exit_code is not None, "it fails")
    failure = attempt.failure()
    assert failure is not None
    assert failure.code is ExitCode.TOPIC
    assert failure.where == "topic nowhere.channel"


def _newest(world: World, log: str) -> int:
    return max(
        (int(file.name) for file in (world.directory / "checkpoint" / "v1" / log).glob("[0-9]*")), default=-1
    )


def _until(reached: Callable[[], bool], what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not seen: {what}"
        SystemClock().sleep(0.01)
