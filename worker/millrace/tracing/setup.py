"""What the standard variables of OpenTelemetry ask for, made: the provider of traces, and where it sends them.

Traces are wanted where OTEL_TRACES_EXPORTER is set to something but `none`, or an endpoint of OTLP is. A worker never
ends because they can't be had: it says so once, and works without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

import structlog

from millrace.engine.tracing import Tracer
from millrace_api import ConsumerPipeline

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_GROUP: Final = "opentelemetry_traces_exporter"  # by which distributions offer exporters

FLUSH: Final = 5.0  # s in the end for spans that were not sent yet


class Tracing:
    """A tracer, and what has to be done in the end."""

    def __init__(self, tracer: Tracer, close: Callable[[], None] = lambda: None) -> None:
        self.tracer, self._close = tracer, close

    def close(self) -> None:
        """Send what was not sent yet, for FLUSH seconds at most."""
        thread = threading.Thread(target=self._close, name="traces", daemon=True)
        thread.start()
        thread.join(FLUSH)


class _Unavailable(Exception):
    """Traces can't be had: why, and what to do."""

    def __init__(self, why: str, todo: str) -> None:
        super().__init__(why)
        self.todo = todo


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether somebody wants traces, by the standard variables."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def start(environment: Mapping[str, str], pipeline: ConsumerPipeline, instance: str) -> Tracing | None:
    """Tracing as these variables have it; None: not wanted, or not to be had, which is logged. To be called when the
    functions' modules are set up: a provider that they have made is used, and left alone.

    Args:
        instance: tells the process from others of the pipeline.
    """
    if not wanted(environment):
        return None
    log = structlog.get_logger("millrace.tracing")
    try:
        return _started(environment, pipeline, instance)
    except ModuleNotFoundError as missing:
        log.warning("no traces", reason=str(missing), todo="pip install 'millrace[otel]'")
    except _Unavailable as error:
        log.warning("no traces", reason=str(error), todo=error.todo)
    return None


def _started(environment: Mapping[str, str], pipeline: ConsumerPipeline, instance: str) -> Tracing:
    from opentelemetry import trace

    from millrace.tracing.spans import MOST_LINKS, Spans

    found, close = trace.get_tracer_provider(), _nothing
    if isinstance(found, trace.ProxyTracerProvider):  # nobody has made one
        provider = _provider(environment, pipeline, instance)
        trace.set_tracer_provider(provider)
        found, close = provider, provider.shutdown
    limit = environment.get("OTEL_SPAN_LINK_COUNT_LIMIT", "")
    spans = Spans(
        found.get_tracer("millrace"),
        topic=pipeline.spec.source.topic,
        group=pipeline.group_id,
        pipeline=pipeline.metadata.name,
        most_links=int(limit) if limit.isdigit() else MOST_LINKS,
    )
    return Tracing(spans, close)


def _provider(environment: Mapping[str, str], pipeline: ConsumerPipeline, instance: str) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # what the variables say wins over what we would say
    said = {part.partition("=")[0] for part in _parts(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))}
    said |= {"service.name"} if environment.get("OTEL_SERVICE_NAME") else set()
    own = {"service.name": pipeline.metadata.name, "service.instance.id": instance}
    resource = Resource.create({name: value for name, value in own.items() if name not in said})
    names = _parts(environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp")
    exporters = [_exporter(name, environment) for name in names]
    # it reads OTEL_TRACES_SAMPLER and the limits by itself
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter(name: str, environment: Mapping[str, str]) -> SpanExporter:
    entry = name
    if name == "otlp":
        protocol = (
            environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or "http/protobuf"
        )
        if protocol not in _PROTOCOLS:
            raise _Unavailable(
                f"OTLP has no protocol {protocol!r} here",
                f"set OTEL_EXPORTER_OTLP_PROTOCOL to {' or '.join(_PROTOCOLS)}",
            )
        entry = _PROTOCOLS[protocol]
    for found in entry_points(group=_GROUP, name=entry):
        try:
            exporter: SpanExporter = found.load()()
        except Exception as error:  # by whoever has written it, about whatever its variables say
            raise _Unavailable(
                f"exporter {entry!r} can't be made: {error}", "see what OTEL_* variables say"
            ) from error
        return exporter
    raise _Unavailable(
        f"there is no exporter {entry!r}",
        "install the package that has it, such as opentelemetry-exporter-otlp-proto-grpc, or change "
        "OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_PROTOCOL",
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _nothing() -> None: ...
