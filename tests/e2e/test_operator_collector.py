"""A pipeline with its collector on a real cluster: workers, a Spark driver and its executors as pods, in a namespace that
admits what is restricted and nothing else. What is on the volume in the end, read by pyarrow, is what pandas computes,
group by group, though driver, executor and operator are killed.

The volume is one of the node (ReadWriteOnce): executors are kept on the driver's node. The operator runs on this machine.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from confluent_kafka import Producer

from cluster import images, kafka, products, release
from cluster.images import Image
from cluster.kind import Cluster
from flights_example import FOLDER, example
from millrace.clock import Deadline, SystemClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
FED = 30_000  # flights, of the year's 336,776
SECONDS = 1200.0  # a batch takes minutes where the machine has much else to do
CLOCK = SystemClock()


class Pipeline:
    """The flights, under names of its own, and the operator that runs them."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path) -> None:
        self.cluster, self.namespace, self.directory = cluster, namespace, directory
        self.name = f"f-{uuid.uuid4().hex[:8]}"
        self.bootstrap = kafka.outside(cluster)
        self.operator: subprocess.Popen[bytes] | None = None
        self.spark = products.image("spark", lambda _: None)
        worker = products.image("worker", lambda _: None)
        arguments = {"WORKER_IMAGE": worker}
        self.worker = images.build(Image("flights", HERE / "flights.Dockerfile", arguments=arguments), print)
        cluster.load([self.worker, self.spark], lambda _: None)

    def manifest(self, **spark: object) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((FOLDER / "pipeline.yaml").read_text())
        spec = found["spec"]
        found["metadata"] = {"name": self.name, "namespace": self.namespace}
        spec["replicas"] = 2
        spec["kafka"]["bootstrapServers"] = self.bootstrap
        spec["source"] |= {"topic": f"{self.name}.flights", "groupId": self.name}
        spec["deadLetter"]["topic"] = f"{self.name}.dead"
        spec["stages"] = [stage for stage in spec["stages"] if "produce" not in stage]
        collect = spec["stages"][-1]["collect"]
        collect["trigger"] = {"interval": "1s"}
        collect["spark"] = {"driver": {"cpu": "100m", "memory": "1Gi"}, **spark}
        resources = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "384Mi"}}
        code = {"configMapRef": {"name": "flights-code"}}
        spec["worker"] = {"image": self.worker, "code": code, "resources": resources}
        spec["storage"] = {"persistentVolumeClaim": {"claimName": "flights"}}
        return found

    def apply(self, **spark: object) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(self.manifest(**spark)))

    def start_operator(self) -> None:
        paths = os.pathsep.join(str(ROOT / part) for part in ("crds", "worker", "operator"))
        kubeconfig = str(self.cluster.kubeconfig)
        options = ["--kubeconfig", kubeconfig, "--http", "127.0.0.1:0", "--namespace", self.namespace]
        options += ["--lease-namespace", self.namespace, "--spark-image", self.spark]
        with (self.directory / "operator.log").open("ab") as log:
            self.operator = subprocess.Popen(
                [sys.executable, "-m", "millrace_operator.main", *options],
                env={**os.environ, "PYTHONPATH": paths, "KUBECONFIG": kubeconfig},
                stdout=log,
                stderr=log,
            )

    def kill_operator(self) -> None:
        assert self.operator is not None
        self.operator.kill()
        self.operator.wait()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=True).stdout

    def attempts(self) -> list[tuple[int, str]]:
        told = self.status().get("collector", {}).get("attempts", [])
        return [(one["number"], one.get("outcome", "")) for one in told]

    def status(self) -> dict[str, Any]:
        found = self.cluster.kubectl("-n", self.namespace, "get", "cpl", self.name, "-o", "json")
        return dict(json.loads(found.stdout).get("status", {})) if found.returncode == 0 else {}

    def condition(self, kind: str) -> tuple[str, str]:
        for one in self.status().get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def pods(self, component: str) -> list[str]:
        """Names of those that run."""
        label = f"app.kubernetes.io/component={component}"
        listed = self.kubectl(
            "get", "pods", "-l", label, "--field-selector=status.phase=Running", "-o", "name"
        )
        return [name.removeprefix("pod/") for name in listed.split()]

    def kill(self, pod: str) -> None:
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def results(self, into: Path) -> Path:
        """A copy of what is on the volume now."""
        [driver] = self.pods("driver")
        packed = self.kubectl(
            "exec", driver, "--", "sh", "-c", "tar -c -C /millrace/storage results | base64"
        )
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
            archive.extractall(into, filter="data")
        return into / "results"

    def eventually(
        self, what: Callable[[], object], seconds: float = SECONDS, told: Callable[[], object] = str
    ) -> None:
        deadline = Deadline.after(CLOCK, seconds)
        while not what():
            if deadline.expired():
                said = self.cluster.kubectl("-n", self.namespace, "get", "pods", "-o", "wide").stdout
                logs = (self.directory / "operator.log").read_text()[-3000:]
                drivers = [
                    self.cluster.kubectl("-n", self.namespace, "logs", driver, "--tail=20").stdout
                    for driver in self.pods("driver")
                ]
                raise AssertionError(
                    "\n".join(
                        [
                            "it never was so",
                            str(told()),
                            said,
                            json.dumps(self.status(), indent=1),
                            logs,
                            *drivers,
                        ]
                    )
                )
            CLOCK.sleep(1.0)


@pytest.fixture
def flights(kube: Cluster, pods: str, tmp_path: Path) -> Iterator[Pipeline]:
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    release.install_resource(kube)
    found = Pipeline(kube, pods, tmp_path)
    code = f"--from-file=flights.py={FOLDER / 'flights.py'}"
    found.kubectl("create", "configmap", "flights-code", code)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "flights"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    found.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    found.start_operator()
    yield found
    if found.operator is not None and found.operator.poll() is None:
        found.kubectl("delete", "cpl", found.name, "--ignore-not-found", "--timeout=180s")
        found.kill_operator()


def test_what_is_on_the_volume_is_exact_though_driver_executor_and_operator_are_killed(
    flights: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = flights.manifest()["spec"]["source"]["topic"]
    monkeypatch.setattr(example("load"), "TOPIC", topic)
    feed = example("load").Feed(flights.bootstrap, seed=2013)
    feed.create_topic()
    feed.advance(FED // 3)

    # one pod does all the work
    flights.apply()
    flights.eventually(lambda: flights.condition("Ready") == ("True", "Running"))
    assert flights.attempts() == [(1, "")]
    [driver] = flights.pods("driver")
    assert driver == f"{flights.name}.by-carrier.1"
    assert "serviceaccount" not in flights.kubectl("exec", driver, "--", "sh", "-c", "ls -R /run /var/run")

    # with executors; both are killed, and the operator while the driver is
    flights.apply(executors={"min": 1, "max": 2, "cpu": "100m", "memory": "1Gi"})
    flights.eventually(lambda: flights.attempts()[:2] == [(1, "Replaced"), (2, "")])
    flights.eventually(lambda: flights.condition("CollectorReady") == ("True", "Running"))
    flights.eventually(lambda: flights.pods("executor"))
    feed.advance(FED * 2 // 3)
    flights.kill(flights.pods("executor")[0])
    flights.eventually(lambda: flights.pods("executor"))
    flights.kill(flights.pods("driver")[0])
    flights.kill_operator()
    feed.advance(FED)
    flights.start_operator()
    flights.eventually(lambda: flights.attempts()[-1] == (3, ""))
    flights.eventually(lambda: flights.condition("CollectorReady") == ("True", "Running"))
    assert len(flights.pods("driver")) == 1

    # a flight of much later in each partition closes all windows before it
    close(flights.bootstrap, topic, len(feed.ends))
    expected = groups(flights.bootstrap, topic)
    found_groups, compare = example("groups").found_groups, example("groups").compare_groups
    last: list[Any] = []

    def complete() -> bool:
        copy = flights.results(tmp_path / f"copy-{len(last)}")
        if not any(copy.rglob("*.parquet")):
            return False
        found = found_groups(copy)
        last.append(compare(expected, found))
        return bool(last[-1].found >= last[-1].expected)

    flights.eventually(lambda: _written(flights) and complete(), told=lambda: last[-1:])
    assert last[-1].equal, last[-1]
    assert last[-1].flights > FED * 0.9
    assert flights.attempts()[-1] == (3, "")


def close(bootstrap: str, topic: str, partitions: int) -> None:
    later = {
        "carrier": "ZZ", "flight": 1, "origin": "JFK", "dest": "BOS", "time_hour": "2015-01-01T10:00:00Z", "minute": 0,
        "dep_time": 1000, "arr_time": 1100, "dep_delay": 0, "arr_delay": 0, "air_time": 40, "distance": 187,
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for partition in range(partitions):
        producer.produce(topic, json.dumps(later).encode(), partition=partition)
    assert producer.flush(60) == 0


def groups(bootstrap: str, topic: str) -> pd.DataFrame:
    """As pandas has them, without the flights that closed the windows: theirs are open."""
    verify, read = example("verify"), example("topics").read
    decoded, _ = verify.decode([one for one in read(bootstrap, topic) if b'"ZZ"' not in (one.value or b"")])
    flown = decoded[decoded["dep_time"].notna() & decoded["arr_time"].notna()]
    hours = pd.to_datetime(flown["time_hour"])
    table: pd.DataFrame = example("groups").expected_groups(
        flown.assign(hour=hours, delay=flown["arr_delay"])
    )
    return table


def _written(flights: Pipeline) -> bool:
    [driver] = flights.pods("driver") or [""]
    where = ["exec", driver, "--", "test", "-d", "/millrace/storage/results"]
    return bool(driver) and flights.cluster.kubectl("-n", flights.namespace, *where).returncode == 0
