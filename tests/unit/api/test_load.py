"""What a manifest's file may hold, and how YAML is read."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from api_manifests import FLIGHTS, MINIMAL
from millrace_api import InvalidManifest, load, parse

pytestmark = pytest.mark.unit

_BEGINS = "a manifest begins with `apiVersion: millrace.dev/v1alpha1` and `kind: ConsumerPipeline`"
_TOO_LARGE = "a manifest is smaller and plainer than that; is this the right file?"


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


def test_all_fields_of_a_manifest_are_read() -> None:
    pipeline = load(FLIGHTS).pipeline
    spec = pipeline.spec

    assert (pipeline.metadata.name, pipeline.metadata.namespace) == ("flight-delays", "default")
    assert spec.replicas == 3
    assert spec.kafka.bootstrap_servers == "kafka:9092"
    assert spec.kafka.credentials is not None
    assert spec.kafka.credentials.secret_ref.name == "kafka-user"
    assert spec.kafka.properties == {"client.rack": "a"}
    assert spec.source.topic == "flights"
    assert spec.source.create is not None
    assert spec.source.create.partitions == 12
    assert [(stage.name, stage.kind) for stage in spec.stages] == [
        ("departed", "filter"),
        ("score", "map"),
        ("legs", "flatMap"),
        ("scored", "produce"),
    ]
    assert [stage.function_stage and stage.function_stage.function for stage in spec.stages] == [
        "flights:departed",
        "flights:score",
        "flights.legs:split",
        None,
    ]
    assert spec.stages[1].map is not None
    assert spec.stages[1].map.on_error == "DeadLetter"
    assert spec.stages[3].produce is not None
    assert spec.stages[3].produce.topic == "flights.scored"
    assert spec.dead_letter is not None
    assert (spec.dead_letter.max_ratio, spec.dead_letter.max_consecutive) == (0.01, 100)
    assert spec.delivery == "ExactlyOnce"
    assert spec.commit.interval_seconds == 0.5
    assert spec.worker is not None
    assert spec.worker.code is not None
    assert spec.worker.code.config_map_ref.name == "flights-code"
    assert [(variable.name, variable.value) for variable in spec.worker.env] == [("TZ", "UTC"), ("EMPTY", "")]


def test_what_is_left_out_has_its_default() -> None:
    pipeline = load(MINIMAL).pipeline
    spec = pipeline.spec

    assert spec.replicas == 1
    assert spec.kafka.credentials is None
    assert spec.kafka.properties == {}
    assert (spec.source.start_from, spec.source.format, spec.source.create) == ("Earliest", "json", None)
    assert spec.source.start_timestamp_ms is None
    assert spec.stages[0].map is not None
    assert spec.stages[0].map.on_error == "Stop"
    assert (spec.dead_letter, spec.worker) == (None, None)
    assert spec.delivery == "AtLeastOnce"
    assert spec.commit.interval_seconds == 1.0


def test_the_group_is_named_after_namespace_and_name_unless_it_has_a_name() -> None:
    assert load(MINIMAL).pipeline.group_id == "default.smallest"
    assert load(MINIMAL.replace("{name: smallest}", "{name: s, namespace: air}")).pipeline.group_id == "air.s"
    assert load(FLIGHTS).pipeline.group_id == "flight-delays"
    assert load(FLIGHTS).pipeline.claims_group == "flight-delays.claims"


def test_a_start_in_time_is_known_in_milliseconds() -> None:
    text = MINIMAL.replace("{topic: in}", "{topic: in, startFrom: 1970-01-01T01:00:01.5+01:00}")

    assert load(text).pipeline.spec.source.start_timestamp_ms == 1500


def test_a_model_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load(FLIGHTS).pipeline.spec.replicas = 4


def test_a_pipeline_is_read_from_an_object_of_the_api_server() -> None:
    pipeline = load(FLIGHTS).pipeline
    served = {
        **pipeline.model_dump(exclude_none=True),
        "metadata": {"name": "flight-delays", "uid": "u-1", "generation": 3, "managedFields": []},
        "status": {"replicas": 1},
    }

    assert parse(served).metadata.uid == "u-1"
    with pytest.raises(InvalidManifest, match="spec: it has no value"):
        parse({**served, "spec": None})


class TestSeveralDocuments:
    CODE = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: flights-code}\ndata:\n  flights.py: |\n    x = 1\n"

    def test_config_maps_beside_the_pipeline_are_read(self) -> None:
        assert load(FLIGHTS + self.CODE).config_maps == {"flights-code": {"flights.py": "x = 1\n"}}

    def test_the_pipeline_need_not_be_first(self) -> None:
        assert load(self.CODE + "---\n" + FLIGHTS).pipeline.metadata.name == "flight-delays"

    def test_documents_of_other_kinds_are_left_alone_even_if_odd(self) -> None:
        other = "---\napiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nspec: {on: yes}\n---\n# nothing\n"

        assert load(FLIGHTS + other).config_maps == {}

    def test_a_config_map_of_another_namespace_is_not_the_pipelines(self) -> None:
        elsewhere = self.CODE.replace("{name: flights-code}", "{name: flights-code, namespace: other}")

        assert load(FLIGHTS + elsewhere).config_maps == {}

    def test_two_pipelines_in_a_file_are_refused(self) -> None:
        second = FLIGHTS.count("\n") + 2
        assert problems(FLIGHTS + "---\n" + FLIGHTS) == [
            f"line {second}: the file has 2 pipelines, on lines 1, {second}\n    keep one ConsumerPipeline in a file"
        ]

    def test_a_file_without_a_pipeline_says_what_it_has(self) -> None:
        assert problems(self.CODE) == [
            f'there is no ConsumerPipeline in the file, only "ConfigMap"\n    {_BEGINS}'
        ]

    def test_a_document_that_is_no_object_is_refused(self) -> None:
        line = FLIGHTS.count("\n") + 2
        assert problems(FLIGHTS + "---\n- a\n") == [
            f"line {line}: the document is a list, not a mapping\n    {_BEGINS}"
        ]

    def test_a_config_map_must_hold_texts(self) -> None:
        text = FLIGHTS + self.CODE + "  c: 1\n  b: on\n"
        line = text.count("\n") - 1
        assert problems(text) == [
            f'data.c (line {line}): in the ConfigMap "flights-code": 1 is not a string\n'
            "    put it in quotes, or write it as a block after '|'",
            f'data.b (line {line + 1}): in the ConfigMap "flights-code": on without quotes is the boolean true to '
            'kubectl and a string to others\n    write true, or "on" in quotes for the string',
        ]

    def test_two_config_maps_of_one_name_are_refused(self) -> None:
        assert problems(FLIGHTS + self.CODE + self.CODE)[0].endswith(
            'there are two ConfigMaps "flights-code"\n    keep one'
        )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", f"the manifest is empty\n    {_BEGINS}", id="empty"),
        pytest.param("# only this\n---\n", f"the manifest is empty\n    {_BEGINS}", id="comments only"),
        pytest.param("hello", f'line 1: the document is "hello", not a mapping\n    {_BEGINS}', id="a word"),
        pytest.param(
            "[]", f"line 1: the document is an empty list, not a mapping\n    {_BEGINS}", id="a list"
        ),
        pytest.param(
            "spec: [a, b",
            "line 1, column 12: not YAML: while parsing a flow sequence: expected ',' or ']', but got "
            "'<stream end>'\n    check quotes, brackets and indentation at this place and just before it",
            id="an open bracket",
        ),
        pytest.param(
            "spec:\n\treplicas: 1",
            "line 2, column 1: not YAML: while scanning for the next token: found character '\\t' that cannot "
            "start any token\n    indent with spaces, not with tabs",
            id="a tab",
        ),
        pytest.param(
            "metadata: name: x",
            "line 1, column 15: not YAML: mapping values are not allowed here\n"
            "    put a value that has ': ' in it in quotes, or check the indentation",
            id="two colons",
        ),
        pytest.param(
            "spec: *there",
            "line 1, column 7: not YAML: found undefined alias 'there'\n"
            "    define the anchor (&name) before the alias (*name)",
            id="an alias of nothing",
        ),
        pytest.param(
            "a: 1\nb: \x07",
            "line 2, column 4: not YAML: the character U+0007 is not allowed\n"
            "    remove it, or write it as an escape in double quotes",
            id="a control character",
        ),
        pytest.param(
            "!!python/object/apply:os.system [true]",
            "line 1: the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed\n"
            "    leave the tag out: a manifest has mappings, lists, strings, numbers and booleans",
            id="a tag that would run something",
        ),
        pytest.param(
            "[" * 10_000, f"line 1: it is nested more than 50 levels deep\n    {_TOO_LARGE}", id="deep"
        ),
        pytest.param("&a [*a]", f"line 1: it contains itself, by an alias\n    {_TOO_LARGE}", id="in itself"),
        pytest.param(
            "&a {<<: *a}", f"line 1: it contains itself, by an alias\n    {_TOO_LARGE}", id="merged in itself"
        ),
        pytest.param(
            "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
            "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
            f"line 1: it has more than 10,000 values once its aliases are followed\n    {_TOO_LARGE}",
            id="a billion laughs",
        ),
        pytest.param(
            "- a\n" * 50_000, f"line 20001: it has more than 10,000 values\n    {_TOO_LARGE}", id="long"
        ),
        pytest.param(
            " " * 2_000_001,
            "the text has 2,000,001 characters\n    a manifest has at most 2,000,000; is this the right file?",
            id="large",
        ),
    ],
)
def test_what_is_no_manifest_at_all_is_told_by_line_and_column(text: str, problem: str) -> None:
    assert problems(text) == [problem]


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        pytest.param(
            "replicas: 3",
            "replicas: 3\n  replicas: 4",
            'spec.replicas (line 6): the key "replicas" is there twice, first on line 5\n    keep one of them',
            id="a key twice",
        ),
        pytest.param(
            "topic: flights\n",
            "topic: no\n",
            "spec.source.topic (line 11): no without quotes is the boolean false to kubectl and a string to others\n"
            '    write false, or "no" in quotes for the string',
            id="a topic called no",
        ),
        pytest.param(
            "replicas: 3",
            "replicas: 010",
            "spec.replicas (line 5): 010 without quotes is one number to kubectl and something else to others\n"
            '    write the number in plain decimal digits, or "010" in quotes for the string',
            id="an octal number",
        ),
        pytest.param(
            "replicas: 3",
            "replicas: 1_000",
            "spec.replicas (line 5): 1_000 without quotes is one number to kubectl and something else to others\n"
            '    write the number in plain decimal digits, or "1_000" in quotes for the string',
            id="a number with an underscore",
        ),
        pytest.param(
            "client.rack: a",
            "on: a",
            "spec.kafka.properties (line 9): the key on is not a string: kubectl reads it as a boolean or as "
            'another number\n    put it in quotes: "on"',
            id="a key that is a boolean",
        ),
        pytest.param(
            "client.rack: a",
            "1: a",
            'spec.kafka.properties (line 9): the key 1 is not a string\n    put it in quotes: "1"',
            id="a key that is a number",
        ),
        pytest.param(
            "client.rack: a",
            "? [a]\n      : b",
            "spec.kafka.properties (line 9): a key is a mapping or a list\n    use a string as key",
            id="a key that is a list",
        ),
        pytest.param(
            "replicas: 3",
            "replicas: " + "9" * 5000,
            f"spec.replicas (line 5): {'9' * 57}... can't be read as a number\n"
            "    leave the tag out, if there is one; a number has at most 4000 digits",
            id="a number beyond Python's",
        ),
        pytest.param(
            "replicas: 3",
            "<<: 3",
            "spec (line 5): << merges only mappings\n    name a mapping, as in <<: *anchor",
            id="a merge of a number",
        ),
        pytest.param(
            "maxRatio: 0.01",
            "maxRatio: .nan",
            "spec.deadLetter.maxRatio (line 21): .nan is out of range\n    use a number from 0 to 1",
            id="not a number",
        ),
    ],
)
def test_what_kubectl_would_read_otherwise_is_refused(was: str, now: str, problem: str) -> None:
    assert was in FLIGHTS
    assert problems(FLIGHTS.replace(was, now)) == [problem]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("1", "1 is not a string"),
        ("1.5", "1.5 is not a string"),
        ("1e3", "1000.0 is not a string"),
        ("0x10", "16 is not a string"),
        ("true", "true is not a string"),
        ("-.inf", "-inf is not a string"),
    ],
)
def test_plain_numbers_and_booleans_are_what_they_are(value: str, read: str) -> None:
    [problem] = problems(FLIGHTS.replace("value: UTC", f"value: {value}"))
    assert read in problem


@pytest.mark.parametrize(
    "text", ["2026-01-31", "2026-01-31T00:00:00Z", "12:30:45", '"on"', "'010'", "1.2.3", "0x", "=", "!!str 5"]
)
def test_what_is_a_string_to_kubectl_is_one_here(text: str) -> None:
    pipeline = load(FLIGHTS.replace("value: UTC", f"value: {text}")).pipeline

    assert pipeline.spec.worker is not None
    assert pipeline.spec.worker.env[0].value == text.removeprefix("!!str ").strip("\"'")


def test_anchors_and_merges_are_followed() -> None:
    text = MINIMAL.replace(
        '  - {name: look, map: {function: "look:at"}}\n',
        '  - {name: look, map: &f {function: "look:at", onError: Stop}}\n'
        '  - {name: again, map: {<<: *f, function: "look:again"}}\n  - {name: third, map: *f}\n',
    )

    functions = [
        stage.map and (stage.map.function, stage.map.on_error) for stage in load(text).pipeline.spec.stages
    ]
    assert functions == [("look:at", "Stop"), ("look:again", "Stop"), ("look:at", "Stop")]


def test_json_is_a_manifest_too() -> None:
    assert load(load(MINIMAL).pipeline.model_dump_json(exclude_none=True)).pipeline == load(MINIMAL).pipeline


def test_the_error_keeps_its_problems_when_pickled() -> None:
    with pytest.raises(InvalidManifest) as caught:
        load("a: [", source="x.yaml")

    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, again.source, str(again)) == (caught.value.problems, "x.yaml", str(caught.value))
