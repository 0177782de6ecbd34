"""A manifest as plain data of any shape: how to look into it without stumbling over what is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from millrace_api.problems import PathParts

Tree: TypeAlias = Mapping[str, object]


def at(tree: object, parts: PathParts) -> object:
    """The value at a path; None if there is nothing, or not even the way to it."""
    for part in parts:
        if isinstance(part, int):
            inside = items(tree)
            tree = inside[part] if part < len(inside) else None
        else:
            tree = get(tree, part)
    return tree


def get(tree: object, key: str) -> object:
    """The value of a key; None if there is none or this is no mapping."""
    return tree.get(key) if isinstance(tree, Mapping) else None


def items(tree: object) -> Sequence[object]:
    """The entries of a list; none if this is no list."""
    return tree if isinstance(tree, list | tuple) else ()


def stage_name(manifest: object, parts: PathParts) -> str:
    """Name of the stage that a path lies in, "" if in none or if it has none that can be shown."""
    if len(parts) < 3 or parts[:2] != ("spec", "stages") or not isinstance(parts[2], int):
        return ""
    name = at(manifest, (*parts[:3], "name"))
    return name if isinstance(name, str) and len(name) <= 63 and name.isprintable() else ""
