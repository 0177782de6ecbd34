"""The functions of examples/sqlite and examples/copy, in their own chains; e2e runs them as processes."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace_api
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from millrace.chain import build, load, stage_stats
from millrace.clock import Deadline, VirtualClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _forget_what_was_imported() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def run(name: str, records: list[FakeRecord]) -> FakeProducer:
    """All of the records through the example's chain, to the end of its commits' work."""
    folder = EXAMPLES / name
    pipeline = millrace_api.load((folder / "pipeline.yaml").read_text()).pipeline
    clock, tracker, outbox, consumer = VirtualClock(), OffsetTracker(), Outbox(), FakeConsumer()
    producer = FakeProducer(random.Random(0))
    outbox.attach(producer)
    functions = load(pipeline, folder)
    chain = build(pipeline, functions, outbox, producer, tracker.complete, stage_stats(pipeline), clock)
    engine = Engine(consumer, chain, tracker, clock)
    engine.hold(dict.fromkeys({record.partition() for record in records}, 0))
    consumer.feed(*records)
    while consumer.ready:
        engine.step(0.05)
    engine.close()
    assert engine.join(Deadline.after(clock, 60.0))
    assert all(tracker.drained(partition) for partition in tracker.held())
    return producer


def test_orders_that_come_again_are_in_the_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_DB", str(tmp_path / "orders.db"))
    orders = [FakeRecord(n, b'{"customer":"c","cents":%d}' % n, n % 2) for n in range(250)]
    orders.append(FakeRecord(250, b'{"customer":null,"cents":1}', 0))
    for _ in range(2):  # the second time as after a crash before the first commit
        producer = run("sqlite", orders)
        assert [one.value for one in producer.produced] == [b'{"customer":null,"cents":1}']
    with sqlite3.connect(tmp_path / "orders.db") as table:
        rows = table.execute("SELECT partition, position, customer, cents FROM orders").fetchall()
    assert sorted(rows) == sorted((n % 2, n, "c", n) for n in range(250))


def test_a_copy_keeps_bytes_key_headers_time_and_partition() -> None:
    records = [FakeRecord(n, b"\xff%d" % n, 3, b"k", (("h", b"1"),), 1_000 + n) for n in range(5)]
    copies = run("copy", records).produced
    kept = [(one.value, one.key, one.partition, one.timestamp_ms) for one in copies]
    assert kept == [(r.value(), b"k", 3, 1_000 + r.offset()) for r in records]
    assert all(("h", b"1") in (one.headers or ()) for one in copies)
