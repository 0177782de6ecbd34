"""The plugin of pytest is named in the distribution, and costs those nothing who do not use it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


def test_it_is_named_in_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"millrace": "millrace.pytest_plugin"}


def test_it_imports_nothing_heavy_before_the_fixture_is_asked_for() -> None:
    code = (
        "import sys, millrace.pytest_plugin\n"
        "print({'pydantic', 'confluent_kafka', 'yaml', 'millrace.testing', 'millrace.engine'} & set(sys.modules))"
    )
    env = {"PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "set()"


def test_harnesses_are_closed_at_the_end_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def pipeline(topic):\n"
        "    from millrace.library import Pipeline\n"
        "    source = {'topic': topic}\n"
        "    stages = [{'name': 'f', 'map': {'function': print, 'pool': {'threads': 1}}}]\n"
        "    return Pipeline('p', {'kafka': {'bootstrapServers': 'x:1'}, 'source': source, 'stages': stages})\n"
        "made = []\n"
        "def test_one(millrace_harness):\n"
        "    made.extend(millrace_harness(pipeline(topic)) for topic in 'ab')\n"
        "    made[0].feed([1])\n"
        "    made[0].run_for(0.1)\n"
        "    assert made[0]._worker is not None\n"
        "def test_two():\n"
        "    assert [h._worker for h in made] == [None, None]\n"
    )
    env = {
        "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "millrace.pytest_plugin", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
