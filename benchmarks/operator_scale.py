"""The operator with a thousand pipelines, and with five thousand: a real API server with its controllers, pods that kwok
claims to run, and a stand-in for the brokers (operator_stand_in.py).

    python benchmarks/operator_scale.py     QUICK=1: a tenth of it

Writes are read from the API server's audit log, those of the operator's user but for its Lease and events. Times are
wall-clock of a machine that also runs etcd, API server, controllers, scheduler and kwok.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from report import Figure, publish

from cluster.plane import ControlPlane

QUICK = os.environ.get("QUICK", "") not in ("", "0")
THOUSAND = 100 if QUICK else 1_000
FIVE_THOUSAND = 400 if QUICK else 5_000
STEADY = 60.0 if QUICK else 600.0  # s
CHANGES = 30 if QUICK else 200
PATIENCE = 1_800.0  # s that anything may take before the benchmark gives up

ROOT = Path(__file__).parent.parent
NAMESPACE = "bench"
USER = f"system:serviceaccount:{NAMESPACE}:operator"
PIPELINES = f"/apis/millrace.dev/v1alpha1/namespaces/{NAMESPACE}/consumerpipelines"
STATEFUL = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def pipeline(number: int, replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "kafka": {"bootstrapServers": "stand-in:9092"},
            "source": {"topic": f"source-{number}"},
            "stages": [{"name": "same", "map": {"function": "code:same"}}],
            "worker": {"image": "worker:1", "code": {"configMapRef": {"name": "code"}}},
        },
    }


def name(number: int) -> str:
    return f"p{number:05}"


class Operator:
    """The process, from its start to its end."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._readings = directory / "readings"
        paths = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker", "operator", "tests"))
        with (directory / "operator.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("operator_stand_in.py")),
                    *("--kubeconfig", str(kubeconfig), "--http", f"127.0.0.1:{self._port}"),
                ],
                env={
                    **os.environ,
                    "PYTHONPATH": paths,
                    "KUBECONFIG": str(kubeconfig),
                    "READINGS": str(self._readings),
                },
                stdout=log,
                stderr=log,
            )
        self.begun = time.monotonic()

    def await_ready(self) -> float:
        """Seconds from the start until /readyz says yes: leadership and first lists are there."""
        until(lambda: self._ask("/readyz") is not None)
        return time.monotonic() - self.begun

    def await_all_seen(self, count: int) -> float:
        """Seconds from the start until each pipeline was reconciled and none waits."""
        until(lambda: self.figure("reconciles_total") >= count and self.figure("queue_depth") == 0)
        return time.monotonic() - self.begun

    def figure(self, which: str) -> float:
        for line in (self._ask("/metrics") or "").splitlines():
            if line.startswith(f"millrace_operator_{which} "):
                return float(line.split()[1])
        return 0.0

    def readings(self) -> Counter[str]:
        """Requests at the stand-in for the brokers, by kind, of this process and those before."""
        lines = self._readings.read_text().splitlines() if self._readings.exists() else []
        return Counter(line.split()[0] for line in lines)

    def memory(self) -> float:
        """Resident, MiB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def cpu(self) -> float:
        """User and system, s."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _ask(self, path: str) -> str | None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the operator ended with {self.process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return None


class Audit:
    """The API server's audit log, read on from where it was read to."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""

    def writes(self) -> Sequence[tuple[str, str, str]]:
        """Verb, resource and pipeline or object of each of the operator's writes since the last call."""
        return [
            (event["verb"], event["objectRef"]["resource"], event["objectRef"].get("name", ""))
            for event in self._events()
            if event.get("user", {}).get("username") == USER
            and event["verb"] in WRITES
            and event.get("objectRef", {}).get("resource") not in ("leases", "events", None)
        ]

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as log:
            log.seek(self._at)
            read = self._rest + log.read()
            self._at = log.tell()
        lines = read.split(b"\n")
        self._rest = lines.pop()
        yield from map(json.loads, filter(None, lines))


def until(holds: Callable[[], bool], every: float = 0.2) -> None:
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > PATIENCE:
            raise TimeoutError(f"it was not so after {PATIENCE:.0f} s: {holds}")
        time.sleep(every)


def apply(plane: ControlPlane, numbers: range, replicas: int) -> None:
    def post(number: int) -> None:
        reply = plane.request("POST", PIPELINES, pipeline(number, replicas))
        if reply.status != 201:
            raise RuntimeError(reply.message)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(post, numbers))


def count(plane: ControlPlane, path: str) -> int:
    """Objects of a kind, without fetching them all."""
    body = plane.request("GET", f"{path}?limit=1").body
    return len(body["items"]) + int(body["metadata"].get("remainingItemCount", 0))


def ready(plane: ControlPlane) -> int:
    found = 0
    after = ""
    while True:
        body = plane.request("GET", f"{PIPELINES}?limit=500{after}").body
        for one in body["items"]:
            conditions = one.get("status", {}).get("conditions", [])
            found += any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        token = body["metadata"].get("continue")
        if not token:
            return found
        after = f"&continue={token}"


def latencies(plane: ControlPlane, among: int) -> list[float]:
    """Seconds from the answer to a change of one pipeline's spec until its StatefulSet has it."""
    found = []
    for change in range(CHANGES):
        number = change * 7919 % among
        path = f"{PIPELINES}/{name(number)}"
        env = [{"name": "CHANGE", "value": str(change)}]
        worker = {"image": "worker:1", "code": {"configMapRef": {"name": "code"}}, "env": env}
        body = {"apiVersion": "millrace.dev/v1alpha1", "kind": "ConsumerPipeline", "spec": {"worker": worker}}
        reply = plane.request("PATCH", f"{path}?force=true", body)
        if reply.status != 200:
            raise RuntimeError(reply.message)
        begun = time.monotonic()
        until(lambda: has(plane, number, str(change)), every=0.005)  # noqa: B023  called here and now
        found.append(time.monotonic() - begun)
    return found


def has(plane: ControlPlane, number: int, value: str) -> bool:
    stateful = plane.request("GET", f"{STATEFUL}/{name(number)}").body
    containers = stateful["spec"]["template"]["spec"]["containers"]
    return any(one.get("value") == value for c in containers for one in c.get("env", ()))


def figure(case: str, what: str, value: float, unit: str, most: float) -> Figure:
    return Figure(case, what, round(value, 3), unit, {}, None, most, value <= most)


def measure(plane: ControlPlane, kubeconfig: Path, directory: Path) -> Iterator[Figure]:
    audit, operator = Audit(plane.audit_log), Operator(kubeconfig, directory)
    operator.await_ready()
    say(f"{THOUSAND} pipelines are applied")
    begun = time.monotonic()
    apply(plane, range(THOUSAND), 1)
    until(lambda: count(plane, STATEFUL) >= THOUSAND)
    there = time.monotonic() - begun
    until(lambda: ready(plane) == THOUSAND, every=2.0)
    running = time.monotonic() - begun
    case = f"{THOUSAND} pipelines applied at once"
    yield figure(case, "all StatefulSets are there", there, "s", 60.0)
    yield Figure(case, "all are Ready", round(running, 1), "s")
    yield Figure(case, "operator's CPU", round(operator.cpu() * 1000 / THOUSAND, 2), "ms a pipeline")
    settle(operator)
    writes = Counter((verb, kind) for verb, kind, _ in audit.writes())
    objects = round(len(children(plane, name(0))))
    most = objects + 4 + 1 + 1
    yield figure(case, f"API writes ({objects} objects)", sum(writes.values()) / THOUSAND, "a pipeline", most)
    for (verb, kind), number in sorted(writes.items()):
        say(f"  {number / THOUSAND:6.2f} {verb} {kind}")

    case = f"{THOUSAND} pipelines at rest"
    say(f"{STEADY:.0f} s at rest")
    cpu, readings = operator.cpu(), operator.readings()
    time.sleep(STEADY)
    yield figure(case, f"API writes in {STEADY:.0f} s", len(audit.writes()), "", 0)
    yield from read(case, operator.readings() - readings, STEADY)
    yield Figure(case, "operator's CPU", round((operator.cpu() - cpu) / STEADY * 100, 1), "% of a core")
    yield from restarted(kubeconfig, directory, operator, audit, THOUSAND, 15.0)

    say(f"{FIVE_THOUSAND - THOUSAND} more, with no worker each")
    operator = Operator(kubeconfig, directory)
    operator.await_ready()
    apply(plane, range(THOUSAND, FIVE_THOUSAND), 0)
    until(lambda: ready(plane) == FIVE_THOUSAND, every=5.0)
    settle(operator)
    audit.writes()
    yield from restarted(kubeconfig, directory, operator, audit, FIVE_THOUSAND, 60.0)

    operator = Operator(kubeconfig, directory)
    operator.await_all_seen(FIVE_THOUSAND)
    settle(operator)
    readings = operator.readings()
    seconds = max(STEADY / 5, 45.0)
    time.sleep(seconds)
    yield from read(f"{FIVE_THOUSAND} pipelines at rest", operator.readings() - readings, seconds)
    say(f"{CHANGES} changes, one after another")
    times = sorted(latencies(plane, THOUSAND))
    case = f"a change among {FIVE_THOUSAND}"
    yield Figure(case, "to its StatefulSet, median", round(statistics.median(times), 3), "s")
    yield figure(case, "to its StatefulSet, p99", times[int(len(times) * 0.99)], "s", 1.0)
    yield figure(case, "memory", operator.memory(), "MiB", 400.0)
    operator.stop()


def read(case: str, requests: Counter[str], seconds: float) -> Iterator[Figure]:
    """What lag and claims cost the broker. One request here is, with the real client: topics, one; offsets, one for their
    leaders and one to each; committed, one to each coordinator, after one to learn who they are when a group is new;
    members, one to each broker. So they grow with brokers. The bound: each kind in each of the rounds, one in 15 s and
    one for whoever looks at the edge of it.
    """
    for kind in sorted(requests):
        say(f"  {requests[kind] * 60 / seconds:6.1f} a minute: {kind}")
    every_kind, rounds = 4, seconds / 15 + 1
    most = 1.5 * every_kind * rounds * 60 / seconds
    yield figure(
        case, "requests of lag readings (all kinds)", requests.total() * 60 / seconds, "a minute", most
    )


def restarted(
    kubeconfig: Path,
    directory: Path,
    operator: Operator,
    audit: Audit,
    pipelines: int,
    seconds: float,
) -> Iterator[Figure]:
    """What a new start over an unchanged cluster takes. It ends stopped."""
    say(f"a new start with {pipelines}")
    operator.stop()
    audit.writes()
    operator = Operator(kubeconfig, directory)
    case = f"new start with {pipelines} pipelines"
    yield figure(case, "ready", operator.await_ready(), "s", seconds)
    yield Figure(case, "all were looked at", round(operator.await_all_seen(pipelines), 1), "s")
    settle(operator)
    yield figure(case, "API writes", len(audit.writes()), "", 0)
    yield Figure(case, "memory", round(operator.memory()), "MiB")
    operator.stop()


def settle(operator: Operator) -> None:
    """Until nothing has waited for five seconds."""
    quiet = time.monotonic()
    while time.monotonic() - quiet < 5.0:
        if operator.figure("queue_depth") > 0:
            quiet = time.monotonic()
        time.sleep(0.5)


def children(plane: ControlPlane, owner: str) -> Sequence[str]:
    """What the operator has made for a pipeline."""
    kinds = "statefulsets,services,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies"
    label = f"millrace.dev/pipeline={owner}"
    return plane.kubectl("get", kinds, "-n", NAMESPACE, "-l", label, "-o", "name").stdout.split()


def say(line: str) -> None:
    sys.stderr.write(f"bench-operator: {line}\n")
    sys.stderr.flush()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as temporary:
        directory = Path(temporary)
        plane = ControlPlane(directory / "plane", pods=True)
        plane.start(say=say)
        try:
            plane.serve(ROOT / "crds" / "millrace.dev_consumerpipelines.yaml")
            plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            code = {"metadata": {"name": "code"}, "data": {"code.py": "def same(value): return value\n"}}
            plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", code)
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
            plane.request("POST", account, {"metadata": {"name": "operator"}})
            rights = ("clusterrolebinding", "bench", "--clusterrole=cluster-admin")
            plane.kubectl("create", *rights, f"--serviceaccount={NAMESPACE}:operator")
            kubeconfig = plane.kubeconfig_of(NAMESPACE, "operator")
            figures = []
            for one in measure(plane, kubeconfig, directory):
                say(f"{one.case}: {one.figure}: {one.value:g} {one.unit}")
                figures.append(one)
        except BaseException:
            log = directory / "operator.log"
            say(f"the operator said last:\n{log.read_text()[-3000:] if log.exists() else ''}")
            raise
        finally:
            plane.stop()
    publish(
        "operator",
        figures,
        {
            "brokers": "a stand-in behind the connectivity port, with doubles of workers",
            "lag readings": "calls there; the real client sends one or two to each broker for each",
        },
    )


if __name__ == "__main__":
    main()
