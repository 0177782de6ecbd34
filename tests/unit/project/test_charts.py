"""What is written in charts/ by hand fits what the programs really have, and what is generated is not out of date."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from millrace.collector import metrics as of_collector
from millrace.collector.status import CollectorStatus
from millrace.worker import metrics as of_worker
from millrace.worker.status import StageStatus, WorkerStatus

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
CHARTS = ROOT / "charts"
CHART = CHARTS / "millrace"
ALERTS: list[dict[str, Any]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart_files", ROOT / "scripts" / "chart_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_generated_is_not_out_of_date(tmp_path: Path) -> None:
    generated = [
        "millrace-crds/files/millrace.dev_consumerpipelines.yaml",
        "millrace-crds/README.md",
        "millrace/files/dashboard.json",
        "millrace/README.md",
    ]
    for place in generated:
        (tmp_path / "charts" / place).parent.mkdir(parents=True, exist_ok=True)

    generator().main(tmp_path)

    for place in generated:
        assert (tmp_path / "charts" / place).read_text() == (CHARTS / place).read_text(), "`make generate`"


def metrics() -> set[str]:
    """Names of all samples of a worker and of a collector."""
    worker = WorkerStatus(
        0, 1, 0.0, 0.0, "running", positions={0: 1}, late_rows={0: 1}, stages=(StageStatus("s", "map"),)
    )
    collector = CollectorStatus(
        pid=1, started=0.0, updated=0.0, state="running", watermark=1, latest={0: 1}, offsets={0: 0}
    )
    texts = (of_worker.exposition(worker)[1], of_collector.exposition(collector, 0.0)[1])
    return {name for text in texts for name in re.findall(r"^(millrace_\w+)", text.decode(), re.MULTILINE)}


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in json.loads((CHART / "files" / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_alerts_and_panels_ask_for_metrics_that_there_are(name: str, expression: str) -> None:
    asked = set(re.findall(r"\b(millrace_\w+)", expression)) - {"millrace_dev_pipeline"}

    assert asked or "up{" in expression
    assert asked <= metrics(), f"{name}: {asked - metrics()}"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_alert_has_its_runbook_and_says_what_is_wrong(alert: Mapping[str, Any]) -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)

    assert alert["alert"] in headings
    assert set(alert) == {"alert", "expr", "for", "severity", "summary"}
    assert alert["severity"] in ("warning", "critical")


def test_each_value_is_described_and_known_to_the_schema() -> None:
    for chart in ("millrace", "millrace-crds"):
        text = (CHARTS / chart / "values.yaml").read_text()
        described = {path for path, _, _ in generator().described(text)}
        schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
        for path, properties in leaves(yaml.safe_load(text), schema, ()):
            assert properties is not None, f"{chart}: {'.'.join(path)} is not in values.schema.json"
            parents = {".".join(path[: n + 1]) for n in range(len(path))}
            assert parents & described, f"{chart}: {'.'.join(path)} is not described in values.yaml"


def leaves(
    values: Any, schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any] | None]]:
    properties = schema.get("properties") if schema else None
    if not isinstance(values, dict) or not values or not properties:
        yield path, schema
        return
    for key, value in values.items():
        yield from leaves(value, properties.get(key), (*path, key))


def test_the_charts_are_of_the_project_s_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None

    for chart in ("millrace", "millrace-crds"):
        assert yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())["appVersion"] == version[1]
