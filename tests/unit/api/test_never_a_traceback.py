"""Whatever the text, `load` gives a pipeline or says what is wrong: no other exception, no endless work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api_manifests import ABSENT, FLIGHTS, changed
from millrace_api import InvalidManifest, load, parse

pytestmark = pytest.mark.unit

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(
        [
            "",
            "a:b",
            "claims",
            "Earliest",
            "2026-02-30T00:00:00Z",
            "9999-12-31T23:59:59-23:59",
            "1s",
            "on",
            "kafka:9092",
        ]
    )
    | st.from_regex(r"[0-9.]{0,12}(ns|us|ms|s|m|h)", fullmatch=True)
)
KNOWN_KEYS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "labels",
        "spec",
        "status",
        "replicas",
        "kafka",
        "bootstrapServers",
        "credentials",
        "secretRef",
        "properties",
        "source",
        "topic",
        "groupId",
        "startFrom",
        "create",
        "partitions",
        "format",
        "stages",
        "map",
        "flatMap",
        "filter",
        "produce",
        "function",
        "onError",
        "deadLetter",
        "maxRatio",
        "maxConsecutive",
        "delivery",
        "commit",
        "interval",
        "worker",
        "code",
        "configMapRef",
        "env",
        "value",
        "data",
        "suspend",
        "collect",
        "pool",
        "[key]",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inside: (
        st.lists(inside, max_size=4) | st.dictionaries(KNOWN_KEYS | st.text(max_size=8), inside, max_size=5)
    ),
    max_leaves=25,
)


def places(value: Any, path: str = "") -> list[str]:
    """The path of everything in the valid manifest."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [
        place for key, item in inside for place in places(item, f"{path}/{key}".lstrip("/"))
    ]


PLACES = places(yaml.safe_load(FLIGHTS))


def refusal(reading: Callable[[], object]) -> InvalidManifest | None:
    try:
        reading()
    except InvalidManifest as error:
        return error
    return None


def read(text: str) -> None:
    error = refusal(lambda: load(text))
    assert error is None or error.problems
    for problem in error.problems if error is not None else ():
        assert problem.message
        assert (problem.where + problem.message + problem.remedy).isprintable()
        assert len(problem.where) < 1000
        assert len(problem.message) + len(problem.remedy) < 1000
        assert "pydantic" not in str(problem)


@settings(deadline=None)
@given(st.text(max_size=200))
@example("\ufeff")
@example("%YAML 1.1\n---\n...")
@example('a: "\\ud800"')
def test_any_text(text: str) -> None:
    read(text)


@settings(deadline=None)
@given(st.text(alphabet="ab:-?[]{},&*!|>#%@`'\"\\ \n\t0.<~", max_size=60))
def test_any_text_of_yamls_own_signs(text: str) -> None:
    read(text)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=3))
def test_any_structure(documents: list[Any]) -> None:
    read(yaml.dump_all(documents, Dumper=yaml.SafeDumper, allow_unicode=True))


@settings(deadline=None)
@given(VALUES)
def test_any_object(value: Any) -> None:
    error = refusal(lambda: parse(value if isinstance(value, dict) else {"spec": value}))
    assert error is not None
    assert error.problems


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(PLACES), VALUES | st.just(ABSENT), min_size=1, max_size=3))
def test_the_valid_manifest_with_anything_put_in_any_place(changes: dict[str, Any]) -> None:
    manifest: dict[str, Any] = yaml.safe_load(FLIGHTS)
    for place in sorted(changes, reverse=True):  # inner and later places first, so that all are there
        manifest = put(manifest, place, changes[place])
    read(yaml.dump(manifest, Dumper=yaml.SafeDumper, allow_unicode=True))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_valid_manifest_with_its_text_cut_and_pasted(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(FLIGHTS)))
    end = data.draw(st.integers(start, min(len(FLIGHTS), start + 40)))
    pasted = data.draw(st.text(alphabet=":-?[]{},&*!|>#'\" \n\t0ayn", max_size=6))
    read(FLIGHTS[:start] + pasted + FLIGHTS[end:])


@settings(deadline=None)
@given(st.sampled_from(PLACES))
def test_a_place_left_out_is_either_optional_or_told_by_its_path(place: str) -> None:
    error = refusal(lambda: parse(changed({place: ABSENT})))
    assert error is None or all(problem.path for problem in error.problems)


def put(manifest: Any, place: str, value: Any) -> Any:
    *parents, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    inside = manifest
    for part in parents:
        inside = inside[part]
    if value is ABSENT:
        del inside[last]
    else:
        inside[last] = value
    return manifest
