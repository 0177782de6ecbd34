"""From a value of the chain to a row of the channel: checked against the columns, as JSON, with its event time.

A value is a mapping; keys that are no columns are left out, columns without a key are null. What each type takes, and
how it is written:

boolean                      bool
tinyint smallint int bigint  int within the type's range, also a float without a fraction; as a number
float double                 float or int within the type's range; NaN and infinities are null, for JSON has none
decimal(p, s)                Decimal, int, float (its shortest decimal form) or the text of a number, if it fits without
                             rounding; as a string
string                       str
binary                       bytes, bytearray, memoryview, or str that is base64; as base64
date                         date (no datetime), or `YYYY-MM-DD`; as that
timestamp                    datetime with its zone, or ISO 8601 text with its zone; as UTC, with microseconds:
                             2013-01-01T10:00:00.000000Z
array                        list or tuple
struct                       mapping, as for the whole row
map<string, ...>             mapping whose keys are str

None is null everywhere, and refused by NOT NULL. Nothing else is converted: text is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from millrace.channel.columns import INT_BITS, Misfit, checks_of, micros_of, shown
from millrace.message import Invalid
from millrace_api.ddl import Column, Simple

_Written = TypeVar("_Written")

NO_TIME: Final = 0
"""The event time of rows that have none: none of them is ever later than another."""


class RowEncoder:
    """Makes rows of values. Built once per stage, called once per value.

    Most values fit. So the simple columns are checked all at once in C (msgspec), the others by a function each; only
    a value that does not pass this way is looked at column by column, to tell which one does not fit, or that it fits
    after all.

    Args:
        columns: as `millrace_api.ddl.parse_columns` gives them.
        time: name of the column with the event time, of type timestamp; it is refused when null, and before 1970,
            where Spark has no windows and drops rows in silence. None: rows have no event time, and it is given as
            NO_TIME.
    """

    def __init__(self, columns: Sequence[Column], time: str | None) -> None:
        named = {column.name: column for column in columns}
        if time is not None and (time not in named or named[time].type != Simple("timestamp")):
            raise ValueError(f"{time} is not a column of type timestamp")
        columns = [Column(c.name, c.type, c.nullable and c.name != time) for c in columns]
        self._time = time
        self._checks = checks_of(columns)
        fields = {column.name: f"c{index}" for index, column in enumerate(columns)}
        types = {column.name: _checked_in_c(column) for column in columns}
        self._row = msgspec.defstruct(
            "Row",
            [_field(fields[c.name], types[c.name], c.nullable) for c in columns],
            rename={field: name for name, field in fields.items()},
            kw_only=True,  # a column that may not be null may follow one that may
            gc=False,
        )
        self._time_field = fields[time] if time is not None else None
        self._careful = [
            (fields[name], check)
            for name, check in self._checks.items()
            if types[name] is None and name != time
        ]
        self._convert: Callable[[object, type], msgspec.Struct] = msgspec.convert
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, value: object) -> tuple[bytes, int]:
        """The row as JSON, and its event time in microseconds since the Unix epoch.

        Raises Misfit, which names the column, the type and the value; Invalid if the value is no mapping.
        """
        try:
            row = self._convert(value, self._row)
            micros = NO_TIME
            if self._time_field is not None:
                text, micros = _event_time(getattr(row, self._time_field))
                setattr(row, self._time_field, text)
            for field, check in self._careful:
                setattr(row, field, check(getattr(row, field)))
            return self._encode(row), micros
        except Exception:  # noqa: BLE001 - whatever it was: once more, column by column
            return self._carefully(value)

    def _carefully(self, value: object) -> tuple[bytes, int]:
        if not isinstance(value, Mapping):
            raise Invalid(f"a row has to be a mapping of columns to values, found {shown(value)}")
        row = {name: _checked(name, check, value.get(name)) for name, check in self._checks.items()}
        micros = _checked(self._time, _event_time, row[self._time])[1] if self._time is not None else NO_TIME
        return self._encode(row), micros


def _event_time(value: object) -> tuple[str, int]:
    """A timestamp as text, and in microseconds since the Unix epoch. Raises Misfit, also for one before it."""
    text, micros = micros_of(value)
    if micros < 0:
        raise Misfit("an event time from 1970 on", text)
    return text, micros


def _checked(name: str, check: Callable[[object], _Written], value: object) -> _Written:
    try:
        return check(value)
    except Misfit as misfit:
        raise misfit.within(name) from misfit.__cause__


_IN_C: Final[Mapping[str, object]] = {
    "boolean": bool,
    "string": str,
    "double": float,
    **{
        name: Annotated[int, msgspec.Meta(ge=-(2 ** (b - 1)), le=2 ** (b - 1) - 1)]
        for name, b in INT_BITS.items()
    },
}


def _checked_in_c(column: Column) -> object | None:
    """The type by which msgspec takes no value that the column's check does not, and makes the same JSON of it; None
    if there is none. (A double that is NaN passes as null, so it must be nullable.)
    """
    if not isinstance(column.type, Simple) or (column.type == Simple("double") and not column.nullable):
        return None
    return _IN_C.get(column.type.name)


def _field(name: str, in_c: object | None, nullable: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    if in_c is None:
        return name, Any, None
    return (name, in_c | None, None) if nullable else (name, in_c)  # type: ignore[operator]
