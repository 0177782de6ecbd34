"""Spans by the semantic conventions for messaging with Kafka: of a batch in a stage, linked with its messages.

A message's own context is not touched: it goes on in the headers of what is made of it. So the trace that a message began in
shows where it came from and who takes it next, and the links lead from there to what Millrace did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from millrace.connectivity.ports import Record
from millrace.engine.tracing import CONTEXT_HEADERS, Header

MOST_LINKS = 128
"""Of a span: what OTEL_SPAN_LINK_COUNT_LIMIT is by default. Those of the first messages are taken."""

_W3C = TraceContextTextMapPropagator()


class Spans:
    """A `engine.tracing.Tracer`.

    Args:
        topic, group: the source's topic and consumer group.
        pipeline: its name.
    """

    def __init__(
        self, tracer: trace.Tracer, *, topic: str, group: str, pipeline: str, most_links: int = MOST_LINKS
    ) -> None:
        self._tracer, self._topic, self._most = tracer, topic, most_links
        self._common = {
            "messaging.system": "kafka",
            "messaging.destination.name": topic,
            "messaging.consumer.group.name": group,
            "millrace.pipeline": pipeline,
        }

    def begin(self, stage: str, partition: int, records: Sequence[Record]) -> BatchSpan:
        return BatchSpan(self._start(stage, partition, records, "process", trace.SpanKind.CONSUMER))

    def join(self, stage: str, partition: int, records: Sequence[Record]) -> list[Header]:
        span = self._start(stage, partition, records, "create", trace.SpanKind.PRODUCER)
        span.end()
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
        return [(name, value.encode()) for name, value in carrier.items()]

    def _start(
        self, stage: str, partition: int, records: Sequence[Record], operation: str, kind: trace.SpanKind
    ) -> trace.Span:
        first = records[0].offset()
        attributes: dict[str, str | int] = {
            **self._common,
            "messaging.operation.name": stage,
            "messaging.operation.type": operation,
            "messaging.destination.partition.id": str(partition),
            "messaging.batch.message_count": len(records),
            "messaging.kafka.offset": first,
        }
        return self._tracer.start_span(
            f"{stage} {self._topic}",
            context=Context(),  # never a child of what happens to be current here
            kind=kind,
            attributes=attributes,
            links=self._links(records),
        )

    def _links(self, records: Sequence[Record]) -> list[trace.Link]:
        """One for each context that the messages came with; messages of one trace may share theirs."""
        found: dict[tuple[int, int], trace.Link] = {}
        for record in records:
            headers = record.headers()
            if not headers:
                continue
            context = trace.get_current_span(extracted(headers)).get_span_context()
            place = context.trace_id, context.span_id
            if context.is_valid and place not in found:
                found[place] = trace.Link(context, {"messaging.kafka.offset": record.offset()})
                if len(found) >= self._most:
                    break
        return list(found.values())


class BatchSpan:
    """A `engine.tracing.Span`."""

    def __init__(self, span: trace.Span) -> None:
        self._span, self._context = span, trace.set_span_in_context(span, Context())
        self._ended = False

    @contextmanager
    def current(self) -> Iterator[None]:
        token = contexts.attach(self._context)
        try:
            yield
        finally:
            contexts.detach(token)

    def end(self, dead: int = 0, failure: BaseException | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        if dead:
            self._span.set_attribute("millrace.dead_letters", dead)
        if failure is not None:
            cause = failure.__cause__ or failure
            self._span.set_attribute("error.type", type(cause).__qualname__)
            self._span.set_status(trace.StatusCode.ERROR, str(failure).splitlines()[0])
        self._span.end()


def extracted(headers: Iterable[Header]) -> Context:
    """The context that headers carry; an empty one if they carry none that is right."""
    carrier: dict[str, str] = {}
    for name, value in headers:
        if name in CONTEXT_HEADERS and value is not None:
            # of several the last counts; tracestate may be in several parts
            text = value.decode("latin-1")
            joined = name == "tracestate" and name in carrier
            carrier[name] = ",".join(chain([carrier[name]], [text])) if joined else text
    if "traceparent" not in carrier:
        return Context()
    return _W3C.extract(carrier, Context())
