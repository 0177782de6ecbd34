"""The one logging setup: structured, one event a line; JSON when nobody watches, aligned text on a terminal.

Standard logging (libraries, user code) comes out the same way, so that a worker's log has one form throughout.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

Processors = list[structlog.typing.Processor]


def configure(*, stream: TextIO | None = None, level: int = logging.INFO, **context: object) -> None:
    """Set up logging of this process to `stream` (stderr); `context` is said with each event."""
    out = stream or sys.stderr
    terminal = out.isatty()
    shared: Processors = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    final: Processors = (
        [structlog.dev.ConsoleRenderer(colors=True)]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return bound
