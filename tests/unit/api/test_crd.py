"""The generated files: up to date, and such that an API server and kubectl take them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

from millrace_api import load
from millrace_api.crd import crd_yaml, custom_resource_definition, main, structural_schema
from millrace_api.editor import editor_json
from millrace_api.editor import main as editor_main
from millrace_api.reference import main as reference_main
from millrace_api.reference import reference_markdown

pytestmark = pytest.mark.unit

CRDS = Path(__file__).parents[3] / "crds"
CRD_FILE = CRDS / "millrace.dev_consumerpipelines.yaml"
EDITOR_FILE = CRDS / "consumerpipeline.schema.json"
REFERENCE_FILE = CRDS.parent / "docs" / "manifest.md"


def test_the_committed_crd_is_what_the_models_give() -> None:
    assert CRD_FILE.read_text(encoding="utf-8") == crd_yaml(), "run: make generate"


def test_the_committed_schema_for_editors_is_what_the_models_give() -> None:
    assert EDITOR_FILE.read_text(encoding="utf-8") == editor_json(), "run: make generate"


def test_the_committed_reference_is_what_the_models_give() -> None:
    assert REFERENCE_FILE.read_text(encoding="utf-8") == reference_markdown(), "run: make generate"


def test_the_reference_has_a_row_for_every_field_an_author_writes() -> None:
    rows = set(re.findall(r"^\| `([A-Za-z.]+)` \|", reference_markdown(), re.MULTILINE))
    fields = {path for path in _fields_of(structural_schema()) if not path.startswith(("status", "metadata"))}

    assert {path.rpartition(".")[2] for path in fields} <= {row.rpartition(".")[2] for row in rows}


def test_the_example_of_the_reference_uses_every_field() -> None:
    example = re.search(r"```yaml\n(.*?)```", reference_markdown(), re.DOTALL)
    assert example is not None
    pipeline = load(example[1]).pipeline
    used = set(re.findall(r"([A-Za-z]+):", example[1]))
    fields = {path.rpartition(".")[2] for path in _fields_of(structural_schema()) if path.startswith("spec")}

    assert pipeline.metadata.name == "flight-delays"
    assert fields <= used


def _fields_of(node: Any, path: str = "") -> Iterator[str]:
    for name, inside in node.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        yield place
        yield from _fields_of(inside.get("items", inside), place)


def test_the_commands_print_or_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    editor_main([])
    reference_main([])
    assert capsys.readouterr().out == crd_yaml() + editor_json() + reference_markdown()

    main([str(tmp_path / "crd.yaml")])
    editor_main([str(tmp_path / "schema.json")])
    reference_main([str(tmp_path / "manifest.md")])
    assert (tmp_path / "crd.yaml").read_text(encoding="utf-8") == crd_yaml()
    assert (tmp_path / "schema.json").read_text(encoding="utf-8") == editor_json()
    assert (tmp_path / "manifest.md").read_text(encoding="utf-8") == reference_markdown()


def test_the_text_is_the_object_written_out_without_aliases() -> None:
    assert yaml.safe_load(crd_yaml()) == custom_resource_definition()
    assert "&id" not in crd_yaml()


def test_kubectl_apply_can_keep_it_in_an_annotation() -> None:
    # client-side apply keeps the whole object in an annotation of at most 262,144 bytes
    assert len(crd_yaml().encode()) < 200_000


def test_names_scope_and_subresources() -> None:
    spec = custom_resource_definition()["spec"]

    assert spec["names"] == {  # type: ignore[index,call-overload]
        "kind": "ConsumerPipeline",
        "listKind": "ConsumerPipelineList",
        "plural": "consumerpipelines",
        "singular": "consumerpipeline",
        "shortNames": ["cpl"],
        "categories": ["streaming"],
    }
    assert spec["scope"] == "Namespaced"  # type: ignore[index,call-overload]
    assert version()["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert field("spec.replicas")["default"] == 1
    assert field("status.selector")["type"] == "string"
    assert field("status.replicas")["type"] == "integer"


def test_the_columns_fit_a_line_of_120_characters_and_lead_somewhere() -> None:
    shown = [column for column in version()["additionalPrinterColumns"] if not column.get("priority")]
    widest = {
        "Name": field("metadata.name")["maxLength"],
        "Ready": len("Unknown"),
        "Reason": field("status.conditions.[].reason")["maxLength"],
        "Replicas": len("REPLICAS"),
        "Up": len("10000"),
        "Age": len("364d"),
    }

    assert [column["name"] for column in shown] == list(widest)[1:]
    assert sum(widest.values()) + 3 * (len(widest) - 1) <= 120  # kubectl sets columns three apart
    for column in version()["additionalPrinterColumns"]:
        if column["name"] != "Age":
            path = re.sub(r"\[\?.*\]", ".[]", column["jsonPath"]).lstrip(".")
            assert field(path)["type"] == column["type"]


class TestTheSchema:
    def test_has_nothing_that_is_not_structural(self) -> None:
        allowed = {
            "additionalProperties", "default", "description", "enum", "items", "maxItems", "maxLength",
            "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties", "required",
            "type", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-validations",
        }  # fmt: skip
        for path, node in nodes():
            assert set(node) <= allowed, path
            assert isinstance(node["type"], str), path
            assert "default" not in node or node["default"] is not None, path

    def test_bounds_everything_that_a_rule_may_go_through(self) -> None:
        for path, node in nodes():
            match node["type"]:
                case "string":
                    assert "maxLength" in node or "enum" in node or path in ("apiVersion", "kind"), path
                case "array":
                    assert "maxItems" in node, path
                case "object":
                    assert "properties" in node or "maxProperties" in node, path
                case "integer" | "number":
                    assert "minimum" in node, path
                    assert "maximum" in node or path.startswith("status."), path

    def test_describes_every_field(self) -> None:
        for path, node in nodes():
            if not path.startswith("metadata") and not path.endswith(
                (".*", "groupBy.[]", "partitionBy.[]", "key.[]", "exceptions.[]", "values.[]")
            ):
                assert node.get("description"), path

    def test_says_each_default_in_its_description(self) -> None:
        for path, node in nodes():
            if "default" in node and isinstance(node["default"], str | int):
                said = json.dumps(node["default"]).strip('"')
                assert (
                    f"{said} (default" in node["description"] or f"default {said}" in node["description"]
                ), path

    def test_merges_lists_by_name(self) -> None:
        lists = {
            path: node["x-kubernetes-list-map-keys"]
            for path, node in nodes()
            if node["type"] == "array"
            and node["items"]["type"] == "object"
            and node["x-kubernetes-list-type"] != "atomic"
        }

        assert lists == {
            "spec.stages": ["name"],
            "spec.stages.[].produce.headers": ["name"],
            "spec.worker.env": ["name"],
            "spec.worker.imagePullSecrets": ["name"],
            "spec.worker.topologySpread": ["topologyKey"],
            "status.collector.attempts": ["number"],
            "status.conditions": ["type"],
            "status.topics": ["name"],
            "status.workers": ["index"],
        }
        for path, [key] in lists.items():
            assert key in field(f"{path}.[]")["required"]

    def test_has_patterns_that_the_api_servers_regular_expressions_know(self) -> None:
        for path, node in nodes():
            if "pattern" in node:
                assert re2.compile(node["pattern"]), path
                assert re.fullmatch(r"\^.*\$", node["pattern"]), path
                assert not re.search(r"\\[dwsbDWSB]|\(\?", node["pattern"]), path


def version() -> Any:
    [only] = custom_resource_definition()["spec"]["versions"]  # type: ignore[index,call-overload]
    return only


def field(path: str) -> Any:
    return dict(nodes())[path]


def nodes() -> Iterator[tuple[str, Any]]:
    return below("", version()["schema"]["openAPIV3Schema"])


def below(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    yield path, node
    for name, inside in node.get("properties", {}).items():
        yield from below(f"{path}.{name}".lstrip("."), inside)
    for key, sign in (("items", "[]"), ("additionalProperties", "*")):
        if key in node:
            yield from below(f"{path}.{sign}", node[key])
