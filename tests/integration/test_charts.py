"""The charts render what they say, refuse values that are wrong, and an API server takes all of it.

What they render is kept in golden/; UPDATE_GOLDEN=1 writes it anew, and then the difference is to be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.binaries import versions
from cluster.plane import ControlPlane
from helm import CHARTS, NAMES, helm, rendered, template

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "golden"
DIGEST = "sha256:" + "0123456789abcdef" * 4
VALUES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "everything": {
        "fullnameOverride": "streams",
        "extraLabels": {"team": "data"},
        "image": {"repository": "registry.example/millrace/operator", "digest": DIGEST},
        "workerImage": {"repository": "registry.example/millrace/worker", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 2,
        "watch": {"namespace": "flights", "selector": "team in (air, sea),!legacy"},
        "serviceAccount": {"annotations": {"example.com/role": "streams"}},
        "podAnnotations": {"example.com/note": "x"},
        "podLabels": {"example.com/tier": "control"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "priorityClassName": "system-cluster-critical",
        "env": [{"name": "TZ", "value": "UTC"}],
        "networkPolicy": {
            "kafkaPorts": [9093],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "runbooks": "https://docs.example/runbooks"},
            "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Streams"}},
        },
    },
}  # fmt: skip
BAD: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "a name that is none of the values": ({"replica": 2}, "replica"),
    "a name below one that is": ({"image": {"name": "x"}}, "name"),
    "a number as text": ({"replicas": "two"}, "replicas"),
    "fewer than none": ({"replicas": -1}, "replicas"),
    "a digest that is a tag": ({"image": {"digest": "v1"}}, "digest"),
    "a tag with a digest in it": ({"image": {"tag": f"v1@{DIGEST}"}}, "tag"),
    "no image": ({"image": {"repository": ""}}, "repository"),
    "a policy that there is not": ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    "a namespace as a pattern": ({"watch": {"namespace": "team-*"}}, "namespace"),
    "labels that select nothing": ({"watch": {"selector": "team=air;"}}, "selector"),
    "secrets by name alone": ({"imagePullSecrets": ["registry"]}, "imagePullSecrets"),
    "a label that is none": ({"extraLabels": {"team": "data & more"}}, "extraLabels"),
    "a port that needs root": ({"metrics": {"port": 80}}, "port"),
    "no port of brokers": ({"networkPolicy": {"kafkaPorts": []}}, "kafkaPorts"),
    "memory in words": ({"resources": {"limits": {"memory": "much"}}}, "memory"),
    "an interval without a unit": ({"metrics": {"serviceMonitor": {"interval": "30"}}}, "interval"),
    "runbooks nowhere": ({"metrics": {"rules": {"runbooks": ""}}}, "runbooks"),
}


def of_kind(kind: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [tree for tree in rendered("millrace", values) if tree["kind"] == kind]


def operator(values: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's spec."""
    [deployment] = of_kind("Deployment", values)
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("chart", NAMES)
def test_helm_finds_nothing_wrong(chart: str) -> None:
    done = helm("lint", "--strict", "--kube-version", versions()["KUBERNETES"], str(CHARTS / chart))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_it_renders_what_it_did_before(name: str) -> None:
    # labels that change with each version say nothing
    versioned = {"helm.sh/chart", "app.kubernetes.io/version"}
    trees = rendered("millrace", VALUES[name])
    for tree in trees:
        for metadata in (tree["metadata"], tree.get("spec", {}).get("template", {}).get("metadata", {})):
            for label in versioned:
                metadata.get("labels", {}).pop(label, None)
        if tree["kind"] == "ConfigMap":
            tree["data"] = sorted(tree["data"])  # the dashboard is compared elsewhere
    found = yaml.safe_dump_all(trees, width=110)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        file.write_text(found)

    assert found == file.read_text(), "if it should be so: UPDATE_GOLDEN=1, and read the difference"


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_is_wrong_is_refused_by_name(name: str) -> None:
    values, named = BAD[name]

    done = template("millrace", values)

    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert named in done.stderr


def test_a_digest_wins_over_the_tag() -> None:
    image = {"repository": "r/operator", "tag": "v1", "digest": DIGEST}

    assert operator({"image": image})["containers"][0]["image"] == f"r/operator@{DIGEST}"


def test_with_a_namespace_named_nothing_that_has_one_is_allowed_elsewhere() -> None:
    values = {"watch": {"namespace": "flights"}}

    [cluster_wide] = [
        role for role in of_kind("ClusterRole", values) if role["metadata"]["name"] == "ns-r-millrace"
    ]
    of_namespaces = [role for role in of_kind("Role", values) if role["metadata"]["namespace"] == "flights"]

    known = {resource for rule in cluster_wide["rules"] for resource in rule["resources"]}
    assert known == {"nodes", "namespaces"}
    assert {verb for rule in cluster_wide["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert len(of_namespaces) == 1


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_no_role_of_the_operator_has_a_wildcard_or_hands_on_rights(values: Mapping[str, Any]) -> None:
    for role in [*of_kind("ClusterRole", values), *of_kind("Role", values)]:
        for rule in role["rules"]:
            words = {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
            # roles it makes, for drivers with executors (ADR 11): without bind and escalate the API server lets it put only
            # those rights into them that it has itself
            assert not words & {"*", "bind", "escalate", "impersonate", "pods/exec"}, role
            if "secrets" in rule["resources"] and rule["verbs"] != ["get"]:
                # none can be found that no pipeline names; and one is made, beside the operator
                assert rule["verbs"] == ["create"]
                assert role["metadata"]["name"].endswith("-leader")
                assert role["metadata"]["namespace"] == "ns"


def test_one_operator_has_no_budget_which_would_keep_its_node_from_being_drained() -> None:
    assert of_kind("PodDisruptionBudget", {}) == []
    assert len(of_kind("PodDisruptionBudget", {"replicas": 2})) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_the_resource_is_the_generated_one_and_stays_when_the_chart_goes(keep: bool) -> None:
    [crd] = rendered("millrace-crds", {"keep": keep})

    generated = yaml.safe_load((CHARTS.parent / "crds" / "millrace.dev_consumerpipelines.yaml").read_text())
    assert crd["spec"] == generated["spec"]
    assert crd["metadata"].get("annotations") == ({"helm.sh/resource-policy": "keep"} if keep else None)


@pytest.mark.parametrize("name", VALUES)
def test_an_api_server_takes_it_all_under_restricted(plane: ControlPlane, name: str, tmp_path: Path) -> None:
    needed = {"ns": "restricted", "flights": "privileged"}
    for namespace, level in needed.items():
        labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level}
        made = {"metadata": {"name": namespace, "labels": labels}}
        assert plane.request("POST", "/api/v1/namespaces", made).status in (201, 409)
    # kinds of Prometheus' operator are not there
    trees = [
        tree for tree in rendered("millrace", VALUES[name]) if "monitoring.coreos" not in tree["apiVersion"]
    ]
    manifest = tmp_path / "chart.yaml"
    manifest.write_text(yaml.safe_dump_all(trees))

    done = plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(manifest)
    )

    assert done.returncode == 0, done.stderr
    # also for the pods of a Deployment it only warns
    assert "violate" not in done.stderr
    assert len(done.stdout.splitlines()) == len(trees)


def test_the_crds_chart_brings_the_resource_to_an_api_server(plane: ControlPlane, tmp_path: Path) -> None:
    manifest = tmp_path / "crd.yaml"
    manifest.write_text(json.dumps(rendered("millrace-crds", {})[0]))

    done = plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", str(manifest)
    )

    assert done.returncode == 0, done.stderr
