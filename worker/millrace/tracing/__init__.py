"""OpenTelemetry: spans of what stages do, by batch, with links to the messages' contexts. Needs `millrace[otel]`.

`setup` makes what the standard OTEL_* variables ask for, `spans` the spans. No other room imports OpenTelemetry, and nothing
here is imported unless traces are wanted, or a user's function asks for the context of its message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.message import Message

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["context_of"]


def context_of(message: Message) -> Context:
    """The context that a message came with, as the parent of spans (`start_as_current_span(..., context=...)`); an empty one
    if it came with none. Raises ModuleNotFoundError without `millrace[otel]`.
    """
    from millrace.tracing.spans import extracted

    return extracted(message.headers)
