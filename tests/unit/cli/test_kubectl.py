"""`kubectl millrace` without a cluster: what is read and printed, how logs are merged, what failures of kubectl become."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from millrace.cli.kubectl import logs, shown
from millrace.cli.kubectl.client import failed
from millrace.cli.kubectl.view import pipeline_of, pods_of
from millrace.errors import ExitCode
from millrace.worker.status import StageStatus, StuckStage, WorkerStatus

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
NOW = 1_769_817_600.0  # 2026-01-31T00:00:00Z
PIPELINE = {
    "apiVersion": "millrace.dev/v1alpha1",
    "kind": "ConsumerPipeline",
    "metadata": {
        "name": "flights",
        "namespace": "air",
        "generation": 4,
        "creationTimestamp": "2026-01-28T00:00:00Z",
        "someday": {"more": 1},
    },
    "spec": {"replicas": 3, "source": {"topic": "flights"}, "stages": []},
    "status": {
        "observedGeneration": 4,
        "readyReplicas": 2,
        "epoch": 7,
        "partitions": 12,
        "lag": 1200,
        "selector": "millrace.dev/pipeline=flights",
        "workers": [
            {"index": 0, "partitions": "0-3", "lag": 700},
            {"index": 1, "partitions": "4-7"},
            {"index": 2, "partitions": "8-11", "lag": 500},
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "CrashLooping",
                "message": "worker 2: the worker ends with code 1, 7 times so far",
                "lastTransitionTime": "2026-01-30T23:52:00Z",
            },
            {"type": "Degraded", "status": "True", "reason": "CrashLooping"},
        ],
        "collector": {
            "attempts": [
                {"number": 1, "started": "2026-01-28T00:00:00Z", "ended": "2026-01-29T00:00:00Z", "outcome": "OutOfMemory"},
                {"number": 2, "started": "2026-01-29T00:00:00Z"},
            ],
            "failures": 1,
            "lag": 40,
        },
    },
}  # fmt: skip


def pod(index: int, **status: object) -> dict[str, object]:
    return {
        "metadata": {"name": f"flights-{index}", "labels": {"apps.kubernetes.io/pod-index": str(index)}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **status},
    }


PODS = [
    pod(2, conditions=[], containerStatuses=[
        {"name": "worker", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]),
    pod(0),
]  # fmt: skip


def printed(what: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def test_the_list_has_a_line_for_each() -> None:
    new = {"metadata": {"name": "new", "namespace": "air"}}
    lines = printed(
        shown.listing([pipeline_of(new), pipeline_of(PIPELINE)], NOW, namespaces=False)
    ).splitlines()
    assert lines[1].split() == ["flights", "CrashLooping", "2/3", "7", "12", "1.2k", "3d"]
    assert "not seen by an operator" in lines[2]
    assert "no pipelines here" in printed(shown.listing([], NOW, namespaces=False))


def test_one_pipeline_with_its_conditions_workers_and_collector() -> None:
    told = printed(shown.detail(pipeline_of(PIPELINE), pods_of(PODS), {}, NOW))
    lines = [line.split() for line in told.splitlines()]
    assert told.startswith("air/flights  flights  3 workers wanted  12 partitions  epoch 7  lag 1,200")
    assert [
        "Ready",
        "False",
        "CrashLooping",
        "8m",
        *["worker", "2:", "the", "worker", "ends", "with", "code", "1,", "7", "times", "so", "far"],
    ] in lines
    assert ["0", "Running", "yes", "n1", "700", "0-3"] in lines
    assert ["1", "none", "4-7"] in lines
    assert ["2", "CrashLoopBackOff", "no", "7", "n1", "500", "8-11"] in lines
    assert ["runs", "2", "2d"] in lines
    assert "1 failure in a row" in told


def test_what_workers_say_when_they_are_asked() -> None:
    said = WorkerStatus(
        0, 1, NOW, NOW, "running", messages=12_000, late_rows={0: 2, 1: 3},
        stages=(StageStatus("score", "map", 1, 1, dead=4), StageStatus("", "", dead=1)),
    )  # fmt: skip
    told = printed(shown.detail(pipeline_of(PIPELINE), pods_of(PODS), {"flights-0": said}, NOW))
    assert ["0", "Running", "yes", "n1", "700", "12,000", "5", "5", "0-3"] in [
        line.split() for line in told.splitlines()
    ]


def test_a_worker_that_is_asked_tells_of_a_stuck_stage() -> None:
    stuck = StuckStage("score", 3, 17, 17, 75.0)
    said = WorkerStatus(0, 7, 0.0, 0.0, "running", stuck=(stuck,))
    told = printed(shown.detail(pipeline_of(PIPELINE), pods_of(PODS), {"flights-0": said}, NOW))
    assert "score is stuck" in told


def test_a_change_that_was_not_seen_yet_is_told() -> None:
    newer = pipeline_of({**PIPELINE, "metadata": {"name": "flights", "generation": 5}})
    assert "has not seen the newest change" in printed(shown.detail(newer, [], {}, NOW))
    assert "no operator has looked" in printed(
        shown.detail(pipeline_of({"metadata": {"name": "x"}}), [], {}, NOW)
    )


@pytest.mark.parametrize(("seconds", "told"), [(5, "5s"), (119, "1m"), (7_300, "2h"), (300_000, "3d")])
def test_ages_are_kubectls(seconds: float, told: str) -> None:
    assert shown.age("2026-01-31T00:00:00Z", NOW + seconds) == told
    assert shown.age("", NOW) == ""


def line(worker: int, second: int, event: str, **fields: object) -> str:
    at = f"2026-01-31T00:00:{second:02}.000000Z"
    return f"[pod/flights-{worker}/worker] " + json.dumps(
        {"event": event, "timestamp": at, "level": "info", **fields}
    )


def test_logs_of_all_workers_come_in_the_order_of_time() -> None:
    texts = [
        line(0, 1, "serving"),
        line(0, 5, "failed", where="stage score, partition 3, offset 17", what="it raised"),
        "[pod/flights-0/worker] Fatal Python error: Segmentation fault",
        line(1, 2, "serving"),
        line(1, 6, "stopped"),
    ]
    found = logs.merged(texts)
    assert [(one.pod, (one.fields or {}).get("event", one.text)) for one in found] == [
        ("flights-0", "serving"),
        ("flights-1", "serving"),
        ("flights-0", "failed"),
        ("flights-0", "Fatal Python error: Segmentation fault"),
        ("flights-1", "stopped"),
    ]
    assert logs.as_text(found[2]).split() == (
        [
            "2026-01-31T00:00:05.000",
            "info",
            "flights-0",
            "failed",
            "where=stage",
            "score,",
            "partition",
            "3,",
            "offset",
            "17",
            "what=it",
            "raised",
        ]
    )
    assert json.loads(logs.as_object(found[4]))["pod"] == "flights-1"


def test_of_a_stage_is_what_names_it() -> None:
    texts = [
        line(0, 1, "loaded", stage="score"),
        line(0, 2, "loaded", stage="score-2"),
        line(0, 3, "failed", where="stage score, partition 3, offset 17"),
        "[pod/flights-0/worker] Traceback",
        line(0, 4, "failed", where="stage score-2, partition 3"),
        "[pod/flights-0/worker] Traceback of the other",
        line(1, 5, "serving"),
    ]
    found = list(logs.of_stage(logs.merged(texts), "score"))
    assert [one.text[:9] for one in found if one.fields is None] == ["Traceback"]
    assert [one.time[17:19] for one in found if one.fields is not None] == ["01", "03"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('Error from server (NotFound): consumerpipelines.millrace.dev "x" not found', ExitCode.USAGE),
        ('Error from server (Forbidden): consumerpipelines.millrace.dev "x" is forbidden: User "u"', ExitCode.CREDENTIALS),
        ("error: You must be logged in to the server (Unauthorized)", ExitCode.CREDENTIALS),
        ("The connection to the server 127.0.0.1:1 was refused - did you specify the right host?", ExitCode.BROKER_UNREACHABLE),
        ("Unable to connect to the server: dial tcp: lookup nowhere: no such host", ExitCode.BROKER_UNREACHABLE),
        ('error: the server doesn\'t have a resource type "consumerpipelines"', ExitCode.SETUP),
        ('error: context "nope" does not exist', ExitCode.USAGE),
        ("Error in configuration: context was not found for specified context: nope", ExitCode.USAGE),
        ('Error from server (Invalid): ConsumerPipeline "x" is invalid: spec.stages: Required value', ExitCode.MANIFEST),
        ('The ConsumerPipeline "x" is invalid: spec.source: Invalid value: "object": groupId', ExitCode.MANIFEST),
        ("error: something nobody has seen", ExitCode.FAILED),
        ("", ExitCode.FAILED),
    ],
)  # fmt: skip
def test_what_failures_of_kubectl_mean(said: str, code: ExitCode) -> None:
    noise = "E0131 00:00:00.123456    4711 memcache.go:265] couldn't get current server API group list\n"
    failure = failed(noise + said)
    assert failure.code is code
    assert said in failure.what
    assert "memcache" not in failure.what
    assert failure.remedy or code is ExitCode.FAILED


def kubectl_millrace(*words: object, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PATH": path, "COLUMNS": "120", "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'worker'}",
    }  # fmt: skip
    command = [sys.executable, "-m", "millrace.cli.kubectl", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def kubectl_that(folder: Path, script: str) -> str:
    """A PATH on which kubectl is this shell script."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def test_a_failure_is_passed_on_with_its_code_and_without_a_traceback(tmp_path: Path) -> None:
    said = 'Error from server (Forbidden): consumerpipelines.millrace.dev is forbidden: User "u" cannot list'
    done = kubectl_millrace("status", path=kubectl_that(tmp_path, f"echo '{said}' >&2; exit 1"))
    assert done.returncode == ExitCode.CREDENTIALS
    assert said in done.stderr
    assert "to do: ask for the right" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    done = kubectl_millrace("status", path=str(tmp_path))
    assert (done.returncode, "no kubectl" in done.stderr) == (ExitCode.SETUP, True)


def test_scope_is_handed_on_to_kubectl(tmp_path: Path) -> None:
    path = kubectl_that(tmp_path, 'echo "$@" >&2; exit 1')
    done = kubectl_millrace("pause", "x", "-n", "air", "--context", "c", "--kubeconfig", "k", path=path)
    words = "--namespace=air --context=c --kubeconfig=k patch consumerpipelines.millrace.dev x --type=merge"
    assert words in done.stderr
    assert '{"spec": {"suspend": true}}' in done.stderr


@pytest.mark.parametrize("command", ["", "status", "plan", "logs", "pause", "resume", "restart", "validate"])
def test_each_command_has_help(command: str) -> None:
    done = kubectl_millrace(*([command] if command else []), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: kubectl millrace" in done.stdout
