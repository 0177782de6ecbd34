"""A program as a pipeline's only worker, on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from millrace.connectivity.ports import Fenced
from millrace.engine.claims import Superseded
from millrace.errors import StageFailed
from millrace.library import Pipeline
from millrace.local.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
MakeTopic = Callable[..., str]


def produce(kafka: EmbeddedBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def read(kafka: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        for _ in range(600):
            found += [record.value() for record in consumer.consume(100, 0.1) if not record.error()]
            if len(found) >= count:
                break
    finally:
        consumer.close()
    return sorted(found)


class Copy:
    """A pipeline from a source of four partitions to an output."""

    def __init__(self, kafka: EmbeddedBroker, make_topic: MakeTopic, function: Callable[[int], int]) -> None:
        self.source, self.out = make_topic(4), make_topic(1)
        self.pipeline = Pipeline(
            self.source,
            {
                "kafka": {"bootstrapServers": kafka.bootstrap},
                "source": {"topic": self.source},
                "stages": [
                    {"name": "function", "map": {"function": function}},
                    {"name": "out", "produce": {"topic": self.out}},
                ],
                "delivery": "ExactlyOnce",
                "commit": {"interval": "100ms"},
            },
        )


def test_each_run_goes_on_where_the_last_one_was(kafka: EmbeddedBroker, make_topic: MakeTopic) -> None:
    copy = Copy(kafka, make_topic, lambda value: value * 10)
    for n in (1, 2):
        produce(kafka, copy.source, b"%d" % n, b"%d" % (n + 5))
        copy.pipeline.run(until_end=True)
    assert read(kafka, copy.out, 4) == [b"10", b"20", b"60", b"70"]


def test_a_failure_is_raised_when_what_was_before_it_is_committed(
    kafka: EmbeddedBroker, make_topic: MakeTopic
) -> None:
    bad = [3]

    def function(value: int) -> int:
        if value in bad:
            raise KeyError(value)
        return value

    copy = Copy(kafka, make_topic, function)
    for n in (1, 2, 3, 4):
        produce(kafka, copy.source, b"%d" % n)
    with pytest.raises(StageFailed):
        copy.pipeline.run(until_end=True)
    bad.clear()
    copy.pipeline.run(until_end=True)
    assert read(kafka, copy.out, 4) == [b"1", b"2", b"3", b"4"]


def test_a_second_program_takes_over_and_an_event_stops_it(
    kafka: EmbeddedBroker, make_topic: MakeTopic
) -> None:
    copy, stop, ended = Copy(kafka, make_topic, lambda value: value), threading.Event(), list[BaseException]()

    def first() -> None:
        try:
            copy.pipeline.run()
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    produce(kafka, copy.source, b"1")
    assert read(kafka, copy.out, 1) == [b"1"]
    second = threading.Thread(target=copy.pipeline.run, kwargs={"stop": stop})
    second.start()
    sent = 1
    while thread.is_alive() and sent < 1000:  # it learns of it as it commits
        produce(kafka, copy.source, b"1")
        sent += 1
        thread.join(0.2)
    assert isinstance(ended[0], (Fenced, Superseded))
    produce(kafka, copy.source, b"2")
    assert read(kafka, copy.out, sent + 1) == [b"1"] * sent + [b"2"]
    stop.set()
    second.join(120)
    assert not second.is_alive()


def test_the_program_in_the_documents_runs(
    kafka: EmbeddedBroker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "testing-a-pipeline.md").read_text()
    (code,) = re.findall(r"^```python broker\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    source, out = make_topic(2), f"totals-{uuid.uuid4().hex[:8]}"
    for was, now in (
        ("localhost:9092", kafka.bootstrap),
        ('"orders"', f'"{source}"'),
        ('{"topic": "totals"', f'{{"topic": "{out}"'),
    ):
        assert was in code
        code = code.replace(was, now)
    script = tmp_path / "program.py"
    script.write_text(code)
    produce(kafka, source, b'{"items":[{"price":3,"count":2}]}', b'{"items":[]}')
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=400, env=env)
    assert done.returncode == 0, done.stderr
    assert read(kafka, out, 2) == [b"0", b"6"]
