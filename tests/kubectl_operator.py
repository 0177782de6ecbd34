"""The operator's part, played by a test through kubectl: one StatefulSet of workers, its epoch in a ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.kind import Cluster
from millrace.clock import Clock, Deadline, SystemClock
from millrace.ownership.control_plane import ControlPlane, Event
from millrace.ownership.control_rules import Fleet, Scale, Settled
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, Published

_FILE = "epoch.json"


@dataclass
class ConfigMapStore:
    """The epoch in a ConfigMap. The pods that mount it are annotated, so that the kubelet looks at once."""

    cluster: Cluster
    namespace: str
    name: str
    pods: str

    def read(self) -> Published | None:
        found = self.cluster.kubectl("get", "configmap", "-n", self.namespace, self.name, "-o", "json")
        if found.returncode != 0:
            assert "NotFound" in found.stderr, found.stderr
            return None
        content = json.loads(found.stdout)
        version = content["metadata"]["resourceVersion"]
        return Published(Epoch.decode(content["data"][_FILE], where=self.name), version)

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, **({} if expected is None else {"resourceVersion": expected})},
            "data": {_FILE: epoch.encode()},
        }
        verb = "create" if expected is None else "replace"
        arguments = [verb, "-n", self.namespace, "-f", "-", "-o", "json"]
        done = self.cluster.kubectl(*arguments, stdin=json.dumps(manifest))
        if done.returncode != 0:
            assert "Conflict" in done.stderr or "AlreadyExists" in done.stderr, done.stderr
            raise EpochConflict(done.stderr)
        told = f"millrace.dev/epoch={epoch.number}"
        self.cluster.kubectl("annotate", "pods", "-n", self.namespace, "-l", self.pods, "--overwrite", told)
        return Published(epoch, json.loads(done.stdout)["metadata"]["resourceVersion"])


@dataclass
class Group:
    """A StatefulSet of workers under a control plane."""

    cluster: Cluster
    namespace: str
    name: str
    plane: ControlPlane
    clock: Clock = field(default_factory=SystemClock)

    def bring_to(self, replicas: int, seconds: float = 400.0) -> list[Event]:
        """Reconcile until all is settled with so many workers. Returns what was done."""
        deadline = Deadline.after(self.clock, seconds)
        events: list[Event] = []
        while True:
            done = self.plane.reconcile(replicas, self.fleet())
            events += done.events
            if isinstance(done.step, Settled) and self.fleet().scale == replicas:
                return events
            if isinstance(done.step, Scale):
                self._kubectl("scale", f"statefulset/{self.name}", f"--replicas={done.step.replicas}")
            assert not deadline.expired(), f"not settled: {done.step}, {self.fleet()}"
            self.clock.sleep(0.3)

    def fleet(self) -> Fleet:
        scale = int(self._kubectl("get", f"statefulset/{self.name}", "-o", "jsonpath={.spec.replicas}"))
        found: Iterable[Mapping[str, Any]] = json.loads(
            self._kubectl("get", "pods", "-l", f"app={self.name}", "-o", "json")
        )["items"]
        running = {_index(pod): _is_ready(pod) for pod in found}
        return Fleet(scale, frozenset(running), frozenset(index for index, ready in running.items() if ready))

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 400.0) -> None:
        deadline = Deadline.after(self.clock, seconds)
        while not condition():
            assert not deadline.expired(), f"not so after {seconds:.0f} s: {what}; {self.fleet()}"
            self.clock.sleep(0.3)

    def _kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, check=True).stdout


def _index(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"])


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
