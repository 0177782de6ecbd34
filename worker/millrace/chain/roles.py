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
        yield from _taking("key", reduce.key)
    produce = stage.produce
    if produce is not None:
        yield from _taking("key", produce.key)
        yield from _taking("partitioner", produce.partitioner)
        for index, header in enumerate(produce.headers):
            yield from _taking(header_field(index), header.from_)


def _taking(field: str, taken: str | None) -> Iterator[Role]:
    if taken is not None and is_function(taken):
        yield Role(field, taken, VALUE)


def header_field(index: int) -> str:
    return f"headers[{index}].from"


def is_function(taken: str) -> bool:
    """Whether it is module:name, and not the name of a field."""
    return ":" in taken


def role_name(stage: str, field: str) -> str:
    return f"{stage}.{field}"
