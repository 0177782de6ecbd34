"""What the documents show is tried: manifests load, Python runs, make targets and commands exist, links lead somewhere.

Behind a fence's language may stand `file=NAME`: the page's other snippets find it beside them; `broker`: it needs one, and
is run by a test that has one; `fragment`: it is no whole.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace_api

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    {
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("images/*.md"),
    }
)
FENCE = re.compile(r"^```(?P<language>\w+)?(?P<tags>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(*languages: str) -> Iterator[object]:
    for page in PAGES:
        for match in FENCE.finditer(page.read_text()):
            tags = match["tags"].split()
            if match["language"] in languages and not {"fragment", "broker"} & set(tags):
                line = page.read_text()[: match.start()].count("\n") + 1
                yield pytest.param(match["body"], id=f"{page.relative_to(ROOT)}:{line}")


def files_beside(body: str) -> dict[str, str]:
    """The snippets of the same page that say `file=NAME`."""
    for page in PAGES:
        found = list(FENCE.finditer(page.read_text()))
        if body in [match["body"] for match in found]:
            named = [(re.search(r"file=(\S+)", match["tags"]), match["body"]) for match in found]
            return {name[1]: text for name, text in named if name is not None}
    return {}


@pytest.mark.parametrize("body", list(snippets("yaml")))
def test_a_manifest_in_the_documents_loads(body: str) -> None:
    if "kind: ConsumerPipeline" in body:
        millrace_api.load(body)


@pytest.mark.parametrize("body", list(snippets("python")))
def test_python_in_the_documents_runs(body: str, tmp_path: Path) -> None:
    for name in ("pyspark", "duckdb", "opentelemetry"):
        if f"import {name}" in body or f"from {name}" in body:
            _need(name)
    if 'results"' in body:
        _make_results(tmp_path / "results")
    for name, text in files_beside(body).items():
        (tmp_path / name).write_text(text)
    script = tmp_path / "snippet.py"
    script.write_text(body)
    command, env = [sys.executable, script], _env()
    if re.search(r"^def test_", body, re.MULTILINE):
        env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # so that it need not be installed, and may be
        command = [sys.executable, "-m", "pytest", "-q", "-p", "millrace.pytest_plugin", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("body", list(snippets("sh", "console")))
def test_a_command_in_the_documents_exists(body: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in filter(None, (line.removeprefix("$ ").split(" #")[0].strip() for line in body.splitlines())):
        words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        match words:
            case ["make", *given]:
                assert {word for word in given if word} <= targets, line
            case ["millrace", *given]:
                _assert_millrace_knows(given, line)
            case ["kubectl", "millrace", ("offsets" | "dlq") as group, command, *given]:
                _assert_help_has("millrace.cli.kubectl", [group, command], given, line)
            case ["kubectl", "millrace", command, *given]:
                _assert_help_has("millrace.cli.kubectl", [command], given, line)
            case _:
                pass


def _assert_millrace_knows(words: list[str], line: str) -> None:
    """Each subcommand and option that the line uses is in --help of that subcommand."""
    commands = []
    for word in words:
        if word.startswith("-") or not re.fullmatch(r"[a-z]+", word) or len(commands) == 2:
            break
        commands.append(word)
    commands = commands[:2] if commands[:1] in (["dlq"], ["offsets"]) else commands[:1]
    _assert_help_has("millrace.cli", commands, words, line)


def _assert_help_has(program: str, commands: list[str], words: list[str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", program, *commands, "--help"],
        capture_output=True, text=True, timeout=240, env={**_env(), "COLUMNS": "200", "TERM": "dumb"},
    )  # fmt: skip
    assert done.returncode == 0, f"{line}: {done.stderr}"
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        assert option in done.stdout, f"{line}: {' '.join(commands)} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _need(name: str) -> None:
    if os.environ.get("MILLRACE_REQUIRE_ALL") != "1":
        pytest.importorskip(name)


def _make_results(path: Path) -> None:
    """A batch of results as the Parquet sink writes it."""
    from pyarrow import parquet, table

    folder = path / "batch=001-00000003" / "date=2013-01-31"
    folder.mkdir(parents=True)
    (folder.parent / "_SUCCESS").write_text('{"version":1,"batch":3,"rows":2,"query":"q"}')
    parquet.write_table(table({"carrier": ["AA", "UA"], "flights": [1, 2]}), folder / "part-0.parquet")


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}"}
