"""The functions of a stage that has several, each with its part: a reduce's, for example.

They are kept by `role_name(stage, field)`, which is no stage's own name: a stage's is a DNS label, without dots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millrace_api import Stage


@dataclass(frozen=True, slots=True)
class Role:
    """A function that a field of a stage names.

    Attributes:
        field: below the stage's kind, for example `accumulate`.
        reference: module:name.
        takes: what it is called with, in words; the message may come after it unless there is nothing.
    """

    field: str
    reference: str
    takes: tuple[str, ...]


VALUE: Final = ("value",)


def roles(stage: Stage) -> Iterator[Role]:
    """The functions of a stage beside `function`."""
    reduce = stage.reduce
    if reduce is not None:
        yield Role("initial", reduce.initial, ())
        yield Role("accumulate", reduce.accumulate, ("accumulated", "value"))
        if reduce.flush is not None:
            yield Role("flush", reduce.flush, ("accumulated",))
        if reduce.key is not None and is_function(reduce.key):
            yield Role("key", reduce.key, VALUE)


def is_function(taken: str) -> bool:
    """Whether it is module:name, and not the name of a field."""
    return ":" in taken


def role_name(stage: str, field: str) -> str:
    return f"{stage}.{field}"
