"""What must hold within a collect stage. Of the schema only Python knows; `cel` has the rest too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from millrace_api.collect import (
    LONGEST_AGE,
    LONGEST_TRIGGER,
    LONGEST_WINDOW,
    RESULT_COLUMNS,
    SHORTEST_AGE,
    SHORTEST_TRIGGER,
    SHORTEST_WINDOW,
)
from millrace_api.ddl import Column, DdlError, Simple, parse_columns
from millrace_api.expressions import fault, unknown_columns
from millrace_api.forms import DURATION
from millrace_api.problems import PathParts, short
from millrace_api.sink_rules import broken_sink_rules
from millrace_api.spark import is_kept
from millrace_api.times import exact_seconds
from millrace_api.tree import at, get, items

Broken = tuple[PathParts, str, str]
"""Where below `collect`, what is wrong, what to do."""

_BOUNDS: Final = (
    (("window", "size"), SHORTEST_WINDOW, LONGEST_WINDOW),
    (("window", "slide"), SHORTEST_WINDOW, LONGEST_WINDOW),
    (("window", "lateness"), "0s", LONGEST_WINDOW),
    (("trigger", "interval"), SHORTEST_TRIGGER, LONGEST_TRIGGER),
    (("trigger", "onLag", "age"), SHORTEST_AGE, LONGEST_AGE),
)


def broken_collect_rules(collect: object) -> Iterator[Broken]:
    """Every rule that the value of `collect` (plain data of any shape) breaks."""
    if not isinstance(collect, Mapping):
        return
    yield from _one_query(collect)
    yield from _durations(collect)
    yield from _slide(collect)
    yield from _trigger(collect)
    yield from _conf(collect)
    yield from _executors(collect)
    text = get(collect, "schema")
    columns: dict[str, Column] | None = None
    if isinstance(text, str):
        try:
            columns = {column.name: column for column in parse_columns(text)}
        except DdlError as error:
            yield ("schema",), short(error.message, 300), error.remedy
    if columns is not None:
        yield from _group_by(collect, columns)
        yield from _time(collect, columns)
        yield from _expressions(collect, columns)
    yield from _result(collect)
    yield from broken_sink_rules(collect, columns)


def _one_query(collect: Mapping[str, object]) -> Iterator[Broken]:
    """Either aggregate, with all that belongs to it, or function."""
    if collect.get("function") is not None:
        groups = ("groupBy",) if items(collect.get("groupBy")) else ()
        for place in (("aggregate",), groups, ("window", "size"), ("window", "slide")):
            if place and at(collect, place) is not None:
                yield (
                    place,
                    f"{place[-1]} can't stand beside function",
                    "take it out: the function groups by itself",
                )
        return
    window = collect.get("window")
    if window is None:
        yield ("window",), "it is missing", "add window: The windows in event time."
    elif isinstance(window, Mapping) and window.get("size") is None:
        yield ("window", "size"), "it is missing", "add size: Length of a window, for example 1h."
    if collect.get("aggregate") is None:
        yield ("aggregate",), "it is missing", "add aggregate: Columns of the result; or function."
    if collect.get("sink") is None:
        yield ("sink",), "it is missing", "add sink: Where results go."


def _durations(collect: object) -> Iterator[Broken]:
    for place, least, most in _BOUNDS:
        seconds = _seconds(at(collect, place))
        if seconds is not None and not exact_seconds(least) <= seconds <= exact_seconds(most):
            yield place, f'"{at(collect, place)}" is out of range', f"use a duration from {least} to {most}"


def _slide(collect: object) -> Iterator[Broken]:
    size, slide = _seconds(at(collect, ("window", "size"))), _seconds(at(collect, ("window", "slide")))
    if size and slide and size % slide:
        found = at(collect, ("window", "slide"))
        yield (
            ("window", "slide"),
            f'"{found}" does not divide the size, {at(collect, ("window", "size"))}',
            "use a slide of which the size is a multiple",
        )


def _trigger(collect: object) -> Iterator[Broken]:
    trigger = get(collect, "trigger")
    lag = get(trigger, "onLag")
    if lag is not None and get(trigger, "interval") is not None:
        yield ("trigger",), "a trigger is either interval or onLag, not both", "leave one of them out"
    # an unknown key is reported by itself
    if isinstance(lag, Mapping) and not {key for key, value in lag.items() if value is not None}:
        yield (
            ("trigger", "onLag"),
            "it says nothing about how much has to wait",
            "give it messages, age, or both",
        )


def _conf(collect: object) -> Iterator[Broken]:
    given = at(collect, ("spark", "conf"))
    for key in given if isinstance(given, Mapping) else ():
        if isinstance(key, str) and is_kept(key):
            yield (
                ("spark", "conf", key),
                f"{short(key, 128)} can't be set: it is Millrace's own",
                "take it out; the sizes of pods are spark.driver and spark.executors",
            )


def _executors(collect: object) -> Iterator[Broken]:
    given = at(collect, ("spark", "executors"))
    if not isinstance(given, Mapping):
        return
    place: PathParts = ("spark", "executors")
    instances, least, most = (given.get(key) for key in ("instances", "min", "max"))
    if (instances is None) == (most is None):
        yield place, "their number is either instances or max", "give one of them"
    if least is not None and instances is not None:
        yield (*place, "min"), "min can't stand beside instances", "take it out"
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield (*place, "min"), f"{least} is more than max, {most}", "give a min that is not above max"


def _group_by(collect: object, columns: Mapping[str, Column]) -> Iterator[Broken]:
    seen: set[str] = set()
    for index, name in enumerate(items(get(collect, "groupBy"))):
        if not isinstance(name, str):
            continue
        place: PathParts = ("groupBy", index)
        if name not in columns:
            yield place, f'"{short(name, 60)}" is not a column of the schema', _known(columns)
        elif name in seen:
            yield place, f'"{name}" is there twice', "name each column once"
        seen.add(name)


def _time(collect: object, columns: Mapping[str, Column]) -> Iterator[Broken]:
    place = ("window", "time")
    name = at(collect, place)
    if not isinstance(name, str):
        return
    column = columns.get(name)
    if column is None:
        yield place, f'"{short(name, 60)}" is not a column of the schema', _known(columns)
    elif column.type != Simple("timestamp"):
        yield place, f'"{name}" is of type {column.type}', "use a column of type timestamp"


def _expressions(collect: object, columns: Mapping[str, Column]) -> Iterator[Broken]:
    """What Spark would refuse at the collector's start, as far as it can be told without it."""
    aggregate = get(collect, "aggregate")
    known = {*(name.lower() for name in columns), "window"}
    for name, expression in aggregate.items() if isinstance(aggregate, Mapping) else ():
        if not isinstance(name, str) or not isinstance(expression, str):
            continue
        place: PathParts = ("aggregate", name)
        wrong = fault(expression)
        if wrong is not None:
            yield place, f'"{short(expression, 60)}": {wrong}', "write an aggregate of Spark's SQL"
            continue
        for column in unknown_columns(expression, known):
            yield place, f'"{short(column, 60)}" is not a column of the schema', _known(columns)


def _result(collect: object) -> Iterator[Broken]:
    """Names of the result's columns: Spark does not tell them apart by case."""
    aggregate = get(collect, "aggregate")
    taken = {name.lower(): f"{name} names the window" for name in RESULT_COLUMNS}
    for name in items(get(collect, "groupBy")):
        if isinstance(name, str):
            if name.lower() in RESULT_COLUMNS:
                yield ("groupBy",), f'"{name}" is a column of the result already', "rename it in the schema"
            taken[name.lower()] = f"{name} is a column of groupBy"
    if not isinstance(aggregate, Mapping):
        return
    for name in aggregate:
        if not isinstance(name, str):
            continue
        why = taken.get(name.lower())
        if why is not None:
            yield ("aggregate", name), f'"{short(name, 60)}" is taken: {why}', "choose another name"
        taken.setdefault(name.lower(), f"{short(name, 60)} is there already")


def _known(columns: Mapping[str, Column]) -> str:
    return short(f"use one of {', '.join(columns)}", 300)


def _seconds(text: object) -> Decimal | None:
    if not isinstance(text, str) or len(text) > DURATION.max_length:
        return None
    try:
        return exact_seconds(text)
    except ValueError:
        return None
