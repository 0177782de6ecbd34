"""Traces, as far as the stages know of them: who makes spans of batches is the affair of `millrace.tracing`, and there is
nobody unless traces are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from millrace.connectivity.ports import Record

Header = tuple[str, bytes | None]

CONTEXT_HEADERS: Final = frozenset({"traceparent", "tracestate"})
"""Where a message's context is: W3C Trace Context, as producers' instrumentation writes it."""


class Span(Protocol):
    """The work of one stage on one batch."""

    def current(self) -> AbstractContextManager[None]:
        """Within it this span is the current one of the calling thread, or task. May be entered on many at once."""

    def end(self, dead: int = 0, failure: BaseException | None = None) -> None:
        """The work is done. Idempotent; safe on any thread."""


class Tracer(Protocol):
    def begin(self, stage: str, partition: int, records: Sequence[Record]) -> Span:
        """A stage begins to work on what these records have become; at least one."""

    def join(self, stage: str, partition: int, records: Sequence[Record]) -> list[Header]:
        """The context of what a stage has made of several messages, as headers."""


def context_headers(headers: Iterable[Header] | None) -> list[Header]:
    """Those that carry a message's context."""
    return [header for header in headers or () if header[0] in CONTEXT_HEADERS]
