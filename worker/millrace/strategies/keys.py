"""What a manifest says a value is taken from: a field of the value, or a function of it; and the bytes of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from millrace.connectivity.ports import Record
from millrace.message import Invalid
from millrace.strategies.functions import Function, message_of

Taking = Callable[[object, Record], object]
"""Takes something from a value, which came of a record. Raises Invalid, or whatever user code raises."""

KeyOf = Callable[[object, Record], bytes | None]

_encode = msgspec.json.Encoder(order="deterministic").encode


def by_function(function: Function) -> Taking:
    """What the function returns."""
    if function.wants_message:
        return lambda value, record: function.call(value, message_of(record, value))
    return lambda value, _: function.call(value)


def by_field(path: str) -> Taking:
    """The field of a mapping; dots lead into mappings within."""
    names = path.split(".")

    def take(value: object, _: Record) -> object:
        for name in names:
            if not isinstance(value, Mapping):
                raise Invalid(
                    f"there is no field {path}: the value is a {type(value).__name__}, not a mapping"
                )
            if name not in value:
                raise Invalid(f"there is no field {path}")
            value = value[name]
        return value

    return take


def as_key(taking: Taking) -> KeyOf:
    """The same as the bytes of a record's key."""
    return lambda value, record: key_bytes(taking(value, record))


def key_bytes(value: object) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as none, everything else as JSON with sorted keys: 17 as b"17".

    Raises Invalid for what can't be encoded.
    """
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else _encode(value)
    except Exception as error:
        raise Invalid(f"a {type(value).__name__} can't be a key: {error}") from error
