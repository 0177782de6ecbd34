"""The operator as a user has it: both charts, by Helm, with the images of this checkout, on the kind cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cluster import release
from cluster.docker import docker
from cluster.kind import Cluster
from cluster.release import NAMESPACE
from millrace.clock import Deadline, SystemClock

CLOCK = SystemClock()
Object = dict[str, Any]


class Installed:
    """The release `millrace` in NAMESPACE."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def get(self, *what: str, namespace: str = NAMESPACE) -> Object:
        done = self.cluster.kubectl("get", "-n", namespace, *what, "-o", "json", check=True)
        return dict(json.loads(done.stdout))

    def pods(self) -> Sequence[Object]:
        return list(self.get("pods", "-l", "app.kubernetes.io/component=operator")["items"])

    def leader(self) -> str:
        """Name of the pod that leads; "" if none does."""
        holder = str(self.get("lease", "millrace")["spec"].get("holderIdentity", ""))
        return next((name for pod in self.pods() if holder.startswith(name := pod["metadata"]["name"])), "")

    def logs(self) -> str:
        """Of all that run and of those that ran before in the same pods."""
        found = []
        for pod in self.pods():
            for previous in ((), ("--previous",)):
                name = pod["metadata"]["name"]
                found.append(self.cluster.kubectl("logs", "-n", NAMESPACE, name, *previous).stdout)
        return "\n".join(found)

    def reconciles(self) -> int:
        """How many the leader has done since its start."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.leader()}:9400/proxy/metrics"
        text = self.cluster.kubectl("get", "--raw", path, check=True).stdout
        name = "millrace_operator_reconciles_total "
        return int(next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name))

    def requests(self) -> Iterator[Mapping[str, Any]]:
        """What the operator asked of the API server so far."""
        user = f"system:serviceaccount:{NAMESPACE}:millrace"
        return (event for event in self.cluster.audited() if event.get("user", {}).get("username") == user)

    def writes(self) -> Sequence[str]:
        """What it wrote so far, less its lease and events."""
        verbs = {"create", "update", "patch", "delete", "deletecollection"}
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.requests()
            if event["verb"] in verbs
            and event.get("objectRef", {}).get("resource") not in ("leases", "events")
        ]


@contextmanager
def installed(
    cluster: Cluster,
    *,
    replicas: int = 1,
    env: Mapping[str, str] | None = None,
) -> Iterator[Installed]:
    """Installs or upgrades the charts, and takes the operator's away at the end; the resource stays, as a user's does.

    env: more variables of the operator.
    """
    env_ = [{"name": name, "value": value} for name, value in (env or {}).items()]
    release.install(cluster, lambda _: None, replicas=replicas, env=env_)
    found = Installed(cluster)
    eventually(lambda: bool(found.leader()), "an operator leads", found.logs)
    try:
        yield found
    finally:
        release.uninstall(cluster)
        # one that still ends would ask on, without any rights, beside the next
        eventually(lambda: not found.pods(), "the operator's pods are gone")


def kill_program(cluster: Cluster, namespace: str, pod: str, program: str) -> None:
    """SIGKILL to the processes of a pod whose command line has `program` in it: its container ends, the pod stays. From
    the node, since nobody in a container may kill its first process.
    """
    path = "jsonpath={.spec.nodeName}"
    node = cluster.kubectl("get", "pod", "-n", namespace, pod, "-o", path, check=True).stdout
    script = (
        'for p in /proc/[0-9]*; do grep -qzx "HOSTNAME=$1" $p/environ 2>/dev/null || continue; '
        'tr "\\0" " " <$p/cmdline | grep -q "$2" && kill -9 ${p#/proc/} && echo ${p#/proc/}; done; true'
    )
    assert docker("exec", node, "bash", "-c", script, "-", pod, program), f"{program} does not run in {pod}"


def eventually(
    condition: Callable[[], bool], what: str, told: Callable[[], object] = str, seconds: float = 600.0
) -> None:
    """Awaits it; else the test fails with what `told` gives."""
    deadline = Deadline.after(CLOCK, seconds)
    while not condition():
        assert not deadline.expired(), f"not so after {seconds:.0f} s: {what}\n{str(told())[-6000:]}"
        CLOCK.sleep(0.3)
