"""How a process finds out what it is to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """What a process calls first, once: `module:name`, with `payload` and a function to be called now and then where
    calls have a timeout (`again`). It gets back the works, a `wire.Works`. A MillraceError that this raises ends the
    parent too.
    """

    entry: str
    payload: bytes
