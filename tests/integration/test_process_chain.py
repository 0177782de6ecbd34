"""Whole chains with stages in processes, put together from a manifest, on stand-ins for Kafka."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace.chain import build, load, stage_stats
from millrace.clock import SystemClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.tracker import OffsetTracker

pytestmark = pytest.mark.integration

CODE = """
import os
import millrace

TABLE = {}

def setup():
    TABLE["pid"] = os.getpid()

def even(value):
    return value % 2 == 0

def here(value):
    return {"n": value, "pid": os.getpid()}

def there(value, message):
    if value == 6:
        raise millrace.Invalid("six")
    assert TABLE["pid"] == os.getpid(), "setup() is called in each process"
    return {"n": value, "pid": os.getpid(), "key": (message.key or b"").decode(), "offset": message.offset}

def seen(value):
    return [{**value, "back": os.getpid()}]
"""


class Ran:
    """What came of numbers from 0 on, one partition, by way of these stages."""

    def __init__(
        self, code: Path, *stages: Mapping[str, object], count: int = 12, bad: int | None = None
    ) -> None:
        (code / "stages_in_processes.py").write_text(CODE)
        pipeline = pipeline_of(*stages, deadLetter={"topic": "dead"}, delivery="ExactlyOnce")
        functions = load(pipeline, code)
        self.stats: Mapping[str, StageStats] = stage_stats(pipeline)
        clock, tracker, outbox, consumer = SystemClock(), OffsetTracker(), Outbox(), FakeConsumer()
        self.producer = FakeProducer()
        outbox.attach(self.producer)
        chain = build(pipeline, functions, outbox, None, tracker.complete, self.stats, clock)
        engine = Engine(consumer, chain, tracker, clock)
        engine.hold({0: 0})
        records = [FakeRecord(n, b"{" if n == bad else b"%d" % n, 0, b"k%d" % n) for n in range(count)]
        consumer.feed(*records)
        deadline = time.monotonic() + 240
        try:
            while tracker.position(0) < count:
                engine.step(0.05)
                assert time.monotonic() < deadline, "it does not come to an end"
                time.sleep(0.002)
        finally:
            engine.terminate()

    @property
    def outputs(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(p.value or b"") for p in self.producer.produced if p.topic == "out"]

    @property
    def dead(self) -> list[tuple[bytes | None, bytes | None]]:
        letters = [dict(p.headers or ()) for p in self.producer.produced if p.topic == "dead"]
        return [(one["millrace-stage"], one["millrace-reason"]) for one in letters]


IN_PROCESSES = {"pool": {"processes": 1}}
OUT = {"name": "out", "produce": {"topic": "out"}}


@pytest.fixture(autouse=True)
def _forget_the_module() -> None:
    sys.modules.pop("stages_in_processes", None)


def test_stages_next_to_each_other_share_processes_that_decode_and_encode_too(tmp_path: Path) -> None:
    ran = Ran(
        tmp_path,
        {"name": "even", "filter": {"function": "stages_in_processes:even", **IN_PROCESSES}},
        {"name": "there", "map": {"function": "stages_in_processes:there", **IN_PROCESSES}},
        OUT,
        bad=3,
    )
    assert [one["n"] for one in ran.outputs] == [0, 2, 4, 8, 10]
    assert {(one["key"], one["offset"]) for one in ran.outputs} == {(f"k{n}", n) for n in (0, 2, 4, 8, 10)}
    assert [stage for stage, _ in ran.dead] == [b"decode", b"there"]
    assert ran.dead[1] == (b"there", b"six")
    assert len({one["pid"] for one in ran.outputs}) == 1
    received = {
        name: (s.received, s.emitted, s.dead) for name, s in ran.stats.items() if name != "dead-letter"
    }
    assert received == {"decode": (12, 11, 1), "even": (11, 6, 0), "there": (6, 5, 1), "out": (5, 5, 0)}


def test_values_go_to_a_process_and_back_between_stages_of_the_worker(tmp_path: Path) -> None:
    ran = Ran(
        tmp_path,
        {"name": "even", "filter": {"function": "stages_in_processes:even"}},
        {"name": "there", "map": {"function": "stages_in_processes:there", **IN_PROCESSES}},
        {"name": "seen", "flatMap": {"function": "stages_in_processes:seen"}},
        OUT,
    )
    assert [one["n"] for one in ran.outputs] == [0, 2, 4, 8, 10]
    assert all(one["pid"] != one["back"] for one in ran.outputs)


def test_at_the_end_of_a_chain_results_are_not_sent_back(tmp_path: Path) -> None:
    ran = Ran(tmp_path, {"name": "there", "map": {"function": "stages_in_processes:there", **IN_PROCESSES}})
    assert ran.outputs == []
    assert ran.dead == [(b"there", b"six")]
    assert ran.stats["there"].emitted == 11
