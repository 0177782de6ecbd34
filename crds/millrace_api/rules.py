"""What must hold across the fields of a manifest, or can't be said by a pattern.

The checks read the manifest as plain data, whatever its shape, so that they report their problems beside those of
single fields. `cel` says the same to the API server; the tests hold both to one table of manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from millrace_api.collect_rules import broken_collect_rules
from millrace_api.forms import DURATION, START_FROM
from millrace_api.gather import LONGEST_HOLD, SHORTEST_HOLD
from millrace_api.placing import broken_placing_rules
from millrace_api.pool_rules import RANGES, broken_pool_rules
from millrace_api.problems import PathParts, Problem, path_text
from millrace_api.stages import (
    FUNCTION_KINDS,
    GATHER_KINDS,
    IN_ORDER_KINDS,
    KINDS,
    ON_ERROR_KINDS,
    RESERVED_STAGE_NAMES,
    TERMINAL_KINDS,
)
from millrace_api.times import duration_seconds, timestamp_ms
from millrace_api.tree import Tree, at, get, items, stage_name

# A transaction is open for up to an interval, and the broker ends it after 10 s (docs/protocol.md).
SHORTEST_COMMIT: Final = "100ms"
LONGEST_COMMIT: Final = "5s"
SHORTEST_NODE_LOST: Final = "30s"
LONGEST_NODE_LOST: Final = "24h"
RESERVED_ENV: Final = "MILLRACE_INDEX"


_STAGES: Final = ("spec", "stages")


def broken_rules(manifest: Tree) -> Iterator[Problem]:
    """Every rule that a manifest (plain data, camelCase keys, any shape) breaks."""
    yield from _one_kind(manifest)
    yield from _unique_names(manifest)
    yield from _reserved_names(manifest)
    yield from _terminal_last(manifest)
    yield from _gathered_goes_somewhere(manifest)
    yield from _dead_letters_go_somewhere(manifest)
    yield from _topics_apart(manifest)
    yield from _range(manifest, ("spec", "commit", "interval"), SHORTEST_COMMIT, LONGEST_COMMIT)
    yield from _range(manifest, ("spec", "nodeLost", "after"), SHORTEST_NODE_LOST, LONGEST_NODE_LOST)
    for index, _ in _stages(manifest):
        for kind in GATHER_KINDS:
            yield from _range(manifest, (*_stage(index), kind, "interval"), SHORTEST_HOLD, LONGEST_HOLD)
    yield from _reserved_variables(manifest)
    for parts, message, remedy in broken_placing_rules(at(manifest, ("spec", "worker"))):
        yield _problem(manifest, ("spec", "worker", *parts), message, remedy)
    yield from _start_exists(manifest)
    for index, stage in _stages(manifest):
        for parts, message, remedy in broken_collect_rules(stage.get("collect")):
            yield _problem(manifest, (*_stage(index), "collect", *parts), message, remedy)
    yield from _executable(manifest)


def _one_kind(manifest: Tree) -> Iterator[Problem]:
    allowed = f"give it exactly one of {', '.join(KINDS)}"
    for index, stage in _stages(manifest):
        kinds = _kinds(stage)
        if len(kinds) > 1:
            yield _problem(
                manifest,
                _stage(index),
                f"the stage has {len(kinds)} kinds, {' and '.join(kinds)}",
                f"{allowed}; put the others in stages of their own",
            )
        elif not kinds and not set(stage) - {"name"} - set(KINDS):  # an unknown key is reported by itself
            yield _problem(manifest, _stage(index), "the stage says nothing about what it does", allowed)


def _unique_names(manifest: Tree) -> Iterator[Problem]:
    yield from _unique(manifest, ("spec", "stages"), "stage")
    yield from _unique(manifest, ("spec", "worker", "env"), "variable")
    yield from _unique(manifest, ("spec", "worker", "topologySpread"), "spread", key="topologyKey")
    for index, _ in _stages(manifest):
        yield from _unique(manifest, (*_stage(index), "produce", "headers"), "header")


def _unique(manifest: Tree, place: PathParts, what: str, *, key: str = "name") -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, item in enumerate(items(at(manifest, place))):
        name = get(item, key)
        if not isinstance(name, str):
            continue
        if name in first:
            yield _problem(
                manifest,
                (*place, index, key),
                f'"{name[:253]}" is the {key} of {path_text((*place, first[name]))} already',
                f"give each {what} a {key} of its own",
            )
        else:
            first[name] = index


def _reserved_names(manifest: Tree) -> Iterator[Problem]:
    for index, stage in _stages(manifest):
        name = stage.get("name")
        if isinstance(name, str) and name in RESERVED_STAGE_NAMES:
            yield _problem(
                manifest,
                (*_stage(index), "name"),
                f'"{name}" is reserved',
                f"choose another name: {RESERVED_STAGE_NAMES[name]}",
            )


def _terminal_last(manifest: Tree) -> Iterator[Problem]:
    after = -1  # rank of the terminal stage seen last
    for index, stage in _stages(manifest):
        kinds = _kinds(stage)
        if len(kinds) != 1:
            continue
        rank = TERMINAL_KINDS.index(kinds[0]) if kinds[0] in TERMINAL_KINDS else -1
        if after >= 0 and rank <= after:
            yield _problem(
                manifest,
                _stage(index),
                f"a {kinds[0]} stage can't come after a {TERMINAL_KINDS[after]} stage",
                f"{TERMINAL_KINDS[after]} ends the chain: move it to the end",
            )
        after = max(after, rank)


def _gathered_goes_somewhere(manifest: Tree) -> Iterator[Problem]:
    last = max((index for index, _ in _stages(manifest)), default=-1)
    if last < 0 or last + 1 != len(items(at(manifest, _STAGES))):
        return
    stage = at(manifest, _stage(last))
    if get(stage, "batch") is not None:
        yield _problem(
            manifest,
            _stage(last),
            "a batch stage can't be the last one: nothing would take its lists",
            "add a map stage, whose function gets a list and does with it what is wanted",
        )
    reduce = get(stage, "reduce")
    if isinstance(reduce, Mapping) and get(reduce, "flush") is None:
        yield _problem(
            manifest,
            (*_stage(last), "reduce"),
            "nothing would take what the last stage accumulates",
            "add flush, a function that does with it what is wanted, or another stage",
        )


def _dead_letters_go_somewhere(manifest: Tree) -> Iterator[Problem]:
    if at(manifest, ("spec", "deadLetter")) is not None:
        return
    for index, stage in _stages(manifest):
        for kind in ON_ERROR_KINDS:
            if get(stage.get(kind), "onError") == "DeadLetter":
                yield _problem(
                    manifest,
                    (*_stage(index), kind, "onError"),
                    "DeadLetter needs a topic for dead letters, and spec.deadLetter is not there",
                    "add spec.deadLetter with a topic, or use onError: Stop",
                )
        if at(stage, ("collect", "window", "late")) == "DeadLetter":
            yield _problem(
                manifest,
                (*_stage(index), "collect", "window", "late"),
                "DeadLetter needs a topic for dead letters, and spec.deadLetter is not there",
                "add spec.deadLetter with a topic, or use late: Drop",
            )


def _executable(manifest: Tree) -> Iterator[Problem]:
    exactly_once = at(manifest, ("spec", "delivery")) == "ExactlyOnce"
    needs = [kind for _, stage in _stages(manifest) for kind in IN_ORDER_KINDS if stage.get(kind) is not None]
    for index, stage in _stages(manifest):
        for kind in FUNCTION_KINDS:
            place = (*_stage(index), kind)
            for below, least, most in RANGES:
                yield from _range(manifest, (*place, *below), least, most)
            broken = broken_pool_rules(
                stage.get(kind), exactly_once=exactly_once, in_order=needs[0] if needs else ""
            )
            for parts, message, remedy in broken:
                yield _problem(manifest, (*place, *parts), message, remedy)


def _topics_apart(manifest: Tree) -> Iterator[Problem]:
    source = at(manifest, ("spec", "source", "topic"))
    dead = at(manifest, ("spec", "deadLetter", "topic"))
    if isinstance(dead, str) and dead == source:
        yield _problem(
            manifest,
            ("spec", "deadLetter", "topic"),
            f'"{dead[:249]}" is the topic of the source: dead letters would be consumed again',
            "use another topic",
        )
    channels = _channels(manifest)
    for field in ("source", "deadLetter"):
        topic = at(manifest, ("spec", field, "topic"))
        if isinstance(topic, str) and topic in channels:
            yield _problem(manifest, ("spec", field, "topic"), *_is_channel(topic, channels[topic]))
    for index, stage in _stages(manifest):
        topic = get(stage.get("produce"), "topic")
        if not isinstance(topic, str):
            continue
        path = (*_stage(index), "produce", "topic")
        if topic == source:
            yield _problem(
                manifest,
                path,
                f'"{topic[:249]}" is the topic of the source: the pipeline would feed itself for ever',
                "use another topic",
            )
        elif topic == dead:
            yield _problem(
                manifest,
                path,
                f'"{topic[:249]}" is the topic of spec.deadLetter: outputs and dead letters would mix',
                "use another topic",
            )
        elif topic in channels:
            yield _problem(manifest, path, *_is_channel(topic, channels[topic]))
    yield from _sink_topics_apart(manifest, channels)


def _sink_topics_apart(manifest: Tree, channels: Mapping[str, str]) -> Iterator[Problem]:
    places: list[PathParts] = [("spec", "source"), ("spec", "deadLetter")]
    places += [(*_stage(index), "produce") for index, _ in _stages(manifest)]
    taken: dict[str, str] = {}
    for place in places:
        topic = at(manifest, (*place, "topic"))
        if isinstance(topic, str):
            taken.setdefault(topic, f"the topic of {path_text(place)}")
    for index, stage in _stages(manifest):
        below = ("collect", "sink", "kafka", "topic")
        topic = at(stage, below)
        if not isinstance(topic, str):
            continue
        if topic in taken:
            message = f'"{topic[:249]}" is {taken[topic]}'
            yield _problem(manifest, (*_stage(index), *below), message, "use another topic")
        elif topic in channels:
            yield _problem(manifest, (*_stage(index), *below), *_is_channel(topic, channels[topic]))


def _channels(manifest: Tree) -> dict[str, str]:
    """Stages by the topic that is their channel; none where the name of the group can't be told."""
    group = at(manifest, ("spec", "source", "groupId"))
    if group is None:
        name, namespace = at(manifest, ("metadata", "name")), at(manifest, ("metadata", "namespace"))
        group = f"{'default' if namespace is None else namespace}.{name}" if name else None
    stages = [(stage.get("name"), stage.get("collect")) for _, stage in _stages(manifest)]
    return {f"{group}.{name}.channel": str(name) for name, collect in stages if group and collect is not None}


def _is_channel(topic: str, stage: str) -> tuple[str, str]:
    return f'"{topic[:249]}" is the channel of stage {stage[:63]}', "use another topic"


def _reserved_variables(manifest: Tree) -> Iterator[Problem]:
    place = ("spec", "worker", "env")
    for index, item in enumerate(items(at(manifest, place))):
        if get(item, "name") == RESERVED_ENV:
            yield _problem(
                manifest,
                (*place, index, "name"),
                f'"{RESERVED_ENV}" is how a worker gets its index',
                "choose another name",
            )


def _range(manifest: Tree, path: PathParts, least: str, most: str) -> Iterator[Problem]:
    text = at(manifest, path)
    if not isinstance(text, str) or len(text) > DURATION.max_length:
        return
    try:
        seconds = duration_seconds(text)
    except ValueError:
        return
    if not duration_seconds(least) <= seconds <= duration_seconds(most):
        yield _problem(manifest, path, f'"{text}" is out of range', f"use a duration from {least} to {most}")


def _start_exists(manifest: Tree) -> Iterator[Problem]:
    path = ("spec", "source", "startFrom")
    text = at(manifest, path)
    if not isinstance(text, str) or text in ("Earliest", "Latest"):
        return
    if re.fullmatch(START_FROM.pattern, text) is None:
        return  # not of the form: the field's own affair
    try:
        fine = timestamp_ms(text) >= 0
    except (ValueError, OverflowError):
        fine = False
    if not fine:
        yield _problem(
            manifest,
            path,
            f'"{text}" is not a time that a message can have',
            "use a day that exists, from 1970-01-01T00:00:00Z on",
        )


def _problem(manifest: Tree, parts: PathParts, message: str, remedy: str) -> Problem:
    return Problem(path_text(parts), message, remedy, stage=stage_name(manifest, parts))


def _stage(index: int) -> PathParts:
    return (*_STAGES, index)


def _stages(manifest: Tree) -> Iterator[tuple[int, Tree]]:
    for index, stage in enumerate(items(at(manifest, _STAGES))):
        if isinstance(stage, Mapping):
            yield index, stage


def _kinds(stage: Tree) -> list[str]:
    return [kind for kind in KINDS if stage.get(kind) is not None]
