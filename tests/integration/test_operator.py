"""The operator as a process, from apply to delete (see `operator_process` for what is real and what is not)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from cluster.plane import ControlPlane
from cluster_claim import make_claim
from millrace.local.broker.embedded import EmbeddedBroker
from operator_process import (
    CLOCK,
    EPOCH,
    NAMESPACE,
    PIPELINE,
    PODS,
    ROOT,
    STATEFUL,
    Operator,
    manifest,
    prepare,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/flights.driver"
DRIVERS = f"{PODS}?labelSelector=app.kubernetes.io/component%3Ddriver"
SMALL = {"driver": {"memory": "1Gi"}}


@pytest.fixture
def operator(
    start_plane: Callable[..., ControlPlane], kafka: EmbeddedBroker, tmp_path: Path
) -> Iterator[Operator]:
    plane = start_plane(pods=True)
    prepare(plane, kafka)
    found = Operator(plane, kafka, tmp_path)
    yield found
    found.close()


def test_a_pipeline_from_apply_to_delete(operator: Operator, kafka: EmbeddedBroker) -> None:
    operator.start()
    assert operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka)).status in (200, 201)
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    status = operator.get(PIPELINE)["status"]
    assert (status["epoch"], status["partitions"], status["readyReplicas"]) == (1, 12, 3)
    assert [worker["index"] for worker in status["workers"]] == [0, 1, 2]

    # growing, shrinking by the scale subresource
    scale = {"metadata": {"name": "flights", "namespace": NAMESPACE}, "spec": {"replicas": 5}}
    assert operator.plane.request("PUT", f"{PIPELINE}/scale", scale).status == 200
    operator.eventually(lambda: _settled(operator, 5))
    scale["spec"] = {"replicas": 2}
    operator.plane.request("PUT", f"{PIPELINE}/scale", scale)
    operator.eventually(lambda: _settled(operator, 2))
    assert operator.get(STATEFUL)["spec"]["replicas"] == 2

    # a new start over an unchanged cluster writes nothing
    _come_to_rest(operator)
    assert operator.stop() == 0
    before, told = len(_writes(operator.plane)), operator.get(PIPELINE)["status"]
    assert before > 10
    operator.start()
    operator.eventually(lambda: operator.log().count('"leading"') == 2)
    CLOCK.sleep(8)
    assert operator.get(PIPELINE)["status"] == told
    assert _writes(operator.plane)[before:] == []

    # somebody scales the StatefulSet: it is put back
    operator.plane.request("PATCH", f"{STATEFUL}?force=true", _scaled(7))
    operator.eventually(lambda: operator.get(STATEFUL)["spec"]["replicas"] == 2)

    # suspended, after a crash of the operator
    operator.stop(kill=True)
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka, suspend=True))
    operator.start()
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Suspended"))
    assert operator.get(PODS)["items"] == []
    assert [worker["index"] for worker in operator.get(PIPELINE)["status"]["workers"]] == [-1]

    # deleted: children gone, nothing left behind
    assert operator.plane.request("DELETE", PIPELINE).status == 200
    operator.eventually(lambda: operator.plane.request("GET", PIPELINE).status == 404)
    operator.eventually(lambda: operator.plane.request("GET", EPOCH).status == 404)
    assert operator.plane.request("GET", STATEFUL).status == 404
    assert operator.stop() == 0


def test_a_leader_that_stood_still_ends_and_has_done_no_harm(
    operator: Operator, kafka: EmbeddedBroker
) -> None:
    operator.start()
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka, deletionPolicy="Delete"))
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    former = operator.process
    assert former is not None
    other = operator.process = operator.start_another("other.log")
    try:
        former.send_signal(signal.SIGSTOP)
        operator.eventually(lambda: '"leading"' in operator.log("other.log"))
        scale = {"metadata": {"name": "flights", "namespace": NAMESPACE}, "spec": {"replicas": 5}}
        operator.plane.request("PUT", f"{PIPELINE}/scale", scale)
        operator.eventually(lambda: _settled(operator, 5))

        former.send_signal(signal.SIGCONT)
        assert former.wait(120) == 1
        assert "another operator holds the lease" in operator.log()
        operator.eventually(lambda: _settled(operator, 5))
        assert len(operator.get(PODS)["items"]) == 5
        assert other.poll() is None

        operator.plane.request("DELETE", PIPELINE)
        operator.eventually(lambda: operator.plane.request("GET", PIPELINE).status == 404)
        groups = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_consumer_groups().result(120).valid
        assert f"{NAMESPACE}.flights.claims" not in {group.group_id for group in groups}
    finally:
        if former.poll() is None:
            former.kill()
            former.wait(120)


def test_a_bad_pipeline_says_why_and_harms_none(operator: Operator, kafka: EmbeddedBroker) -> None:
    operator.start()
    bad = manifest(kafka)
    bad["metadata"]["name"] = "bad"
    bad["spec"]["kafka"] = {"bootstrapServers": "127.0.0.1:1"}
    path = PIPELINE.replace("flights", "bad")
    assert operator.plane.request("PATCH", f"{path}?force=true", bad).status == 201
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", manifest(kafka))

    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    operator.eventually(lambda: operator.condition("SourceReady", path) == ("False", "BrokerUnreachable"))


def test_operators_side_by_side_each_have_the_pipelines_of_their_labels(
    operator: Operator, kafka: EmbeddedBroker
) -> None:
    operator.start("--selector", "team in (air, space)")
    other = operator.start_another("other.log", "--selector", "team=sea", "--lease", "millrace-sea")
    try:
        ours = manifest(kafka)
        ours["metadata"]["labels"] = {"team": "air"}
        nobodys = manifest(kafka)
        nobodys["metadata"]["name"] = "nobodys"
        assert operator.plane.request("PATCH", PIPELINE.replace("flights", "nobodys"), nobodys).status == 201
        assert operator.plane.request("PATCH", f"{PIPELINE}?force=true", ours).status == 201
        operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
        operator.eventually(lambda: '"leading"' in operator.log("other.log"))

        # it is given to the other one, while neither is stopped
        ours["metadata"]["labels"] = {"team": "sea"}
        ours["spec"]["replicas"] = 2
        operator.plane.request("PATCH", f"{PIPELINE}?force=true", ours)
        operator.eventually(lambda: _settled(operator, 2))
        assert operator.stop() == 0
        ours["spec"]["replicas"] = 4
        operator.plane.request("PATCH", f"{PIPELINE}?force=true", ours)
        operator.eventually(lambda: _settled(operator, 4))
        assert "status" not in operator.get(PIPELINE.replace("flights", "nobodys"))
    finally:
        other.kill()
        other.wait(120)


def test_a_collector_is_one_attempt_at_a_time(operator: Operator, kafka: EmbeddedBroker) -> None:
    operator.start()
    whole = collecting(kafka, {"executors": {"instances": 2}})
    assert operator.plane.request("PATCH", f"{PIPELINE}?force=true", whole).status in (200, 201)
    operator.eventually(lambda: operator.condition("CollectorReady") == ("False", "StorageMissing"))
    make_claim(operator.plane, NAMESPACE, "flights")
    operator.eventually(lambda: _attempts(operator) == [(1, "")])
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Running"))
    [driver] = operator.get(DRIVERS)["items"]
    assert driver["metadata"]["name"] == "flights.by-carrier.1"

    # killed, and the operator as soon as it may have seen it
    _end(operator, driver, 137)
    operator.stop(kill=True)
    operator.start()
    operator.eventually(lambda: _attempts(operator) == [(1, "Killed"), (2, "")])
    operator.eventually(lambda: _alive(operator) == ["flights.by-carrier.2"])

    # deleted by somebody
    operator.eventually(lambda: operator.condition("CollectorReady") == ("True", "Running"))
    assert operator.plane.request("DELETE", f"{PODS}/flights.by-carrier.2").status in (200, 202)
    operator.eventually(lambda: _attempts(operator)[1:] == [(2, "Lost"), (3, "")])
    operator.eventually(lambda: operator.condition("CollectorReady") == ("True", "Running"))

    # nothing to do, nothing written
    _come_to_rest(operator)
    assert operator.stop() == 0
    before = len(_writes(operator.plane))
    operator.start()
    operator.eventually(lambda: operator.log().count('"leading"') == 3)
    CLOCK.sleep(5)
    assert _writes(operator.plane)[before:] == []

    # another query; rights go with the executors that they were for
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", collecting(kafka, SMALL))
    operator.eventually(lambda: _attempts(operator)[-2:] == [(3, "Replaced"), (4, "")])
    operator.eventually(lambda: operator.plane.request("GET", ROLE).status == 404)
    operator.plane.request("PATCH", f"{PIPELINE}?force=true", collecting(kafka, SMALL, suspend=True))
    operator.eventually(lambda: operator.condition("Ready") == ("True", "Suspended"))
    assert _alive(operator) == []

    assert operator.plane.request("DELETE", PIPELINE).status == 200
    operator.eventually(lambda: operator.plane.request("GET", PIPELINE).status == 404)
    assert operator.get(PODS)["items"] == []
    assert operator.plane.request("GET", f"{CLAIMS}/flights").status == 200


def collecting(broker: EmbeddedBroker, spark: Mapping[str, object], **spec: object) -> dict[str, Any]:
    """The flights with their collect stage."""
    found = manifest(broker, **spec)
    example = yaml.safe_load((ROOT / "examples" / "flights" / "pipeline.yaml").read_text())
    [collect] = [stage for stage in example["spec"]["stages"] if "collect" in stage]
    collect["collect"]["spark"] = dict(spark)
    found["spec"]["stages"].append(collect)
    found["spec"]["storage"] = {"persistentVolumeClaim": {"claimName": "flights"}}
    return found


def _attempts(operator: Operator) -> list[tuple[int, str]]:
    told = operator.get(PIPELINE).get("status", {}).get("collector", {}).get("attempts", [])
    return [(one["number"], one.get("outcome", "")) for one in told]


def _alive(operator: Operator) -> list[str]:
    pods = operator.get(DRIVERS)["items"]
    over = ("Succeeded", "Failed")
    return [pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") not in over]


def _end(operator: Operator, driver: Mapping[str, Any], code: int) -> None:
    """Its container has ended, as a kubelet tells it."""
    ended = {"terminated": {"exitCode": code, "reason": "Error"}}
    told = [
        {
            "name": "collector",
            "image": "spark:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": ended,
        }
    ]
    status = {"phase": "Failed", "containerStatuses": told, "conditions": []}
    path = f"{PODS}/{driver['metadata']['name']}/status"
    assert operator.plane.request("PUT", path, {**driver, "status": status}).status == 200


def _scaled(replicas: int) -> Mapping[str, object]:
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "flights", "namespace": NAMESPACE}, "spec": {"replicas": replicas},
    }  # fmt: skip


def _settled(operator: Operator, replicas: int) -> bool:
    status = operator.get(PIPELINE).get("status", {})
    return (
        operator.condition("Ready") == ("True", "Running")
        and status.get("readyReplicas") == replicas
        and len(status.get("workers", ())) == replicas
    )


def _come_to_rest(operator: Operator, seconds: float = 3.0) -> None:
    """Until nothing has been written for so long."""
    last, since = -1, CLOCK.monotonic()

    def at_rest() -> bool:
        nonlocal last, since
        count = len(_writes(operator.plane))
        if count != last:
            last, since = count, CLOCK.monotonic()
        return CLOCK.monotonic() - since >= seconds

    operator.eventually(at_rest)


def _writes(plane: ControlPlane) -> list[str]:
    """What the operator wrote, less its lease and events. Nobody else here speaks through aiohttp."""
    verbs = {"create", "update", "patch", "delete", "deletecollection"}
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in plane.audited()
        if event["verb"] in verbs
        and "aiohttp" in event.get("userAgent", "")
        and event.get("objectRef", {}).get("resource") not in ("leases", "events")
    ]
