"""What must hold within a collect stage's sink, beside its fields' own forms. Only Python knows, where columns are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from millrace_api.ddl import Column, Decimal, Simple
from millrace_api.forms import PARTITION_COLUMN
from millrace_api.problems import PathParts, short
from millrace_api.sinks import SINK_KINDS
from millrace_api.tree import at, get, items

BATCH: Final = "batch"
"""The column that readers of the Parquet sink get from the folders' names."""

_TIMES: Final = (Simple("date"), Simple("timestamp"))
_BINARY: Final = Simple("binary")

_Broken = tuple[PathParts, str, str]


def parts_of(entry: str) -> tuple[str, str]:
    """The folders' name and the column of an entry of partitionBy: `date(window_start)` -> (date, window_start),
    `carrier` -> (carrier, carrier).
    """
    function, bracket, rest = entry.partition("(")
    return function, rest.removesuffix(")") if bracket else function


def broken_sink_rules(collect: object, columns: Mapping[str, Column] | None) -> Iterator[_Broken]:
    """columns: of the schema; None if they can't be told."""
    sink = get(collect, "sink")
    if not isinstance(sink, Mapping):
        return
    kinds = [key for key, value in sink.items() if value is not None]
    named = [kind for kind in SINK_KINDS if kind in kinds]
    if not kinds:  # an unknown key is reported by itself
        yield (
            ("sink",),
            "the sink says nothing about what it is",
            f"give it exactly one of {', '.join(SINK_KINDS)}",
        )
    elif len(named) > 1:
        yield (
            ("sink",),
            f"the sink has {len(named)} kinds, {' and '.join(named)}",
            f"give it exactly one of {', '.join(SINK_KINDS)}",
        )
    result = _result_columns(collect, columns)
    yield from _batch_column(collect, sink)
    yield from _partitions(sink, result)
    yield from _key(sink, result)


def _result_columns(
    collect: object, columns: Mapping[str, Column] | None
) -> Mapping[str, Column | None] | None:
    """The columns of the result, with what is known of them; None if they can't be told: a function makes them."""
    aggregate = get(collect, "aggregate")
    if get(collect, "function") is not None or not isinstance(aggregate, Mapping) or columns is None:
        return None
    groups = [name for name in items(get(collect, "groupBy")) if isinstance(name, str)]
    start, end = (Column(name, Simple("timestamp")) for name in ("window_start", "window_end"))
    result: dict[str, Column | None] = {name: columns.get(name) for name in groups}
    result |= {"window_start": start, "window_end": end}
    return result | {name: None for name in aggregate if isinstance(name, str)}


def _batch_column(collect: object, sink: Mapping[str, object]) -> Iterator[_Broken]:
    if sink.get("parquet") is None:
        return
    why = f"{BATCH} names the folders of the Parquet sink", "choose another name"
    aggregate = get(collect, "aggregate")
    for index, name in enumerate(items(get(collect, "groupBy"))):
        if isinstance(name, str) and name.lower() == BATCH:
            yield ("groupBy", index), f'"{name}" is taken: {why[0]}', why[1]
    for name in aggregate if isinstance(aggregate, Mapping) else ():
        if isinstance(name, str) and name.lower() == BATCH:
            yield ("aggregate", name), f'"{name}" is taken: {why[0]}', why[1]


def _partitions(sink: Mapping[str, object], result: Mapping[str, Column | None] | None) -> Iterator[_Broken]:
    taken = {name.lower(): "" for name in result or ()} | {BATCH: ""}
    seen: set[str] = set()
    entries = items(at(sink, ("parquet", "partitionBy")))
    for index, entry in enumerate(entries):
        if not isinstance(entry, str) or re.fullmatch(PARTITION_COLUMN.pattern, entry) is None:
            continue
        place: PathParts = ("sink", "parquet", "partitionBy", index)
        folder, column = parts_of(entry)
        if result is not None and column not in result:
            yield place, f'"{short(column, 60)}" is not a column of the result', _known(result)
        elif folder.startswith("_"):
            yield (
                place,
                f'readers pass over folders whose name begins with "_": {folder}',
                "rename the column",
            )
        elif folder.lower() in seen or (folder != column and folder.lower() in taken):
            yield (
                place,
                f'"{folder}" is the name of a column already',
                "rename that column, or leave this out",
            )
        elif result is not None and (wrong := _unfit(folder, column, result[column])):
            yield place, *wrong
        seen.add(folder.lower())
    if result is not None and {parts_of(e)[0] for e in entries if isinstance(e, str)} >= set(result):
        yield ("sink", "parquet", "partitionBy"), "no column would be left for the files", "leave one out"


def _unfit(folder: str, column: str, known: Column | None) -> tuple[str, str] | None:
    if known is None:
        return None
    if folder != column and known.type not in _TIMES:
        return (
            f'"{column}" is of type {known.type}',
            f"{folder}(...) takes a column of type date or timestamp",
        )
    if folder == column and (known.type == _BINARY or not isinstance(known.type, Simple | Decimal)):
        return f'"{column}" is of type {known.type}', "use a column of numbers, text, dates or timestamps"
    return None


def _key(sink: Mapping[str, object], result: Mapping[str, Column | None] | None) -> Iterator[_Broken]:
    seen: set[str] = set()
    for index, name in enumerate(items(at(sink, ("kafka", "key")))):
        if not isinstance(name, str):
            continue
        place: PathParts = ("sink", "kafka", "key", index)
        if result is not None and name not in result:
            yield place, f'"{short(name, 60)}" is not a column of the result', _known(result)
        elif name in seen:
            yield place, f'"{name}" is there twice', "name each column once"
        seen.add(name)


def _known(columns: Mapping[str, object]) -> str:
    return short(f"use one of {', '.join(columns)}", 300)
