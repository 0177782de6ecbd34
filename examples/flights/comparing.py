"""Compares records found in a topic with those that should be there, by identity: the source partition and offset of
each. Content is no identity: thousands of flights are equal in all that is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Identity = tuple[int, int]  # source partition, source offset
SHOWN = 20


class Found(NamedTuple):
    """A record as it was read. `place`: partition and offset in the topic that was read."""

    identity: Identity
    content: Mapping[str, object]
    place: tuple[int, int]


@dataclass
class Comparison:
    """How many of each there are; `examples` has the first differences in words."""

    expected: int
    found: int
    missing: int = 0
    doubled: int = 0
    changed: int = 0
    unexpected: int = 0
    disordered: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        differences = self.missing + self.doubled + self.changed + self.unexpected + self.disordered
        return differences == 0 and self.expected == self.found

    def note(self, text: str) -> None:
        if len(self.examples) < SHOWN:
            self.examples.append(text)


def compare(expected: Mapping[Identity, Mapping[str, object]], found: Iterable[Found]) -> Comparison:
    """As many, none twice, equal in every field and in its type, in the source's order within a partition. `found` is
    in the order of the topic's partitions.
    """
    found = list(found)
    result = Comparison(len(expected), len(found))
    seen: dict[Identity, tuple[int, int]] = {}
    latest: dict[
        tuple[int, int], int
    ] = {}  # by partition of the topic, and of the source: the last source offset
    for record in found:
        identity, place = record.identity, record.place
        if identity in seen:
            result.doubled += 1
            result.note(f"{_source(identity)} is at {_at(seen[identity])} and again at {_at(place)}")
            continue
        seen[identity] = place
        lane = (place[0], identity[0])
        if identity[1] < latest.get(lane, -1):
            result.disordered += 1
            result.note(f"{_source(identity)} comes after offset {latest[lane]}, at {_at(place)}")
        latest[lane] = max(identity[1], latest.get(lane, -1))
        should = expected.get(identity)
        if should is None:
            result.unexpected += 1
            result.note(f"{_source(identity)} should not be there, and is at {_at(place)}")
        elif not _same(should, record.content):
            result.changed += 1
            result.note(f"{_source(identity)} at {_at(place)}: {_difference(should, record.content)}")
    for identity in expected:
        if identity not in seen:
            result.missing += 1
            result.note(f"{_source(identity)} is missing")
    return result


def _same(should: Mapping[str, object], content: Mapping[str, object]) -> bool:
    # 1 == 1.0 == True in Python, not in JSON
    if should != content:
        return False
    return [*map(type, should.values())] == [*map(type, (content[name] for name in should))]


def _difference(should: Mapping[str, object], content: Mapping[str, object]) -> str:
    nothing = object()
    parts = []
    for name in {**should, **content}:
        one, other = should.get(name, nothing), content.get(name, nothing)
        if one is nothing:
            parts.append(f"{name} should not be there, and is {other!r}")
        elif other is nothing:
            parts.append(f"{name} should be {one!r}, and is not there")
        elif one != other or type(one) is not type(other):
            parts.append(f"{name} should be {one!r}, and is {other!r}")
    return "; ".join(parts)


def _source(identity: Identity) -> str:
    return f"the flight at partition {identity[0]}, offset {identity[1]}"


def _at(place: tuple[int, int]) -> str:
    return f"{place[0]}:{place[1]}"
