"""Spans as a collector of OpenTelemetry gets them: sent by OTLP over HTTP from a worker's process, and from those of its pools."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.local.broker.embedded import EmbeddedBroker
from numbers_pipeline import ROOT, Numbers, millrace
from optional_otel import require_opentelemetry

require_opentelemetry()

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

pytestmark = pytest.mark.integration

CODE = """
from opentelemetry import trace

def doubled(value):
    with trace.get_tracer("mine").start_as_current_span("look-up"):
        return value * 2
"""

DRIVER = """
import os, sys
from pathlib import Path
from chain_fakes import FakeConsumer, FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace.chain import build, load, stage_stats
from millrace.clock import SystemClock
from millrace.engine.engine import Engine
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.tracing.setup import start

stages = [
    {"name": "inline", "map": {"function": "otlp_stages:doubled"}},
    {"name": "apart", "map": {"function": "otlp_stages:doubled", "pool": {"processes": 1}}},
    {"name": "out", "produce": {"topic": "out"}},
]
pipeline = pipeline_of(*stages, delivery="ExactlyOnce")
functions = load(pipeline, Path(sys.argv[1]))
tracing = start(os.environ, pipeline, "7")
clock, tracker, outbox, consumer = SystemClock(), OffsetTracker(), Outbox(), FakeConsumer()
outbox.attach(FakeProducer())
chain = build(pipeline, functions, outbox, None, tracker.complete, stage_stats(pipeline), clock, tracing.tracer)
engine = Engine(consumer, chain, tracker, clock)
engine.hold({0: 0})
context = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
consumer.feed(*(FakeRecord(n, b"%d" % n, 0, None, (("traceparent", context),)) for n in range(5)))
while tracker.position(0) < 5:
    engine.step(0.05)
sys.stdin.read()  # until what a process of the pool has to say has arrived
engine.terminate()
tracing.close()
"""


class Collector:
    """An OTLP receiver: keeps what is posted to it."""

    def __init__(self) -> None:
        self.spans: list[tuple[dict[str, str], object]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = texts(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [(about, span) for span in scope.spans]

    def named(self, name: str) -> list[tuple[dict[str, str], object]]:
        return [(about, span) for about, span in self.spans if span.name == name]  # type: ignore[attr-defined]


def texts(attributes: list[KeyValue]) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def test_spans_arrive_as_the_standard_variables_say(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "otlp_stages.py").write_text(CODE)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [*(str(ROOT / part) for part in ("crds", "worker", "tests")), *sys.path]
        ),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path], env=environment, stdin=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 120
        while len(collector.named("look-up")) < 10 or not collector.named("apart source"):
            assert driver.poll() is None, "the worker has ended"
            assert time.monotonic() < deadline, "the spans do not arrive"
            time.sleep(0.02)
        driver.communicate(timeout=240)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 0

    for stage in ("inline", "apart"):
        found = collector.named(f"{stage} source")
        assert found, f"no span of {stage}"
        about, span = found[0]
        assert (about["service.name"], about["deployment.environment"]) == ("test", "test")
        assert (about["service.instance.id"] == "7") is (stage == "inline")
        assert [link.trace_id.hex() for link in span.links] == ["ab" * 16]  # type: ignore[attr-defined]
        mine = {inner.parent_span_id for _, inner in collector.named("look-up")}  # type: ignore[attr-defined]
        assert {batch.span_id for _, batch in found} <= mine, "a function's own spans are within"  # type: ignore[attr-defined]
    assert len(collector.named("look-up")) == 10


def test_a_run_has_its_variables_from_the_manifest(
    tmp_path: Path, topic: str, kafka: EmbeddedBroker, collector: Collector
) -> None:
    numbers = Numbers(tmp_path, topic, bootstrap=kafka.bootstrap, partitions=2)
    numbers.make_topic(kafka.bootstrap)
    numbers.write().send(kafka.bootstrap, 300)
    manifest = json.loads(numbers.manifest.read_text())
    endpoint = f"http://127.0.0.1:{collector.server.server_port}"
    manifest["spec"]["worker"] = {"env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": endpoint}]}
    numbers.manifest.write_text(json.dumps(manifest))
    words = ("--kafka", kafka.bootstrap, "--state", numbers.state, "--replicas", 1, "--until-end")
    ended = millrace("run", numbers.manifest, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    numbers.assert_exact(kafka.bootstrap)

    spans = collector.named(f"kept {topic}")  # all are sent before a worker ends
    counts = Counter[str]()
    for _, span in spans:
        found = {one.key: one.value for one in span.attributes}  # type: ignore[attr-defined]
        partition = found["messaging.destination.partition.id"].string_value
        counts[partition] += found["messaging.batch.message_count"].int_value
    assert counts == {"0": 150, "1": 150}
