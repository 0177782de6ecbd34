"""The schemas that are generated refuse what `load` refuses and accept what it accepts.

The API server's part is played by jsonschema for the structural schema and cel-python for the rules. Real API servers
differ in what they make of a schema only in that they drop unknown keys (kubectl reports them) and nulls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import celpy
import pytest
import re2
from celpy.adapter import json_to_cel
from jsonschema import Draft202012Validator, ValidationError, validators

from api_manifests import ABSENT, BAD, VALID, Bad, changed
from millrace_api import load, refused_changes
from millrace_api.crd import structural_schema
from millrace_api.editor import editor_schema

pytestmark = pytest.mark.unit

# What the editors' schema leaves to `millrace validate`: rules across fields, and dates.
_ACROSS_FIELDS = frozenset(
    {
        "two stages of one name",
        "a batch that nothing takes",
        "a reduce that nothing takes",
        "dead letters of a reduce without a topic for them",
        "two pools in one",
        "a pool of nothing",
        "a timeout without a pool",
        "a timeout out of range",
        "an order without a pool",
        "no order with ExactlyOnce",
        "an order of keys before a collect stage",
        "a wait that is longer than the longest",
        "waits out of range",
        "produce in the middle",
        "produce first",
        "a source that is the channel of a group by default",
        "produce to the channel",
        "late rows as dead letters without a topic for them",
        "collect before produce",
        "a map after collect",
        "a slide that does not divide the size",
        "sinks of two kinds",
        "aggregates that Spark would refuse",
        "a function beside what it stands for",
        "a function with groups",
        "a function with a slide",
        "aggregates without a window's size",
        "folders of what is no column",
        "folders whose name is taken",
        "a key of what is no column",
        "a node that is lost too soon",
        "the workers' own variable",
        "a pod that says that it is another's",
        "a node of no zone",
        "a label that is there with a value",
        "workers spread twice over the same",
        "results into the source",
        "results among the dead letters",
        "results among the outputs",
        "results into the channel",
        "a slide beyond the size",
        "durations out of range",
        "a schema with a type of another dialect",
        "executors of no number",
        "executors of two numbers",
        "more executors at least than at most",
        "groups and times that are no columns",
        "a time that is none",
        "a result with two columns of one name",
        "a sink of no kind",
        "both triggers",
        "a lag of nothing",
        "an age out of range",
        "produce to the source",
        "produce to the dead letters",
        "dead letters without a topic for them",
        "dead letters into the source",
        "a variable that is there twice",
        "an interval that outlasts a transaction",
        "an interval of nothing",
        "a start on a day that does not exist",
        "a start before there was time",
    }
)


def _matches(_: object, pattern: str, text: object, __: object) -> Iterator[ValidationError]:
    if isinstance(text, str) and not re2.search(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


# With the API server's regular expressions: in Python's own, $ matches before a line's end too.
Validator = validators.extend(Draft202012Validator, {"pattern": _matches})


@pytest.mark.parametrize("name", VALID)
def test_the_api_server_accepts_what_is_valid(name: str) -> None:
    assert list(api_server(changed(VALID[name]))) == []


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.only_python], ids=lambda bad: bad.name)
def test_the_api_server_refuses_what_is_not(bad: Bad) -> None:
    assert list(api_server(changed(bad.changes)))


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad.only_python], ids=lambda bad: bad.name)
def test_what_only_python_knows_is_really_unknown_to_the_schema(bad: Bad) -> None:
    assert list(api_server(changed(bad.changes))) == []


@pytest.mark.parametrize("name", VALID)
def test_an_editor_accepts_what_is_valid(name: str) -> None:
    assert list(editor(changed(VALID[name]))) == []


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_an_editor_marks_what_is_not_but_for_rules_across_fields(bad: Bad) -> None:
    across = (
        bad.name in _ACROSS_FIELDS
        or bad.name.endswith("which is ours")
        or "confines the pod less" in bad.name
    )
    assert bool(list(editor(changed(bad.changes)))) != across


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {}, []),
        ({}, {"spec/source/format": "bytes", "spec/stages/0": ABSENT, "spec/replicas": 9}, []),
        (
            {},
            {"spec/source/topic": "other"},
            ['spec.source.topic: it was "flights" and can\'t be changed to "other"'],
        ),
        (
            {},
            {"spec/source/groupId": "other"},
            ['spec.source.groupId: it was "flight-delays" and can\'t be changed to "other"'],
        ),
        (
            {},
            {"spec/source/groupId": ABSENT},
            ['spec.source.groupId: it was "flight-delays" and can\'t be removed'],
        ),
        (
            {"spec/source/groupId": ABSENT},
            {},
            ['spec.source.groupId: it can\'t be added later (now "flight-delays")'],
        ),
        ({"spec/source/groupId": ABSENT}, {"spec/source/groupId": ABSENT}, []),
    ],
)
def test_what_can_not_be_changed_is_refused_by_both(
    before: dict[str, object], after: dict[str, object], refused: list[str]
) -> None:
    old, new = changed(before), changed(after)
    problems = refused_changes(pipeline(old), pipeline(new))

    assert [str(problem).partition("\n")[0] for problem in problems] == refused
    assert len(list(api_server(new, old))) == len(refused)


def pipeline(manifest: dict[str, Any]) -> Any:
    return load(json.dumps(manifest)).pipeline


def api_server(manifest: dict[str, Any], old: dict[str, Any] | None = None) -> Iterator[str]:
    """What an API server has against an object: nulls dropped, defaults filled in, then schema, then rules."""
    schema = structural_schema()
    server_metadata = {"type": "object", **schema["properties"]["metadata"]}  # type: ignore[index,call-overload]
    schema["properties"]["metadata"] = server_metadata  # type: ignore[index,call-overload]
    whole = completed(manifest, schema)
    errors = [error.message for error in Validator(closed(schema)).iter_errors(whole)]
    errors += doubles(whole, schema)
    yield from errors or broken_rules(whole, completed(old, schema) if old else None, schema)


def editor(manifest: dict[str, Any]) -> Iterator[str]:
    for error in _editor().iter_errors(completed(manifest, {})):
        yield error.message


@cache
def _editor() -> Draft202012Validator:
    schema = editor_schema()
    Draft202012Validator.check_schema(schema)
    return Validator(schema)


def closed(schema: Any, *, root: bool = True) -> Any:
    """The schema with unknown keys refused, as `kubectl --validate=strict` does; metadata is the server's own."""
    if not isinstance(schema, dict):
        return schema
    out = {key: closed(value, root=False) if key == "items" else value for key, value in schema.items()}
    if "properties" in schema:
        out["properties"] = {
            name: inside if root and name == "metadata" else closed(inside, root=False)
            for name, inside in schema["properties"].items()
        }
        out["additionalProperties"] = False
    return out


def completed(value: Any, schema: Any) -> Any:
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        kept = {key: inside for key, inside in value.items() if inside is not None}
        for name, inside in properties.items():
            if "default" in inside:
                kept.setdefault(name, inside["default"])
        return {key: completed(inside, properties.get(key, {})) for key, inside in kept.items()}
    if isinstance(value, list):
        return [completed(item, schema.get("items", {})) for item in value]
    return value


def doubles(value: Any, schema: Any) -> list[str]:
    """Entries of a list-type map that have the same key."""
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return [error for key, inside in value.items() for error in doubles(inside, properties.get(key, {}))]
    if not isinstance(value, list):
        return []
    keys = schema.get("x-kubernetes-list-map-keys", [])
    names = [tuple(item.get(key) for key in keys) for item in value if isinstance(item, dict)] if keys else []
    found = [f"Duplicate value: {name}" for name in names if names.count(name) > 1]
    return found + [error for item in value for error in doubles(item, schema.get("items", {}))]


def broken_rules(value: Any, old: Any, schema: Any) -> Iterator[str]:
    """The messages of all CEL rules, anywhere in the schema, that do not hold."""
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"]:
            if not holds(rule["rule"], {"self": value}):
                yield rule["message"]
        elif old is not None and not holds(rule["rule"], {"self": value, "oldSelf": old}):
            yield rule["message"]
    if isinstance(value, dict):
        for name, inside in schema.get("properties", {}).items():
            if name in value:
                yield from broken_rules(value[name], old.get(name) if isinstance(old, dict) else None, inside)
    elif isinstance(value, list):
        for item in value:
            yield from broken_rules(item, None, schema.get("items", {}))


def holds(rule: str, variables: dict[str, Any]) -> bool:
    try:
        return bool(_program(rule).evaluate({name: json_to_cel(value) for name, value in variables.items()}))
    except celpy.CELEvalError:
        return False  # as at the API server: a rule that fails to evaluate is broken


@cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))
