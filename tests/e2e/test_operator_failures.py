"""Why a pipeline does not run, on a real cluster: each cause has its own reason in the conditions, harms no neighbour, and
is over when it is mended. What the operator asked of the API server meanwhile is what the chart gives it rights for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer

from cluster import kafka
from cluster.kind import Cluster
from installed_operator import NAMESPACE, Installed, eventually, installed
from millrace.connectivity.confluent import ConfluentCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

Object = dict[str, Any]
CODE = {
    "good.py": "def same(value):\n    return value\n",
    "crash.py": "import os\n\nos._exit(77)\n",
    "stuck.py": "import threading\n\n\ndef same(value):\n    threading.Event().wait()\n",
    "hungry.py": "KEPT = []\n\n\ndef setup():\n    KEPT.append(b'x' * (600 << 20))\n\n\ndef same(value):\n    return value\n",
}


@dataclass
class Case:
    """A pipeline, what is wrong with it, how that is told, and what mends it."""

    condition: str
    reason: str
    spec: Mapping[str, object]
    mended: Mapping[str, object] = field(default_factory=dict)


def stage(function: str) -> Mapping[str, object]:
    return {"stages": [{"name": "same", "map": {"function": function}}]}


def worker(**fields: object) -> Mapping[str, object]:
    limits = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "384Mi"}}
    return {"worker": {"code": {"configMapRef": {"name": "code"}}, "resources": limits, **fields}}


def impossible(**requests: str) -> Mapping[str, object]:
    return worker(resources={"requests": requests})


CASES = {
    "image": Case("WorkersReady", "ImagePullFailed", worker(image="registry.invalid/flights:1"), worker()),
    "function": Case("WorkersReady", "FunctionFailed", stage("good:other"), stage("good:same")),
    "crash": Case("WorkersReady", "CrashLooping", stage("crash:same"), stage("good:same")),
    "memory": Case("WorkersReady", "OutOfMemory", stage("hungry:same"), stage("good:same")),
    "room": Case("WorkersReady", "Unschedulable", impossible(memory="1Ti"), worker()),
    "priority": Case("WorkersReady", "PodsRefused", worker(priorityClassName="no-such")),
    "code": Case("WorkersReady", "CodeMissing", worker(code={"configMapRef": {"name": "no-such"}}), worker()),
    "topic": Case("SourceReady", "TopicMissing", {}),
    "broker": Case(
        "SourceReady", "BrokerUnreachable", {"kafka": {"bootstrapServers": "kafka.nowhere.svc:9092"}}
    ),
    "secret": Case("WorkersReady", "SecretMissing", {}),
    "password": Case("SourceReady", "CredentialsRejected", {}),
}


class Place:
    """A namespace with pipelines."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.mark = uuid.uuid4().hex[:8]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=True).stdout

    def make(self, kind: str, name: str, **content: object) -> None:
        made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    def topic(self, name: str) -> str:
        return f"{self.mark}.{self.namespace}.{name}"

    def apply(self, name: str, spec: Mapping[str, object]) -> None:
        manifest = {
            "apiVersion": "millrace.dev/v1alpha1",
            "kind": "ConsumerPipeline",
            "metadata": {"name": name},
            "spec": {
                "kafka": {"bootstrapServers": kafka.PLAIN},
                "source": {"topic": self.topic(name), "create": {"partitions": 2}},
                "deletionPolicy": "Delete",
                **stage("good:same"),
                **worker(),
                **spec,
            },
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def status(self, name: str) -> Object:
        return dict(json.loads(self.kubectl("get", "cpl", name, "-o", "json")).get("status", {}))

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        for one in self.status(name).get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def runs(self, name: str) -> bool:
        found: Object = json.loads(self.kubectl("get", "cpl", name, "-o", "json"))
        status = found.get("status", {})
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and self.condition(name, "Ready") == ("True", "Running")
            and status.get("readyReplicas") == found["spec"]["replicas"]
        )

    def told(self) -> str:
        return "\n".join(
            self.kubectl(*arguments)
            for arguments in (
                ("get", "pods", "-o", "wide"),
                ("get", "events", "--sort-by=.lastTimestamp"),
                ("get", "cpl", "-o", "yaml"),
            )
        )

    def await_condition(self, name: str, kind: str, reason: str, status: str = "False") -> None:
        eventually(
            lambda: self.condition(name, kind) == (status, reason), f"{name}: {kind} {reason}", self.told
        )

    def await_running(self, name: str) -> None:
        eventually(lambda: self.runs(name), f"{name} runs", self.told)


@pytest.fixture(scope="module")
def begun() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def operator(kube: Cluster, begun: datetime) -> Iterator[Installed]:
    # an installation that is the first: it makes what it needs beside itself
    left = ("lease/millrace", "secret/millrace-seal")
    kube.kubectl("delete", "-n", NAMESPACE, "--ignore-not-found", *left)
    with installed(kube, env={"MILLRACE_DRAIN_DEADLINE": "20"}) as found:
        yield found


@pytest.fixture(scope="module")
def place(kube: Cluster, pods: str, operator: Installed) -> Iterator[Place]:
    """Where all the bad ones are at once, beside a good one."""
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    found = Place(kube, pods)
    found.make("ConfigMap", "code", data=CODE)
    password = {"username": "nobody", "password": "wrong-" + found.mark, "ca.crt": _authority(kube)}
    found.make("Secret", "wrong", stringData=password)
    found.apply("good", {})
    for name, case in CASES.items():
        found.apply(name, {**_of_place(found, name), **case.spec})
    yield found
    for name in ("good", *CASES):
        found.kubectl("delete", "cpl", name, "--wait=false", "--ignore-not-found")
    eventually(lambda: not found.kubectl("get", "cpl", "-o", "name"), "all are gone", found.told)


def _of_place(place: Place, name: str) -> Mapping[str, object]:
    secure = {"bootstrapServers": kafka.SECURE}
    return {
        "topic": {"source": {"topic": place.topic("no-such")}},
        "secret": {"kafka": {**secure, "credentials": {"secretRef": {"name": "no-such"}}}},
        "password": {"kafka": {**secure, "credentials": {"secretRef": {"name": "wrong"}}}},
    }.get(name, {})


def _authority(kube: Cluster) -> str:
    path = 'go-template={{index .data "ca.crt" | base64decode}}'
    return kube.kubectl("get", "secret", "-n", kafka.NAMESPACE, "kafka-alice", "-o", path, check=True).stdout


@pytest.mark.parametrize("name", CASES)
def test_each_cause_has_its_own_reason(place: Place, name: str) -> None:
    case = CASES[name]
    place.await_condition(name, case.condition, case.reason)

    ready = next(one for one in place.status(name)["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", case.reason)
    assert ready["message"]
    assert f"wrong-{place.mark}" not in ready["message"]


def test_the_good_one_beside_them_runs(place: Place) -> None:
    place.await_running("good")


def test_the_columns_of_kubectl_fit_a_terminal(place: Place) -> None:
    lines = place.kubectl("get", "cpl").splitlines()

    assert max(map(len, lines)) <= 120
    assert any(line.split()[:3] == ["image", "False", "ImagePullFailed"] for line in lines)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.mended])
def test_what_is_mended_runs(place: Place, name: str) -> None:
    place.await_condition(name, CASES[name].condition, CASES[name].reason)
    place.apply(name, CASES[name].mended)

    place.await_running(name)


def test_a_stage_that_is_stuck_is_told_and_other_code_takes_it_away(place: Place, kube: Cluster) -> None:
    place.apply("stuck", stage("stuck:same"))
    place.await_running("stuck")
    producer = ConfluentCluster(kafka.outside(kube), client_id="feeds").producer()
    producer.produce(place.topic("stuck"), b"{}", partition=1)
    producer.flush(60.0)
    producer.close()

    place.await_condition("stuck", "Degraded", "StageStuck", "True")
    told = next(one for one in place.status("stuck")["conditions"] if one["type"] == "Degraded")
    assert "stage same is stuck in a call at partition 1, offset 0" in told["message"]
    place.apply("stuck", stage("good:same"))
    place.await_running("stuck")
    eventually(lambda: place.condition("stuck", "Degraded")[0] != "True", "it is over", place.told)
    place.kubectl("delete", "cpl", "stuck", "--timeout=120s")


def test_a_stray_subscriber_is_named_and_does_no_harm(place: Place, kube: Cluster) -> None:
    place.await_running("good")
    stray = Consumer(
        {
            "bootstrap.servers": kafka.outside(kube),
            "group.id": f"{place.namespace}.good",
            "client.id": "a-stray",
            "auto.offset.reset": "earliest",
        }
    )
    stray.subscribe([place.topic("good")])

    def named() -> bool:
        stray.poll(0.2)
        return place.condition("good", "Degraded") == ("True", "StraySubscriber")

    eventually(named, "the stray is told of", place.told)
    told = next(one for one in place.status("good")["conditions"] if one["type"] == "Degraded")
    assert "a-stray" in told["message"]
    stray.close()
    eventually(lambda: place.condition("good", "Degraded") == ("", ""), "it is gone", place.told)


@pytest.fixture
def own_namespace(kube: Cluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:12]}"
    kube.kubectl("create", "namespace", name, check=True)
    yield name
    kube.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found", check=True)


def test_quota_is_a_reason_of_its_own(kube: Cluster, operator: Installed, own_namespace: str) -> None:
    place = Place(kube, own_namespace)
    place.make("ConfigMap", "code", data=CODE)
    place.make("ResourceQuota", "tight", spec={"hard": {"pods": "1"}})
    place.apply("flights", {"replicas": 2})

    place.await_condition("flights", "WorkersReady", "QuotaExceeded")
    eventually(
        lambda: place.condition("flights", "Degraded") == ("True", "QuotaExceeded"), "degraded", place.told
    )
    place.apply("flights", {"replicas": 1})
    place.await_running("flights")
    place.kubectl("delete", "cpl", "flights", "--timeout=120s")


def test_a_namespace_goes_with_its_pipelines(kube: Cluster, operator: Installed, own_namespace: str) -> None:
    place = Place(kube, own_namespace)
    place.make("ConfigMap", "code", data=CODE)
    place.apply("good", {})
    place.apply("bad", {"kafka": {"bootstrapServers": "kafka.nowhere.svc:9092"}})
    place.await_running("good")
    place.await_condition("bad", "SourceReady", "BrokerUnreachable")

    kube.kubectl("delete", "namespace", own_namespace, "--timeout=180s", check=True)


def test_a_broker_that_is_gone_does_not_keep_a_pipeline(
    kube: Cluster, operator: Installed, own_namespace: str
) -> None:
    place = Place(kube, own_namespace)
    place.make("ConfigMap", "code", data=CODE)
    place.apply("flights", {})
    place.await_running("flights")
    place.apply("flights", {"kafka": {"bootstrapServers": "kafka.nowhere.svc:9092"}})
    place.await_condition("flights", "SourceReady", "BrokerUnreachable")

    place.kubectl("delete", "cpl", "flights", "--timeout=180s")

    told = place.kubectl("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}").split()
    assert {"DrainAbandoned", "CleanupAbandoned"} <= set(told)


def test_the_operator_uses_all_the_rights_that_the_chart_gives_it_and_no_others(
    kube: Cluster, operator: Installed, place: Place, begun: datetime
) -> None:
    """The last of this module: it judges all that came before."""
    asked = [event for event in operator.requests() if _moment(event) >= begun]
    used = {right for event in asked for right in _rights(event)}
    # not by the code: a quota, and a namespace that ends, are 403 as well
    refused = [event["requestURI"] for event in asked if event["annotations"][_DECISION] != "allow"]
    rules = [rule for role in _roles(operator) for rule in role["rules"]]
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert refused == []
    assert used <= granted
    assert granted - used <= _NOT_TRIED_HERE


_DECISION = "authorization.k8s.io/decision"
_NOT_TRIED_HERE = {
    # collectors, which test_operator_collector.py has; some are there only to be granted to drivers
    ("", "persistentvolumeclaims", "get"),
    *(("", "pods", verb) for verb in ("get", "create", "deletecollection")),
    *(
        ("rbac.authorization.k8s.io", kind, verb)
        for kind in ("roles", "rolebindings")
        for verb in ("create", "patch", "delete")
    ),
    # pods of a node that is lost
    ("", "pods", "delete"),
    # where the Prometheus operator is
    *(("monitoring.coreos.com", "servicemonitors", verb) for verb in ("watch", "create", "patch", "delete")),
    # where OwnerReferencesPermissionEnforcement is on
    ("millrace.dev", "consumerpipelines/finalizers", "update"),
}


def _moment(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def _rights(event: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb of a request; nothing for one that anybody may make."""
    about = event.get("objectRef", {})
    if "resource" not in about or about["resource"] == "selfsubjectaccessreviews":
        return
    inside = f"/{about['subresource']}" if about.get("subresource") else ""
    what = about.get("apiGroup", ""), about["resource"] + inside
    yield *what, event["verb"]
    if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
        yield *what, "create"  # server-side apply of what was not there


def _roles(operator: Installed) -> Sequence[Object]:
    name = f"{NAMESPACE}-millrace"
    return [operator.get("clusterrole", name), operator.get("role", "millrace-leader")]
