"""The operator as a process of its own: a real API server with controllers and kwok's pods, and a real broker.

No worker really runs: kwok claims that pods do. What workers do for the protocol is done by `WorkerDouble`s, which hold
and pass claims at the real broker, one for each pod that there is.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cluster.plane import ControlPlane
from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import TimedOut
from millrace.errors import MillraceError
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.epoch import Epoch
from worker_double import WorkerDouble

ROOT = Path(__file__).parents[1]
NAMESPACE = "air"
PIPELINE = f"/apis/millrace.dev/v1alpha1/namespaces/{NAMESPACE}/consumerpipelines/flights"
STATEFUL = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/flights"
EPOCH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/flights-epoch"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKERS = f"{PODS}?labelSelector=app.kubernetes.io/component%3Dworker"
CLOCK = SystemClock()


class Operator:
    """The process, and the doubles of the workers on a thread."""

    def __init__(self, plane: ControlPlane, broker: EmbeddedBroker, directory: Path) -> None:
        self.plane, self.broker, self.directory = plane, broker, directory
        self.process: subprocess.Popen[bytes] | None = None
        self.doubles: dict[str, WorkerDouble] = {}
        self._end = threading.Event()
        self._work = threading.Lock()  # held while the doubles do anything
        self._thread = threading.Thread(target=self._play, daemon=True)

    def start(self, *arguments: str) -> None:
        self.process = self.start_another("operator.log", *arguments)
        if not self._thread.is_alive() and not self._end.is_set():
            self._thread.start()

    def start_another(self, log_name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A process of an operator, that competes for the leadership unless it is given a lease of its own."""
        paths = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker", "operator"))
        with (self.directory / log_name).open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "millrace_operator.main",
                    "--kubeconfig", str(self.plane.kubeconfig), "--http", "127.0.0.1:0",
                    "--spark-image", "spark:1", *arguments,
                ],
                env={**os.environ, "PYTHONPATH": paths, "KUBECONFIG": str(self.plane.kubeconfig)},
                stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self, *, kill: bool = False) -> int:
        assert self.process is not None
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        return self.process.wait(120)

    @contextmanager
    def doubles_at_rest(self) -> Iterator[None]:
        with self._work:
            yield

    def close(self) -> None:
        self._end.set()
        self._thread.join(60)
        if self.process is not None and self.process.poll() is None:
            self.stop(kill=True)

    def log(self, name: str = "operator.log") -> str:
        return (self.directory / name).read_text()

    def get(self, path: str) -> dict[str, Any]:
        return self.plane.request("GET", path).body

    def condition(self, kind: str, path: str = PIPELINE) -> tuple[str, str]:
        for condition in self.get(path).get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def eventually(self, what: Callable[[], bool], seconds: float = 300.0) -> None:
        deadline = Deadline.after(CLOCK, seconds)
        while not what():
            if deadline.expired():
                status = json.dumps(self.get(PIPELINE).get("status", {}), indent=1)
                raise AssertionError(f"it never was so\n{status}\n{self.log()[-4000:]}")
            CLOCK.sleep(0.2)

    def _epoch(self) -> Epoch | None:
        data = self.get(EPOCH).get("data")
        return Epoch.decode(data["epoch.json"]) if data else None

    def _play(self) -> None:
        cluster = ConfluentCluster(
            self.broker.bootstrap, credentials=None, properties={}, client_id="doubles"
        )
        while not self._end.wait(0.2):
            with self._work:
                try:
                    self._round(cluster)
                except (OSError, http.client.HTTPException):
                    continue  # the API server did not answer: the next round is another try
        for double in self.doubles.values():
            double.end()

    def _round(self, cluster: ConfluentCluster) -> None:
        there = {pod["metadata"]["uid"]: pod for pod in self.get(WORKERS).get("items", [])}
        for uid in [uid for uid in self.doubles if uid not in there]:
            self.doubles.pop(uid).end()
        for uid, pod in there.items():
            if uid not in self.doubles:
                index = int(pod["metadata"]["name"].rpartition("-")[2])
                self.doubles[uid] = WorkerDouble(
                    cluster,
                    self._epoch,
                    index,
                    topic="flights",
                    claims_group=f"{NAMESPACE}.flights.claims",
                )
            if not self._works(self.doubles[uid]):
                self.doubles.pop(uid).end()  # a worker that fails ends, and is started again

    def _works(self, double: WorkerDouble) -> bool:
        try:
            double.work(processed=1)
        except MillraceError:
            return False
        return not double.fenced


def manifest(broker: EmbeddedBroker, **spec: object) -> dict[str, Any]:
    """The workers' part of the flights."""
    found = yaml.safe_load((ROOT / "examples" / "flights" / "pipeline.yaml").read_text())
    found["metadata"] = {"name": "flights", "namespace": NAMESPACE}
    found["spec"]["stages"] = [stage for stage in found["spec"]["stages"] if "collect" not in stage]
    found["spec"]["kafka"] = {"bootstrapServers": broker.bootstrap}
    del found["spec"]["source"]["groupId"]
    found["spec"] |= {
        "worker": {"image": "flights:1", "code": {"configMapRef": {"name": "flights-code"}}},
        **spec,
    }
    return dict(found)


def prepare(plane: ControlPlane, kafka: EmbeddedBroker) -> None:
    """The resource, a namespace that admits only what is restricted, the code; no claims of a test before."""
    plane.serve(ROOT / "crds" / "millrace.dev_consumerpipelines.yaml")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    code = {"metadata": {"name": "flights-code"}, "data": {"flights.py": "def score(value): return value"}}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", code)
    _forget_claims(kafka)


def _forget_claims(kafka: EmbeddedBroker) -> None:
    """Of the pipeline that the test before had, whose claims are another's to this one."""
    admin = ConfluentCluster(kafka.bootstrap, client_id="between-tests").admin()
    deadline = Deadline.after(CLOCK, 200)
    for group in (f"{NAMESPACE}.flights.claims", f"{NAMESPACE}.flights"):
        while True:
            try:
                admin.delete_group(group, 30.0)
                break
            except TimedOut:  # a fresh broker's coordinator is still loading
                if deadline.expired():
                    raise
                CLOCK.sleep(0.2)
    admin.close()
