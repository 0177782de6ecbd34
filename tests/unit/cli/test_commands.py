"""The commands that need no broker, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from millrace.local.state import RunRecord, StateDirectory
from millrace.local.view.snapshot import PartitionSnapshot, RunSnapshot, WorkerSnapshot, encode
from millrace.worker.status import Failure
from millrace_api import load

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}", "COLUMNS": "100"}

PIPELINE = """
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: numbers}
spec:
  replicas: 3
  kafka: {bootstrapServers: "localhost:9092"}
  source: {topic: numbers, create: {partitions: 12}, format: json}
  stages:
    - {name: even, filter: {function: "numbers_code:even"}}
"""
CODE = "def even(value):\n    return value % 2 == 0\n\ndef setup():\n    raise RuntimeError('not for validate')\n"


def millrace(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace.cli", *map(str, words)],
        cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "numbers_code.py").write_text(CODE)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


def test_plan_says_who_owns_what_and_what_moves() -> None:
    done = millrace("plan", "--partitions", 12, "--replicas", 3, "--to", 4, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert sorted(answer["owners"].count(index) for index in range(3)) == [4, 4, 4]
    assert len(answer["moves"]) == 3
    assert {move["to"] for move in answer["moves"]} == {3}


def test_plan_loads_nothing_that_it_does_not_need() -> None:
    """What makes a command slow to start is what it imports."""
    words = ["plan", "--partitions", "10000", "--replicas", "300", "--to", "301", "-o", "json"]
    heavy = ("confluent_kafka", "millrace.engine", "millrace.local", "prometheus_client", "yaml")
    code = f"""
import sys
from millrace.cli import main
sys.argv = ["millrace", *{words!r}]
try:
    main()
except SystemExit:
    pass
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=60
    )
    assert len(json.loads(done.stdout)["owners"]) == 10_000
    assert done.stderr.strip() == "[]"


def test_plan_takes_its_numbers_from_a_manifest(pipeline: Path) -> None:
    done = millrace("plan", pipeline, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["partitions"], answer["replicas"]) == (12, 3)


def test_plan_without_numbers_says_which_is_missing() -> None:
    done = millrace("plan", "--partitions", 12)
    assert done.returncode == 2
    assert "--replicas is missing" in done.stderr


def test_validate_imports_the_functions_and_does_not_run_setup(pipeline: Path) -> None:
    done = millrace("validate", pipeline)
    assert done.returncode == 0, done.stderr
    assert "pipeline numbers is valid" in done.stdout


def test_validate_answers_in_json_too(pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("numbers_code:even", "numbers_code:odd"))
    done = millrace("validate", pipeline, "-o", "json")
    answer = json.loads(done.stdout)
    assert done.returncode == 4
    assert not answer["valid"]
    assert answer["problems"][0]["path"] == "spec.stages[0].filter.function"


def test_status_shows_a_run_that_has_ended(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / ".millrace" / "numbers")
    state.create()
    state.status_file.write_bytes(encode(_snapshot()))
    done = millrace("status", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "numbers" in done.stdout
    assert "worker 0" in done.stdout
    answer = json.loads(millrace("status", "--state", state.path, "-o", "json").stdout)
    assert answer["running"] is False
    assert answer["run"]["partitions"][0]["position"] == 5


def test_status_knows_a_run_that_is_going_on(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    state.status_file.write_bytes(encode(msgspec.structs.replace(_snapshot(), state="running")))
    with state.locked():
        answer = json.loads(millrace("status", "--state", state.path, "-o", "json").stdout)
    assert (answer["running"], answer["pid"]) == (True, os.getpid())


def test_status_of_a_failed_run_says_what_to_do(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    failure = Failure("topic flights does not exist", "spec.source.topic", "create it", 7)
    state.status_file.write_bytes(encode(msgspec.structs.replace(_snapshot(), state="failed", error=failure)))
    assert "to do: create it" in millrace("status", "--state", state.path).stdout


def test_dead_letters_are_looked_for_on_the_broker_of_the_last_run(pipeline: Path) -> None:
    letters = "  deadLetter: {topic: numbers.dead}\n"
    pipeline.write_text(pipeline.read_text() + letters)
    name = load(pipeline.read_text()).pipeline.metadata.name
    state = StateDirectory(pipeline.parent / ".millrace" / name)
    state.create()
    state.write_record(
        RunRecord("u", name, f"default.{name}", "numbers", "external", bootstrap="127.0.0.1:1")
    )
    done = millrace("dlq", "list", pipeline, cwd=pipeline.parent)
    assert done.returncode == 5
    assert "127.0.0.1:1" in done.stderr


def test_it_says_its_version() -> None:
    assert millrace("--version").stdout.startswith("millrace ")


def test_status_without_a_run_says_where_to_look(tmp_path: Path) -> None:
    done = millrace("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "--state" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["run"],
        ["validate"],
        ["plan"],
        ["status"],
        ["worker"],
        ["dlq"],
        ["dlq", "list"],
        ["dlq", "show"],
        ["dlq", "replay"],
        ["dlq", "purge"],
        ["offsets"],
        ["offsets", "show"],
        ["offsets", "reset"],
        ["offsets", "repair"],
    ],
    ids=" ".join,
)
def test_each_command_has_help(command: list[str]) -> None:
    done = millrace(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: millrace" in done.stdout
    assert command in ([], ["dlq"], ["offsets"]) or "Example" in done.stdout


@pytest.mark.parametrize(
    "words", [["fly"], ["run"], ["plan", "--partitions", "many"], ["run", "x", "--replicas", "0"]]
)
def test_a_wrong_command_line_ends_with_usage(words: list[str]) -> None:
    done = millrace(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m millrace.cli plan --partitions 10000 --replicas 9000; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -1"], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() == "0"


def _snapshot() -> RunSnapshot:
    return RunSnapshot(
        "numbers", "finished", 0.0, 1.0, 1.0, replicas=1,
        partitions=(PartitionSnapshot(0, 0, 5, 5, 5),), workers=(WorkerSnapshot(0, "stopped"),),
    )  # fmt: skip
