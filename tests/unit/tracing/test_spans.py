"""What traces there are of a chain: spans by batch with links to the messages, what functions see, and what goes on with what is
made of a message. The SDK is the real one, with its exporter in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace import Message
from millrace.chain import build, load, stage_stats
from millrace.clock import SystemClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from optional_otel import require_opentelemetry

require_opentelemetry()

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from millrace.tracing import context_of
from millrace.tracing.spans import Spans

pytestmark = pytest.mark.unit

CODE = """
import millrace
from opentelemetry import trace
from millrace.tracing import context_of

def here():
    return format(trace.get_current_span().get_span_context().span_id, "016x")

def seen(value):
    if value == 3:
        raise millrace.Invalid("three")
    return {"n": value, "span": here()}

async def awaited(value):
    return {"n": value, "span": here()}

def together(values):
    return [{"n": value, "span": here()} for value in values]

def parent(value, message):
    found = trace.get_current_span(context_of(message)).get_span_context()
    return {"n": value, "trace": format(found.trace_id, "032x")}

def timed(value):
    return {"number": value, "t": "2026-01-31T00:00:00Z"}

def none():
    return []

def added(so_far, value):
    return [*so_far, {"n": value, "span": here()}]

def breaks(value):
    raise ValueError("no such number")
"""


def traceparent(number: int) -> bytes:
    """Of the message with this number: each has a trace of its own."""
    return b"00-%032x-%016x-01" % (number + 1, number + 0x100)


def headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    return ("other", b"h"), ("traceparent", traceparent(number)), ("tracestate", b"vendor=%d" % number)


class Traced:
    """What came of numbers from 0 on by way of these stages, and the spans that were made."""

    def __init__(
        self,
        code: Path,
        *stages: Mapping[str, object],
        count: int = 6,
        spans: bool = True,
        most_links: int = 128,
        off: bool = False,
    ) -> None:
        (code / "traced_stages.py").write_text(CODE)
        pipeline = pipeline_of(*stages, deadLetter={"topic": "dead"}, delivery="ExactlyOnce")
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ALWAYS_OFF) if off else TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tracer = Spans(
            provider.get_tracer("test"), topic="source", group="g", pipeline="test", most_links=most_links
        )
        clock, tracker, outbox, consumer = SystemClock(), OffsetTracker(), Outbox(), FakeConsumer()
        self.producer = FakeProducer()
        outbox.attach(self.producer)
        functions, stats = load(pipeline, code), stage_stats(pipeline)
        chain = build(
            pipeline, functions, outbox, None, tracker.complete, stats, clock, tracer if spans else None
        )
        engine = Engine(consumer, chain, tracker, clock)
        engine.hold({0: 0})
        consumer.feed(*(FakeRecord(n, b"%d" % n, 0, b"k", headers(n)) for n in range(count)))
        deadline = time.monotonic() + 60
        self.failure: Exception | None = None
        try:
            while tracker.position(0) < count:
                engine.step(0.05)
                assert time.monotonic() < deadline, "it does not come to an end"
        except Exception as failure:  # noqa: BLE001 - told by the tests that expect one
            self.failure = failure
        finally:
            engine.terminate()

    def spans(self, stage: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == f"{stage} source"]

    def records(self, topic: str) -> list[tuple[object, dict[str, bytes | None]]]:
        return [
            (msgspec.json.decode(p.value or b"null"), dict(p.headers or ()))
            for p in self.producer.produced
            if p.topic == topic
        ]


def stage(kind: str, function: str, **fields: object) -> dict[str, object]:
    return {"name": "score", kind: {"function": f"traced_stages:{function}", **fields}}


OUT = {"name": "out", "produce": {"topic": "out"}}


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def test_a_batch_is_a_span_of_each_stage_linked_with_its_messages(tmp_path: Path) -> None:
    ran = Traced(tmp_path, stage("map", "seen"), OUT)
    (span,) = ran.spans("score")
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.parent is None
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.destination.name": "source",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "score",
        "messaging.operation.type": "process",
        "messaging.batch.message_count": 6,
        "messaging.kafka.offset": 0,
        "millrace.pipeline": "test",
        "millrace.dead_letters": 1,
    }
    links = [
        (link.context.trace_id, link.context.span_id, dict(link.attributes or {})) for link in span.links
    ]
    assert links == [(n + 1, n + 0x100, {"messaging.kafka.offset": n}) for n in range(6)]
    assert span.links[2].context.trace_state.get("vendor") == "2"


def test_links_are_bounded(tmp_path: Path) -> None:
    (span,) = Traced(tmp_path, stage("map", "seen"), OUT, most_links=2).spans("score")
    assert [link.context.trace_id for link in span.links] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("seen", {}),
        ("seen", {"retry": {"attempts": 2}}),
        ("seen", {"pool": {"threads": 3}}),
        ("awaited", {"pool": {"asyncio": 3}}),
        ("together", {"vectorized": True}),
        ("together", {"vectorized": True, "pool": {"threads": 3}}),
    ],
    ids=["inline", "retry", "threads", "asyncio", "vectorized", "vectorized in threads"],
)
def test_a_function_sees_the_span_of_its_batch(tmp_path: Path, kind: str, fields: dict[str, object]) -> None:
    ran = Traced(tmp_path, stage("map", kind, **fields), OUT)
    (span,) = ran.spans("score")
    seen = {value["span"] for value, _ in ran.records("out")}  # type: ignore[index]
    assert seen == {span_id(span)}
    dead = (span.attributes or {}).get("millrace.dead_letters", 0)
    assert dead == len(ran.records("dead")) == (1 if kind == "seen" else 0)
    assert not trace.get_current_span().get_span_context().is_valid, "nothing is left behind"


def test_a_context_goes_on_untouched_with_outputs_and_dead_letters(tmp_path: Path) -> None:
    ran = Traced(tmp_path, stage("map", "seen"), OUT)
    for value, found in ran.records("out"):
        number = value["n"]  # type: ignore[index]
        assert found["traceparent"] == traceparent(number)
        assert (found["tracestate"], found["other"]) == (b"vendor=%d" % number, b"h")
    ((_, letter),) = ran.records("dead")
    assert letter["traceparent"] == traceparent(3)


def test_a_context_goes_on_with_rows_of_a_channel_if_traces_are_made(tmp_path: Path) -> None:
    declared = {
        "schema": "number long, t timestamp",
        "groupBy": ["number"],
        "window": {"size": "1h", "time": "t", "lateness": "1h"},
        "aggregate": {"numbers": "count(*)"},
        "sink": {"console": {}},
    }
    collect = {"name": "by", "collect": declared}
    ran = Traced(tmp_path, stage("map", "timed"), collect)
    rows = ran.records("default.test.by.channel")
    assert [found["traceparent"] for _, found in rows] == [traceparent(n) for n in range(6)]
    assert all("other" not in found for _, found in rows)
    without = Traced(tmp_path, stage("map", "timed"), collect, spans=False)
    assert all("traceparent" not in found for _, found in without.records("default.test.by.channel"))


def test_a_function_finds_the_context_of_its_message(tmp_path: Path) -> None:
    ran = Traced(tmp_path, stage("map", "parent"), OUT)
    assert {value["n"]: value["trace"] for value, _ in ran.records("out")} == {  # type: ignore[index]
        n: f"{n + 1:032x}" for n in range(6)
    }


def test_what_is_made_of_several_messages_has_a_context_that_is_linked_with_theirs(tmp_path: Path) -> None:
    fold = {
        "name": "sums",
        "reduce": {
            "count": 6, "initial": "traced_stages:none", "accumulate": "traced_stages:added", "interval": "1h"
        },
    }  # fmt: skip
    ran = Traced(tmp_path, fold, OUT)
    work, made = ran.spans("sums")
    ((values, found),) = ran.records("out")
    assert {value["span"] for value in values} == {span_id(work)}  # type: ignore[attr-defined]
    assert made.kind is trace.SpanKind.PRODUCER
    assert [link.context.trace_id for link in made.links] == [1, 2, 3, 4, 5, 6]
    assert made.context is not None
    expected = f"00-{made.context.trace_id:032x}-{span_id(made)}-"
    assert (found["traceparent"] or b"").startswith(expected.encode())


def test_a_failure_is_told_in_its_span(tmp_path: Path) -> None:
    for fields in ({}, {"pool": {"threads": 2}}):
        ran = Traced(tmp_path, stage("map", "breaks", **fields), OUT)
        assert "no such number" in str(ran.failure)
        (span,) = ran.spans("score")
        assert not span.status.is_ok
        assert "no such number" in (span.status.description or "")
        assert (span.attributes or {})["error.type"] == "ValueError"


def test_contexts_go_on_where_the_sampler_wants_no_spans(tmp_path: Path) -> None:
    ran = Traced(tmp_path, stage("map", "seen"), OUT, off=True)
    assert not ran.exporter.get_finished_spans()
    assert [found["traceparent"] for _, found in ran.records("out")] == [
        traceparent(n) for n in (0, 1, 2, 4, 5)
    ]


@pytest.mark.parametrize(
    "bad", [(), (("traceparent", b"00-zz"),), (("traceparent", None),), (("traceparent", b"\xff\xfe"),)]
)
def test_a_message_without_a_right_context_has_none(bad: tuple[tuple[str, bytes | None], ...]) -> None:
    message = Message(1, None, bad, None, 0, 0)
    assert not trace.get_current_span(context_of(message)).get_span_context().is_valid


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test writes the module of its functions anew."""
    import sys

    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("traced_stages", None)
