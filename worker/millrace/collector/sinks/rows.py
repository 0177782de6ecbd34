"""Results as JSON, made by Spark: an object with all columns, in the wire form of the channel's rows.

Timestamps are RFC 3339 in UTC with microseconds, dates YYYY-MM-DD, decimals strings, binary base64; NaN and infinities
are null. A column without a value is null, not left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_OPTIONS: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}


def as_json(rows: DataFrame, names: Sequence[str] | None = None) -> Column:
    """A column with these columns of each row (all by default) as a JSON object."""
    from pyspark.sql import functions

    fields = [field for field in rows.schema.fields if names is None or field.name in names]
    ordered = sorted(fields, key=lambda field: names.index(field.name)) if names is not None else fields
    made = (_plain(functions.col(_quoted(field.name)), field.dataType).alias(field.name) for field in ordered)
    return functions.to_json(functions.struct(*made), dict(_OPTIONS))


def pairs(rows: DataFrame, key: Sequence[str]) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each row. All of Spark's partitions are read, one after the other."""
    keys = as_json(rows, key).alias("k")
    values = as_json(rows).alias("v")
    selected = rows.select(keys, values) if key else rows.select(values)
    for row in selected.toLocalIterator():
        yield key_of(row["k"]) if key else None, row["v"].encode()


def key_of(text: str) -> bytes | None:
    """A record's key, of the JSON object of its key columns: the value itself of a single one, as text without quotes,
    None if that is null; a JSON list of several.
    """
    values = list(msgspec.json.decode(text).values())
    if len(values) > 1:
        return msgspec.json.encode(values)
    (value,) = values
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _plain(value: Column, of: DataType) -> Column:
    """The value with what JSON has not made null or text, however deep it lies."""
    from pyspark.sql import functions, types

    if isinstance(of, types.FloatType | types.DoubleType):
        odd = functions.isnan(value) | (functions.abs(value) == float("inf"))
        return functions.when(~odd, value)
    if isinstance(of, types.DecimalType):
        return value.cast("string")
    if not _touched(of):
        return value
    if isinstance(of, types.ArrayType):
        return functions.transform(value, _within(of.elementType))
    if isinstance(of, types.MapType):
        inside = _within(of.valueType)
        return functions.transform_values(value, lambda _, item: inside(item))
    assert isinstance(of, types.StructType)
    fields = [_plain(value.getField(field.name), field.dataType).alias(field.name) for field in of.fields]
    return functions.when(value.isNotNull(), functions.struct(*fields))


def _within(of: DataType) -> Callable[[Column], Column]:
    return lambda item: _plain(item, of)


def _touched(of: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(of, types.ArrayType):
        return _touched(of.elementType)
    if isinstance(of, types.MapType):
        return _touched(of.valueType)
    if isinstance(of, types.StructType):
        return any(_touched(field.dataType) for field in of.fields)
    return isinstance(of, types.FloatType | types.DoubleType | types.DecimalType)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
