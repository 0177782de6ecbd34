"""What each type of a column takes, and as what it is written (the table in `schema`). Every check is a function from
the value to what JSON gets for it; it raises Misfit.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

from millrace.message import Invalid
from millrace_api.ddl import Array, Column, DataType, Decimal, Map, Simple, Struct

Check = Callable[[object], object]

INT_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_LARGEST_FLOAT: Final = 3.4028234663852886e38
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SHOWN: Final = 80  # characters of a value in a message


class Misfit(Invalid):
    """A value that does not fit its column: the message becomes a dead letter with this text as reason."""

    def __init__(self, expected: str, found: str, column: str = "") -> None:
        super().__init__(
            f"column {column}: expected {expected}, found {found}" if column else f"expected {expected}"
        )
        self.expected, self.found, self.column = expected, found, column

    def __reduce__(self) -> tuple[object, ...]:
        return (Misfit, (self.expected, self.found, self.column))

    def within(self, outer: str) -> Misfit:
        """The same, seen from outside of a column, field or element."""
        joint = "" if not self.column or self.column.startswith("[") else "."
        return Misfit(self.expected, self.found, f"{outer}{joint}{self.column}")


def shown(value: object) -> str:
    """A value in one line, with its type; whatever it is."""
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to write out very long ones
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's object may fail even at this
        text = "..."
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{text.encode('ascii', 'backslashreplace').decode()} ({type(value).__name__})"


def checks_of(columns: Sequence[Column]) -> dict[str, Check]:
    """The check of each column, in their order."""
    return {column.name: _nullable(column) for column in columns}


def micros_of(value: object) -> tuple[str, int]:
    """A timestamp as text, and in microseconds since the Unix epoch. Raises Misfit."""
    if type(value) is str:
        return _micros_of_text(value)
    moment = _moment(value)
    return _timestamp_text(moment), (moment - _EPOCH) // _MICROSECOND


@lru_cache(
    maxsize=4096
)  # the same few come again and again, in a stream of about one time, to the minute or second
def _micros_of_text(text: str) -> tuple[str, int]:
    moment = _moment(text)
    micros = (moment - _EPOCH) // _MICROSECOND
    # what has the form already needs no formatting, which costs more than all the rest
    if text[-1] == "Z" and text[16:17] == ":" and text[10] == "T" and text[5] != "W":
        if len(text) == 20:
            return f"{text[:19]}.000000Z", micros
        if len(text) == 27 and text[19] == ".":
            return text, micros
    return _timestamp_text(moment), micros


def _nullable(column: Column) -> Check:
    check, nullable, name = _check(column.type), column.nullable, f"{column.type}"

    def checked(value: object) -> object:
        written = None if value is None else check(value)
        if written is None and not nullable:
            raise Misfit(f"{name} not null", shown(value))
        return written

    return checked


def _check(data_type: DataType) -> Check:
    match data_type:
        case Simple(name) if name in INT_BITS:
            return _integer(name)
        case Simple(name):
            return _SIMPLE[name]
        case Decimal():
            return _decimal(data_type)
        case Array(element):
            return _array(_check(element), str(data_type))
        case Map(value):
            return _map(_check(value), str(data_type))
        case Struct(fields):
            return _struct(checks_of(fields))


def _boolean(value: object) -> object:
    if isinstance(value, bool):
        return value
    raise Misfit("boolean", shown(value))


def _integer(name: str) -> Check:
    bound = 2 ** (INT_BITS[name] - 1)

    def integer(value: object) -> object:
        whole: int | None = None
        if (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        ):
            whole = int(value)
        if whole is None or not -bound <= whole < bound:
            raise Misfit(name, shown(value))
        return whole

    return integer


def _floating(name: str, largest: float) -> Check:
    def floating(value: object) -> object:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Misfit(name, shown(value))
        try:
            number = float(value)
        except OverflowError as error:
            raise Misfit(name, shown(value)) from error
        if not math.isfinite(number):
            return None
        if abs(number) > largest:
            raise Misfit(name, shown(value))
        return number

    return floating


def _decimal(data_type: Decimal) -> Check:
    name, scale = str(data_type), data_type.scale
    largest = decimal.Decimal(10) ** (data_type.precision - scale)
    context = decimal.Context(prec=data_type.precision + 2, traps=[decimal.Inexact, decimal.InvalidOperation])
    unit = decimal.Decimal(1).scaleb(-scale)

    def decimally(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, decimal.Decimal | int | float | str):
            raise Misfit(name, shown(value))
        try:
            number = decimal.Decimal(repr(float(value)) if isinstance(value, float) else value)
            if number.is_nan() or number.is_infinite():
                if isinstance(value, str):
                    raise Misfit(name, shown(value))
                return None
            if abs(number) >= largest:
                raise Misfit(name, shown(value))
            return f"{number.quantize(unit, context=context):f}"
        except (decimal.DecimalException, ValueError) as error:
            raise Misfit(name, shown(value)) from error

    return decimally


def _string(value: object) -> object:
    if not isinstance(value, str):
        raise Misfit("string", shown(value))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Misfit("string", f"{shown(value)}, which is no Unicode") from error
    return str(value)


def _binary(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except ValueError as error:
            raise Misfit("binary", f"{shown(value)}, which is no base64") from error
        return str(value)
    raise Misfit("binary", shown(value))


def _date(value: object) -> object:
    if isinstance(value, date) and not isinstance(value, datetime):
        return date.isoformat(value)
    if isinstance(value, str) and len(value) == 10 and value[4] == "-" == value[7]:
        try:
            return date.fromisoformat(value).isoformat()
        except ValueError as error:
            raise Misfit("date", shown(value)) from error
    raise Misfit("date", shown(value))


def _timestamp(value: object) -> object:
    return micros_of(value)[0]


def _moment(value: object) -> datetime:
    """In UTC."""
    moment: datetime | None = None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise Misfit("timestamp", shown(value)) from error
    elif isinstance(value, datetime):
        moment = value
    if moment is None:
        raise Misfit("timestamp", shown(value))
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise Misfit("timestamp", f"{shown(value)}, which has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise Misfit("timestamp", shown(value)) from error


def _timestamp_text(moment: datetime) -> str:
    return moment.isoformat("T", "microseconds")[:26] + "Z"


def _array(check: Check, name: str) -> Check:
    def array(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise Misfit(name, shown(value))
        return [_inside(check, element, f"[{index}]") for index, element in enumerate(value)]

    return array


def _map(check: Check, name: str) -> Check:
    def mapping(value: object) -> object:
        if not isinstance(value, Mapping):
            raise Misfit(name, shown(value))
        for key in value:
            if not isinstance(key, str):
                raise Misfit(name, f"the key {shown(key)}")
            _string(key)
        return {str(key): _inside(check, inside, f"[{key!r:.60}]") for key, inside in value.items()}

    return mapping


def _struct(checks: Mapping[str, Check]) -> Check:
    def struct(value: object) -> object:
        if not isinstance(value, Mapping):
            raise Misfit("struct", shown(value))
        return {name: _inside(check, value.get(name), name) for name, check in checks.items()}

    return struct


def _inside(check: Check, value: object, place: str) -> object:
    try:
        return None if value is None and place.startswith("[") else check(value)
    except Misfit as misfit:
        raise misfit.within(place) from misfit.__cause__


_SIMPLE: Final[Mapping[str, Check]] = {
    "boolean": _boolean,
    "float": _floating("float", _LARGEST_FLOAT),
    "double": _floating("double", math.inf),
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
}
