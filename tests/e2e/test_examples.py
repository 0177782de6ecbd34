"""The examples, run to the end of their input by `millrace run`."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.cli.dlq.letters import scan, spans
from millrace.clock import SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import Record
from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import ROOT, millrace

pytestmark = pytest.mark.e2e

COUNT = 4_000


class Example:
    """A copy of an example, with topics of its own on the tests' broker, and its input."""

    def __init__(self, name: str, source: str, directory: Path, topic: str, bootstrap: str) -> None:
        self.bootstrap, self.directory, self.topic = bootstrap, directory / name, topic
        shutil.copytree(
            ROOT / "examples" / name, self.directory, ignore=shutil.ignore_patterns("*.db*", "__pycache__")
        )
        self.manifest = self.directory / "pipeline.yaml"
        text = self.manifest.read_text().replace(f"topic: {source}", f"topic: {topic}")
        text = text.replace(
            f"name: {yaml.safe_load(text)['metadata']['name']}",
            f"name: t-{topic[-20:].lower()}".replace("_", "-"),
        )
        self.manifest.write_text(text)
        admin = AdminClient(
            {"bootstrap.servers": bootstrap}
        )  # it ends what it has not done when nobody holds it
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
        feeding = (
            f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); import feed\n"
            f"feed.record, topic = (lambda record: lambda _, n: record({source!r}, n))(feed.record), {topic!r}\n"
            f"feed.feed(topic, {bootstrap!r}, {COUNT})"
        )
        subprocess.run([sys.executable, "-c", feeding], check=True, timeout=60)

    def run(self) -> None:
        ended = millrace(
            "run",
            self.manifest,
            "--kafka",
            self.bootstrap,
            "--until-end",
            "--state",
            self.directory / "state",
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def records(self, topic: str) -> list[Record]:
        cluster, clock = ConfluentCluster(self.bootstrap, client_id="test"), SystemClock()
        return list(scan(cluster, topic, spans(cluster, topic, clock), clock))


def test_orders_are_in_the_table_once_and_in_dead_letters_what_are_none(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker
) -> None:
    example = Example("sqlite", "orders", tmp_path, topic, kafka.bootstrap)
    example.run()
    with sqlite3.connect(example.directory / "orders.db") as table:
        rows = table.execute("SELECT partition, position, customer, cents FROM orders").fetchall()
    wanted, dead = [], 0
    for record in example.records(topic):
        order = json.loads(record.value() or b"")
        if order["customer"] is None:
            dead += 1
        else:
            wanted.append((record.partition(), record.offset(), order["customer"], order["cents"]))
    assert sorted(rows) == sorted(wanted)
    assert dead == COUNT // 500
    letters = example.records(f"{topic}.dead")
    assert len(letters) == dead


def test_a_copy_is_the_same_record_by_record(tmp_path: Path, topic: str, kafka: EmbeddedBroker) -> None:
    example = Example("copy", "payments", tmp_path, topic, kafka.bootstrap)
    example.run()
    copied, source = (_whole(example.records(name)) for name in (f"{topic}.copy", topic))
    assert copied == source
    assert sum(map(len, source.values())) == COUNT


def _whole(records: list[Record]) -> dict[int, list[object]]:
    """By partition, in order: all of each record but the headers that only tell who has written it."""
    found: dict[int, list[object]] = {}
    for record in records:
        headers = [header for header in record.headers() or () if not header[0].startswith("millrace-")]
        whole = (record.key(), record.value(), record.timestamp(), headers)
        found.setdefault(record.partition(), []).append(whole)
    return found
