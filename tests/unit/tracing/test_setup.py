"""When traces are made, and that nothing is there when they are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from chain_pipelines import pipeline_of
from millrace.tracing.setup import start, wanted

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "flights"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_traces_are_wanted_by_the_standard_variables(environment: dict[str, str], expected: bool) -> None:
    assert wanted(environment) is expected


def test_a_worker_without_traces_does_not_even_import_opentelemetry() -> None:
    code = (
        "import sys, millrace.worker.assembly, millrace.worker.process, millrace.tracing; "
        "sys.exit(any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=240).returncode == 0


@pytest.fixture
def log() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


OUT = {"name": "out", "produce": {"topic": "out"}}


def test_without_the_extra_a_worker_says_so_and_works(
    log: list[structlog.typing.EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert start({"OTEL_TRACES_EXPORTER": "otlp"}, pipeline_of(OUT), "0") is None
    assert [(event["event"], event["todo"]) for event in log] == [
        ("no traces", "pip install 'millrace[otel]'")
    ]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "there is no exporter 'zipkin'"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/xml"},
            "OTLP has no protocol 'http/xml' here",
        ),
    ],
)
def test_an_exporter_that_can_not_be_had_is_told_and_the_worker_works(
    log: list[structlog.typing.EventDict], environment: dict[str, str], reason: str
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    assert start(environment, pipeline_of(OUT), "0") is None
    assert [event["reason"] for event in log] == [reason]
