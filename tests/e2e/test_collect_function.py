"""A collect stage with a function and a topic for its results, as a user runs it: to the end, and once more; and the
console.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import Numbers, millrace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CHAIN = """
def row(value):
    return {"n": value["n"], "kind": "abc"[value["n"] % 3]}
"""
SPARK = """
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

@udf(LongType())
def squared(n):
    return n * n

def collect(rows):
    return rows.where("kind <> 'b'").select("kind", squared("n").alias("square"))
"""
COLLECT = {
    "schema": "n bigint not null, kind string",
    "function": "on_spark:collect",
    "trigger": {"interval": "1s"},
    "sink": {"kafka": {"topic": "squares", "key": ["kind"], "create": {"partitions": 2}}},
}


def test_a_function_without_event_time_gets_every_row_once_also_in_a_later_run(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker, spark: None
) -> None:
    del kafka, spark  # skip where there is none to be had
    numbers = Numbers(tmp_path, topic).write()
    manifest = json.loads(numbers.manifest.read_text())
    del manifest["spec"]["deadLetter"]

    def stage(collect: dict[str, object]) -> None:
        stages = [{"name": "row", "map": {"function": "rows:row"}}, {"name": "squares", "collect": collect}]
        numbers.manifest.write_text(json.dumps({**manifest, "spec": {**manifest["spec"], "stages": stages}}))

    stage(COLLECT)
    (tmp_path / "rows.py").write_text(CHAIN)
    (tmp_path / "on_spark.py").write_text(SPARK)
    run = (
        "run",
        numbers.manifest,
        "--kafka",
        "embedded",
        "--until-end",
        "--replicas",
        2,
        "--state",
        numbers.state,
    )

    for count, so_far in ((300, 300), (60, 360)):
        with EmbeddedBroker(numbers.state / "broker") as broker:
            if count == so_far:
                numbers.make_topic(broker.bootstrap)
            numbers.send(broker.bootstrap, count)
        ended = millrace(*run, timeout=500)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
        assert "late" not in ended.stdout
        with EmbeddedBroker(numbers.state / "broker") as broker:
            found = squares(broker.bootstrap)
        assert sorted(found) == sorted((n * n, "abc"[n % 3]) for n in range(so_far) if n % 3 != 1)

    # another query: the same rows once more, by aggregates that are looked at in the terminal
    stage({**COLLECT, "function": "on_spark:nowhere"})
    refused = millrace("validate", numbers.manifest)
    assert refused.returncode == 4
    assert "spec.stages[1].collect.function" in refused.stderr
    stage({**COLLECT, "sink": {"console": {"rows": 2}}, "function": "on_spark:again"})
    (tmp_path / "on_spark.py").write_text(SPARK.replace("def collect", "def again"))
    shown = millrace(*run, timeout=500)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert 'squares: 002-00000000 {"kind":' in shown.stdout
    assert "more" in shown.stdout


def squares(bootstrap: str) -> list[tuple[int, str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("squares", p, 0) for p in range(2)])
    found, ends = list[tuple[int, str]](), 0
    while ends < 2:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            value = json.loads(message.value() or b"")
            assert (message.key() or b"").decode() == value["kind"]
            found.append((value["square"], value["kind"]))
        else:
            ends += 1
    consumer.close()
    return found
