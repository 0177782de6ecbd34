"""A collector with a function and a topic for its results, killed in mid-batch: each result is there once. (test_collector
does it to Parquet.)
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from channel import Channel
from millrace.clock import Deadline, SystemClock
from millrace.collector import Attempt, JobSpec, Query, Window
from millrace.collector.sinks import Kafka
from millrace.collector.stage import connector
from millrace.local.broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
PARTITIONS, HOURS = 3, 300
MODULE = """
from pyspark.sql.functions import count, udf, window

@udf("string")
def family(carrier):
    return carrier[:1]

def collect(rows):
    hourly = rows.groupBy(window("at", "1 hour").alias("hour"), family("carrier").alias("family"))
    return hourly.agg(count("*").alias("flights")).select("family", "hour.start", "flights")
"""


def test_each_result_is_in_the_topic_once_though_the_collector_was_killed_in_mid_batch(
    kafka: EmbeddedBroker, spark: None, make_topic: Callable[[int], str], tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    sys.stderr.write(f"seed {seed}\n")
    chance = random.Random(seed)
    channel, topic = Channel(kafka.bootstrap, PARTITIONS), make_topic(2)
    (tmp_path / "collecting.py").write_text(MODULE)
    expected: Counter[tuple[str, str]] = Counter()
    for partition in range(PARTITIONS):
        rows = []
        for n in range(HOURS * 20):
            at = BEGIN + timedelta(minutes=3 * n)
            carrier = chance.choice(["AA", "AS", "B6", "UA"])
            rows.append({"carrier": carrier, "at": at})
            expected[carrier[:1], f"{at:%Y-%m-%dT%H:00:00.000000Z}"] += 1
        channel.write(partition, rows, "at")
        channel.end(partition)
    spec = JobSpec(
        name="flights/by-family",
        query=Query(
            schema="carrier string, at timestamp",
            window=Window(time="at", lateness=7200),
            function="collecting:collect",
            interval=0.1,
        ),
        bootstrap=kafka.bootstrap,
        channel=channel.topic,
        partitions=PARTITIONS,
        group=channel.group,
        checkpoint=str(tmp_path / "home" / "v1"),
        sink=Kafka(topic=topic, key=("family", "start")),
        code=str(tmp_path),
        where="spec.stages[1].collect",
        status_file=str(tmp_path / "collector.json"),
        log=str(tmp_path / "spark.log"),
        jars=str(connector()),
        memory="700m",
        until_end=True,
        records_per_batch=750 * PARTITIONS,  # batches enough for two kills, wherever the first one falls
    )
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    commits, offsets = (tmp_path / "home" / "v1" / name for name in ("commits", "offsets"))

    def attempt() -> Attempt:
        made = Attempt(spec, tmp_path / "job.log", environment=environment)
        made.start()
        return made

    def until(reached: Callable[[], bool], running: Attempt) -> None:
        deadline = Deadline.after(SystemClock(), 400)
        while not reached():
            assert running.exit_code is None, (running.failure(), (tmp_path / "job.log").read_text()[-3000:])
            assert not deadline.expired()
            SystemClock().sleep(0.005)

    for kill in range(2):
        running = attempt()
        done, pause = newest(commits) + 1, chance.random() * 0.4
        # a batch is begun and not committed; its results are being written, or have just been
        until(lambda before=done: newest(commits) >= before and newest(offsets) > newest(commits), running)
        SystemClock().sleep(pause)
        assert running.pid is not None
        if kill:
            os.kill(running.pid, signal.SIGKILL)  # the Python only: its transaction is left open
        running.kill()

    # between the transaction's commit and Spark's: that batch is run again
    last = newest(commits)
    for file in commits.glob(f"*{last}*"):
        if file.name.strip(".").removesuffix(".crc") == str(last):
            file.unlink()
    running = attempt()
    deadline = Deadline.after(SystemClock(), 400)
    while running.exit_code is None and not deadline.expired():
        SystemClock().sleep(0.05)
    assert running.exit_code == 0, (running.failure(), (tmp_path / "job.log").read_text()[-3000:])

    found = committed(kafka.bootstrap, topic)
    assert len(found) == len({(row["family"], row["start"]) for _, row in found})
    assert {(row["family"], row["start"]): row["flights"] for _, row in found} == expected
    assert all(json.loads(key) == [row["family"], row["start"]] for key, row in found)


def newest(log: Path) -> int:
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


def committed(bootstrap: str, topic: str) -> list[tuple[bytes, dict[str, object]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    found, ends = list[tuple[bytes, dict[str, object]]](), 0
    while ends < 2:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            found.append((key, json.loads(value)))
        else:
            ends += 1
    consumer.close()
    return found
