"""Fields that are designed but not there yet, so that the one who writes them is told so and not "unknown key"."""

from __future__ import annotations

from typing import Final

from millrace_api.problems import PathParts

PLANNED: Final[dict[PathParts, frozenset[str]]] = {
    ("spec",): frozenset({"scaling"}),
}


def is_planned(parent: PathParts, key: str) -> bool:
    """Whether `key` is a field that a later version has in the object at `parent`."""
    return key in PLANNED.get(tuple("*" if isinstance(part, int) else part for part in parent), ())
