"""pydantic's errors in the words of the manifest: what was found, and what is allowed there."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from millrace_api.forms import FORMS
from millrace_api.planned import is_planned
from millrace_api.problems import PathParts, Problem, path_text, short
from millrace_api.schema import Json, Schema, keys_at, node_at
from millrace_api.tree import at, stage_name

_TYPE_NAMES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_KEY = "[key]"


def problems_of(error: ValidationError, manifest: object) -> Iterator[tuple[PathParts, Problem]]:
    """Each problem, with the path it lies at. Broken rules are left out: `rules` tells them from the plain data."""
    for details in error.errors(include_url=False, include_context=True):
        if details["type"] == "rule":
            continue
        parts: PathParts = details["loc"]
        if details["type"] == "too_short" and not _is_short(details["input"], parts):
            continue  # pydantic counts the entries that are valid
        message, remedy = _explain(details, parts, manifest)
        if parts and parts[-1] == _KEY:
            parts = parts[:-1]
        yield parts, Problem(path_text(parts), message, remedy, stage=stage_name(manifest, parts))


def shown(value: object) -> str:
    """A value as in the manifest, in one short line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{short(value, 60)}"'
        case float() if math.isnan(value):
            return ".nan"
        case int() if abs(value) >= 10**20:
            return "a very large number"
        case int() | float():
            return str(value)
        case Mapping():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known name most like the word, None if none is like it."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word[:253].lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def _explain(details: ErrorDetails, parts: PathParts, manifest: object) -> tuple[str, str]:
    value: object = details["input"]
    kind = details["type"]
    if kind == "missing":
        return _missing(manifest, parts)
    if kind == "extra_forbidden":
        return _unknown_key(parts)
    node = node_at(parts) or {}
    if parts and parts[-1] == _KEY:
        names = (node_at(parts[:-2]) or {}).get("propertyNames")
        node = names if isinstance(names, dict) else {}
    if kind == "invalid_key":
        return f"the key {shown(value)} is not a string", "put it in quotes"
    if kind == "literal_error":
        return _not_one_of(value, node)
    form = FORMS.get(str(node.get("pattern")))
    if form is not None and isinstance(value, str):
        return f"{shown(value)} is not {form.noun}", f"use {form.allowed}"
    if kind in ("too_long", "too_short") and isinstance(value, Sequence | Mapping):
        allowed = _range(node, "minItems", "maxItems") or _range(node, "minProperties", "maxProperties")
        return f"it has {len(value)} entries", f"use {allowed}"
    if kind in ("string_too_long", "string_too_short") and isinstance(value, str):
        return f"the text has {len(value)} characters", f"use at most {node.get('maxLength')}"
    bounds = _range(node, "minimum", "maximum")
    if bounds and isinstance(value, int | float) and not isinstance(value, bool) and "type" not in kind:
        noun = _TYPE_NAMES.get(str(node.get("type")), "a value")
        if kind == "int_from_float":
            return f"{shown(value)} is not a whole number", f"use {noun} {bounds}"
        return f"{shown(value)} is out of range", f"use {noun} {bounds}"
    wanted = _TYPE_NAMES.get(str(node.get("type")))
    if wanted is not None:
        return _wrong_type(value, wanted, node)
    return f"{shown(value)} is not allowed: {short(details['msg'], 200)}", ""


def _is_short(value: object, parts: PathParts) -> bool:
    least = (node_at(parts) or {}).get("minItems")
    return not isinstance(value, Sequence) or not isinstance(least, int) or len(value) < least


def _missing(manifest: object, parts: PathParts) -> tuple[str, str]:
    parent, key = at(manifest, parts[:-1]), parts[-1]
    empty = isinstance(parent, Mapping) and key in parent
    about = str((node_at(parts) or {}).get("description", ""))
    return (
        "it has no value" if empty else "it is missing",
        f"{'give' if empty else 'add'} {key}: {_first_sentence(about)}",
    )


def _unknown_key(parts: PathParts) -> tuple[str, str]:
    parent, key = parts[:-1], str(parts[-1])
    if is_planned(parent, key):
        return f"{key} is not available in this version", "leave it out; a later version will have it"
    known = keys_at(parent)
    guess = nearest(key, known)
    allowed = f"known here: {', '.join(known)}"
    return f'unknown key "{short(key, 60)}"', f"did you mean {guess}? ({allowed})" if guess else allowed


def _not_one_of(value: object, node: Schema) -> tuple[str, str]:
    choices = [str(choice) for choice in _list(node.get("enum"))]
    guess = nearest(value, choices) if isinstance(value, str) else None
    allowed = f"use {choices[0]}" if len(choices) == 1 else f"use one of {', '.join(choices)}"
    return f"{shown(value)} is not allowed", f"did you mean {guess}? ({allowed})" if guess else allowed


def _wrong_type(value: object, wanted: str, node: Schema) -> tuple[str, str]:
    remedy = f"use {wanted}"
    form = FORMS.get(str(node.get("pattern")))
    if form is not None:
        remedy = f"use {form.allowed}"
    elif wanted == "a string" and isinstance(value, bool | int | float):
        remedy = f'put it in quotes: "{shown(value)}"'
    elif wanted == "a mapping":
        keys = list(_dict(node.get("properties")))
        remedy += f" with {', '.join(keys)}" if keys else ""
    elif wanted == "a list":
        remedy += ", its entries beginning with '- '"
    bounds = _range(node, "minimum", "maximum")
    return f"{shown(value)} is not {wanted}", f"{remedy} {bounds}" if bounds else remedy


def _range(node: Schema, low: str, high: str) -> str:
    least, most = node.get(low), node.get(high)
    if least is not None and most is not None:
        return f"from {least} to {most}"
    if least is not None:
        return f"of at least {least}"
    return f"at most {most}" if most is not None else ""


def _first_sentence(text: str) -> str:
    sentence, dot, _ = text.partition(". ")
    return f"{sentence}." if dot else sentence


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
