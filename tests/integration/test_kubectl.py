"""`kubectl millrace` on a real API server, with the real kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.plane import ControlPlane
from millrace.errors import ExitCode

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
MANIFEST: dict[str, Any] = {
    "apiVersion": "millrace.dev/v1alpha1",
    "kind": "ConsumerPipeline",
    "metadata": {"name": "flights"},
    "spec": {
        "replicas": 3,
        "kafka": {"bootstrapServers": "kafka:9092"},
        "source": {"topic": "flights", "groupId": "g"},
        "stages": [{"name": "score", "map": {"function": "flights:score"}}],
    },
}
STATUS = {
    "observedGeneration": 1,
    "readyReplicas": 3,
    "epoch": 4,
    "partitions": 6,
    "lag": 300,
    "selector": "millrace.dev/pipeline=flights",
    "workers": [{"index": index, "partitions": f"{index}, {index + 3}", "lag": 100} for index in range(3)],
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Running",
            "message": "all workers are ready",
            "lastTransitionTime": "2026-01-31T00:00:00Z",
        }
    ],
}


class Desk:
    """The command line of somebody who works in one namespace of the cluster."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane, self.namespace, self.folder = plane, namespace, folder
        self.path = f"/apis/millrace.dev/v1alpha1/namespaces/{namespace}/consumerpipelines/flights"
        kubectl = binaries.ensure(["kubectl"], build=False)["kubectl"]
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").symlink_to(kubectl)

    def millrace(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millrace.cli.kubectl", str(words[0]), *map(str, words[1:])]
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        code = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker"))
        given = {"PATH": path, "PYTHONPATH": code, "COLUMNS": "140", "KUBECONFIG": str(self.plane.kubeconfig)}
        return subprocess.run(
            [*command, "-n", self.namespace],
            env={**os.environ, **given, **environment},
            capture_output=True,
            text=True,
            timeout=400,
        )

    def told(self, *words: object) -> str:
        done = self.millrace(*words)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def get(self) -> dict[str, Any]:
        return self.plane.request("GET", self.path).body

    def write(self, manifest: object) -> Path:
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(manifest))
        return file


@pytest.fixture
def desk(plane: ControlPlane, namespace: str, tmp_path: Path) -> Desk:
    plane.serve(ROOT / "crds" / "millrace.dev_consumerpipelines.yaml")
    desk = Desk(plane, namespace, tmp_path)
    assert plane.request("PATCH", f"{desk.path}?force=true", MANIFEST).status == 201
    return desk


def as_the_operator_has_it(desk: Desk) -> None:
    told = {**MANIFEST, "status": STATUS}
    assert desk.plane.request("PATCH", f"{desk.path}/status?force=true", told).status == 200


def test_pipelines_are_listed_and_one_is_told_of(desk: Desk) -> None:
    assert "not seen by an operator" in desk.told("status")
    assert "no operator has looked at it yet" in desk.told("status", "flights")
    as_the_operator_has_it(desk)

    assert desk.told("status").splitlines()[1].split()[:6] == ["flights", "Running", "3/3", "4", "6", "300"]
    assert desk.namespace in desk.told("status", "--all-namespaces")
    one = desk.told("status", "flights")
    for words in (f"{desk.namespace}/flights", "all workers are ready", "epoch 4", "lag 300", "2, 5"):
        assert words in one
    assert json.loads(desk.told("status", "flights", "-o", "json"))["status"]["epoch"] == 4


def test_a_change_of_replicas_is_planned_with_what_the_cluster_says(desk: Desk) -> None:
    assert desk.millrace("plan", "flights").returncode == ExitCode.USAGE
    as_the_operator_has_it(desk)
    answer = json.loads(desk.told("plan", "flights", "--to", 4, "-o", "json"))
    assert (answer["partitions"], answer["replicas"], answer["to"]) == (6, 3, 4)
    assert {move["to"] for move in answer["moves"]} == {3}


def test_pausing_resuming_and_restarting_change_one_field_each(desk: Desk) -> None:
    before = desk.get()
    desk.told("pause", "flights")
    assert desk.get()["spec"]["suspend"] is True
    desk.told("resume", "flights")
    assert desk.get()["spec"] == before["spec"]
    desk.told("restart", "flights")
    after = desk.get()
    assert after["spec"] == before["spec"]
    first = after["metadata"]["annotations"]["millrace.dev/restarted-at"]
    assert first.endswith("+00:00")


def test_a_manifest_is_checked_here_and_then_by_the_server(desk: Desk) -> None:
    assert "the cluster would take it" in desk.told("validate", "-f", desk.write(MANIFEST))
    spec = MANIFEST["spec"]
    other = {**MANIFEST, "spec": {**spec, "source": {"topic": "flights", "groupId": "another"}}}
    refused = desk.millrace("validate", "-f", desk.write(other))  # sound by itself
    assert refused.returncode == ExitCode.MANIFEST
    assert "spec.source" in refused.stderr
    unsound = desk.millrace("validate", "-f", desk.write({**MANIFEST, "spec": {**spec, "stages": []}}))
    assert (unsound.returncode, "spec.stages" in unsound.stderr) == (ExitCode.MANIFEST, True)
    assert desk.get()["spec"]["source"]["groupId"] == "g"


def test_logs_are_asked_for_in_words_that_kubectl_knows(desk: Desk) -> None:
    assert desk.millrace("logs", "flights").returncode == ExitCode.USAGE
    as_the_operator_has_it(desk)
    for more in ((), ("--since", "5m", "--tail", -1, "--stage", "score"), ("--follow",), ("--previous",)):
        done = desk.millrace("logs", "flights", *more)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_what_the_cluster_refuses_is_told_with_its_exit_code(desk: Desk) -> None:
    missing = desk.millrace("status", "trains")
    assert missing.returncode == ExitCode.USAGE
    assert 'consumerpipelines.millrace.dev "trains" not found' in missing.stderr
    assert desk.millrace("pause", "trains").returncode == ExitCode.USAGE

    config = yaml.safe_load(desk.plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "stale"}
    stale = desk.folder / "stale"
    stale.write_text(yaml.safe_dump(config))
    assert desk.millrace("status", KUBECONFIG=str(stale)).returncode == ExitCode.CREDENTIALS

    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    away = desk.folder / "away"
    away.write_text(yaml.safe_dump(config))
    gone = desk.millrace("status", KUBECONFIG=str(away))
    assert (gone.returncode, "Traceback" in gone.stderr) == (ExitCode.BROKER_UNREACHABLE, False)
    assert desk.millrace("status", "--context", "nowhere").returncode == ExitCode.USAGE
