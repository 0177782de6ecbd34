"""What the operator makes for a collector is taken by a real API server, in a namespace that admits only what is
restricted; and who may write pipelines can't choose more by settings of Spark. Kafka is in memory, pods are kwok's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.plane import ControlPlane
from cluster_claim import make_claim
from millrace.clock import Deadline, SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace_api.tree import Tree
from millrace_operator.cache import Cache
from millrace_operator.cluster import Conflict
from millrace_operator.cluster.real import RealCluster
from millrace_operator.controller import Controller
from millrace_operator.kafka import Threads
from millrace_operator.objects import PIPELINES
from millrace_operator.observed import Settings
from millrace_operator.seal import Seal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
NAMESPACE, KEY = "air", ("air", "flights")
PIPELINE = f"/apis/millrace.dev/v1alpha1/namespaces/{NAMESPACE}/consumerpipelines/flights"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/flights.driver"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SMALL: dict[str, object] = {"driver": {"memory": "1Gi"}}
CLOCK = SystemClock()
MANIFEST = """
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: flights, namespace: air}
spec:
  kafka: {bootstrapServers: "kafka:9092", credentials: {secretRef: {name: kafka-user}}}
  source: {topic: flights, create: {partitions: 2}}
  stages:
  - name: by-a
    collect:
      schema: a string, t timestamp
      groupBy: [a]
      window: {size: 1h, time: t, lateness: 1h}
      aggregate: {n: count(*)}
      sink: {parquet: {path: results}}
  worker: {image: "flights:1", env: [{name: SEASON, value: winter}]}
  storage: {persistentVolumeClaim: {claimName: flights}}
"""


@pytest.fixture
def api(start_plane: Callable[..., ControlPlane]) -> ControlPlane:
    plane = start_plane(pods=True)
    crd = ROOT / "crds" / "millrace.dev_consumerpipelines.yaml"
    plane.serve(crd)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    secret = {"metadata": {"name": "kafka-user"}, "stringData": {"username": "u", "password": "p"}}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    make_claim(plane, NAMESPACE, "flights")
    return plane


def manifest(spark: dict[str, object], **spec: object) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(MANIFEST)
    found["spec"]["stages"][0]["collect"]["spark"] = spark
    found["spec"] |= spec
    return found


class Operator:
    """In this process, on a loop of its own; each `until` is a life of it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self._broker = plane, MemoryBroker(CLOCK)

    def apply(self, wanted: dict[str, Any]) -> None:
        reply = self.plane.request("PATCH", f"{PIPELINE}?force=true", wanted)
        assert reply.status in (200, 201), reply.message

    def until(self, reached: Callable[[], bool]) -> None:
        asyncio.run(self._until(reached))

    async def _until(self, reached: Callable[[], bool]) -> None:
        cluster, threads = await RealCluster.connect(self.plane.kubeconfig), Threads(1)
        cache, pipelines = Cache(cluster), dict[tuple[str, str], Tree]()
        settings = Settings(spark_image="spark:1")
        controller = Controller(
            cluster,
            cache,
            pipelines,
            lambda *_: self._broker.cluster(client_id="op"),
            CLOCK,
            settings,
            threads,
            Seal(b"1" * 32),
        )
        filling = asyncio.create_task(cache.run())
        deadline = Deadline.after(CLOCK, 240)
        try:
            await cache.ready()
            while not await asyncio.to_thread(reached):
                assert not deadline.expired(), json.dumps(self.status(), indent=1)
                found = await cluster.get(PIPELINES, *KEY)
                if found is None:
                    continue
                pipelines[KEY] = found
                with contextlib.suppress(Conflict):
                    await controller.reconcile_one(KEY)
                await asyncio.sleep(0.1)
        finally:
            filling.cancel()
            controller.close()
            threads.shutdown()
            await cluster.close()

    def status(self) -> dict[str, Any]:
        return dict(self.plane.request("GET", PIPELINE).body.get("status", {}))

    def attempts(self) -> list[tuple[int, str]]:
        told = self.status().get("collector", {}).get("attempts", [])
        return [(one["number"], one.get("outcome", "")) for one in told]

    def collector(self) -> tuple[str, str]:
        for one in self.status().get("conditions", []):
            if one["type"] == "CollectorReady":
                return one["status"], one["reason"]
        return "", ""

    def drivers(self) -> list[dict[str, Any]]:
        path = f"{PODS}?labelSelector=app.kubernetes.io/component%3Ddriver"
        return list(self.plane.request("GET", path).body["items"])


def test_a_collector_comes_dies_changes_and_goes(api: ControlPlane) -> None:
    operator = Operator(api)
    operator.apply(manifest({"executors": {"min": 1, "max": 2}, "driver": {"cpu": "100m", "memory": "1Gi"}}))
    operator.until(lambda: operator.collector() == ("True", "Running"))
    [driver] = operator.drivers()
    assert driver["metadata"]["name"] == "flights.by-a.1"
    assert driver["spec"]["serviceAccountName"] == "flights.driver"
    assert api.request("GET", ROLE).status == 200

    # its container has ended, as a kubelet tells it
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    told = {
        "name": "collector",
        "image": "spark:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": ended,
    }
    status = {"phase": "Failed", "containerStatuses": [told], "conditions": []}
    path = f"{PODS}/flights.by-a.1"
    assert api.request("PUT", f"{path}/status", {**driver, "status": status}).status == 200
    operator.until(lambda: operator.attempts() == [(1, "Killed"), (2, "")] and len(operator.drivers()) == 2)

    # somebody deletes the second
    operator.until(lambda: operator.collector() == ("True", "Running"))
    api.request("DELETE", f"{PODS}/flights.by-a.2")
    operator.until(lambda: operator.attempts()[1:] == [(2, "Lost"), (3, "")])
    operator.until(lambda: operator.collector() == ("True", "Running"))

    # no executors any more: no rights any more
    operator.apply(manifest(SMALL))
    operator.until(lambda: operator.attempts()[2:] == [(3, "Replaced"), (4, "")])
    operator.until(
        lambda: operator.collector() == ("True", "Running") and api.request("GET", ROLE).status == 404
    )
    [last] = [pod for pod in operator.drivers() if pod["status"].get("phase") == "Running"]
    assert last["spec"]["serviceAccountName"] == "flights"
    assert not [volume for volume in last["spec"]["volumes"] if "projected" in volume]

    operator.apply(manifest(SMALL, suspend=True))
    operator.until(lambda: operator.collector() == ("True", "Suspended"))
    assert operator.attempts()[-1] == (4, "Stopped")


@pytest.mark.parametrize(
    "key",
    [
        "spark.kubernetes.namespace",
        "spark.kubernetes.container.image",
        "spark.kubernetes.authenticate.driver.serviceAccountName",
        "spark.kubernetes.authenticate.executor.serviceAccountName",
        "spark.kubernetes.authenticate.oauthTokenFile",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.executor.secrets.kafka-user",
        "spark.kubernetes.executor.volumes.hostPath.root.options.path",
        "spark.master",
        "spark.submit.deployMode",
        "spark.jars.packages",
        "spark.files",
    ],
)
def test_settings_of_spark_that_would_choose_more_are_refused(plane: ControlPlane, key: str) -> None:
    crd = ROOT / "crds" / "millrace.dev_consumerpipelines.yaml"
    plane.serve(crd)
    wanted = manifest({"conf": {key: "a"}})
    wanted["metadata"] = {"name": "greedy", "namespace": "default"}
    path = "/apis/millrace.dev/v1alpha1/namespaces/default/consumerpipelines/greedy"

    reply = plane.request("PATCH", f"{path}?dryRun=All", wanted)

    assert reply.status == 422
    assert "Millrace's own" in reply.message
