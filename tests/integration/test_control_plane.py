"""The control plane that tests are given behaves as a cluster's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.plane import ControlPlane
from millrace.clock import Deadline, SystemClock

pytestmark = pytest.mark.cluster

SECONDS = 240.0  # for what takes one, on a machine with much else to do


def eventually(condition: Callable[[], bool]) -> bool:
    clock = SystemClock()
    deadline = Deadline.after(clock, SECONDS)
    while not condition():
        if deadline.expired():
            return False
        clock.sleep(0.05)
    return True


def config_map(name: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    owners = (
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}]
        if owner
        else []
    )
    return {"metadata": {"name": name, "ownerReferences": owners}}


def stateful_set(replicas: int) -> dict[str, Any]:
    labels = {"app": "workers"}
    container = {"name": "worker", "image": "worker:1"}
    return {
        "metadata": {"name": "workers"},
        "spec": {
            "serviceName": "workers",
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_what_an_object_owns_is_deleted_with_it(plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = plane.request("POST", path, config_map("owner")).body["metadata"]
    assert plane.request("POST", path, config_map("owned", owner)).status == 201

    plane.request("DELETE", f"{path}/owner")

    assert eventually(lambda: plane.request("GET", f"{path}/owned").status == 404)


def test_a_namespace_goes_with_all_that_is_in_it(plane: ControlPlane, namespace: str) -> None:
    plane.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", config_map("one"))

    plane.request("DELETE", f"/api/v1/namespaces/{namespace}")

    assert eventually(lambda: plane.request("GET", f"/api/v1/namespaces/{namespace}").status == 404)


def test_the_audit_log_tells_who_wrote_what(plane: ControlPlane, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert plane.request("POST", accounts, {"metadata": {"name": "writer"}}).status == 201
    plane.kubectl(
        "create",
        "rolebinding",
        "writer",
        "-n",
        namespace,
        "--clusterrole=edit",
        f"--serviceaccount={namespace}:writer",
    )
    mine = plane.kubeconfig_of(namespace, "writer")

    made = plane.kubectl(f"--kubeconfig={mine}", "create", "configmap", "written", "-n", namespace)

    assert made.returncode == 0, made.stderr
    writes = [
        (event["verb"], event["objectRef"]["resource"], event["objectRef"]["name"])
        for event in plane.audited()
        if event["user"].get("username") == f"system:serviceaccount:{namespace}:writer"
        and event["verb"] not in ("get", "list", "watch")
    ]
    assert writes == [("create", "configmaps", "written")]


def test_a_user_without_rights_gets_none(plane: ControlPlane, namespace: str) -> None:
    answer = plane.kubectl("auth", "can-i", "create", "pods", "-n", namespace, "--as=nobody")

    assert answer.stdout.strip() == "no"


def test_an_api_server_that_was_killed_comes_back_with_all_that_it_knew(
    start_plane: Callable[..., ControlPlane],
) -> None:
    plane = start_plane(controllers=False)
    path = "/api/v1/namespaces/default/configmaps"
    assert plane.request("POST", path, config_map("kept")).status == 201

    plane.kill("kube-apiserver")
    with pytest.raises(OSError):
        plane.request("GET", f"{path}/kept")
    plane.revive("kube-apiserver")

    assert plane.request("GET", f"{path}/kept").status == 200


def test_pods_are_claimed_to_run_and_go_when_they_are_deleted(
    plane: ControlPlane, start_plane: Callable[..., ControlPlane]
) -> None:
    other = start_plane(pods=True)  # beside the one that is there
    sets = "/apis/apps/v1/namespaces/default/statefulsets"
    pods = "/api/v1/namespaces/default/pods"
    assert other.request("POST", sets, stateful_set(20)).status == 201

    assert eventually(
        lambda: other.request("GET", f"{sets}/workers").body["status"].get("readyReplicas") == 20
    )
    assert {pod["status"]["phase"] for pod in other.request("GET", pods).body["items"]} == {"Running"}
    assert len({pod["status"]["podIP"] for pod in other.request("GET", pods).body["items"]}) == 20

    other.request("DELETE", f"{sets}/workers")
    assert eventually(lambda: other.request("GET", pods).body["items"] == [])
    assert plane.request("GET", f"{sets}/workers").status == 404
