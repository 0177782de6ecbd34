"""Who a driver is to the cluster, what it may do there, and who may speak to it and to its executors.

A driver without executors is nobody: it has the workers' account, without a token. One with executors may do to pods of its
namespace what Spark does to executors, and nothing else: no ConfigMaps, Services or claims, which its settings spare it.
Kubernetes can't narrow that to pods of a kind, so code in a driver with executors can do what who may make pods can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.children.network import PORT
from millrace_operator.collector.executors import BLOCKS_PORT, DRIVER_PORT
from millrace_operator.objects import digest

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "watch")
"""What Spark does to its executors' pods."""


def objects(pipeline: str, namespace: str, *, with_executors: bool, monitored: bool) -> Sequence[Tree]:
    found = [_service(pipeline), _policy(pipeline)]
    if monitored:
        found.append(_monitor(pipeline))
    if with_executors:
        found += [_account(pipeline), _role(pipeline), _binding(pipeline, namespace)]
    return found


def _metadata(pipeline: str, name: str = "") -> Tree:
    labels = dict(names.labels(pipeline, names.DRIVER))
    return {"name": name or names.part(pipeline, names.DRIVER), "labels": labels}


def _account(pipeline: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(pipeline),
        "automountServiceAccountToken": False,
    }


def _role(pipeline: str) -> Tree:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(pipeline),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(VERBS)}],
    }


def _binding(pipeline: str, namespace: str) -> Tree:
    name = names.part(pipeline, names.DRIVER)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(pipeline),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _service(pipeline: str) -> Tree:
    """Headless: where metrics are. A Service's name can't have a dot, and must be no pipeline's: hence a hash."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(pipeline, f"{pipeline}-d{digest([pipeline, names.DRIVER])[:8]}"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _selector(pipeline, names.DRIVER),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def _policy(pipeline: str) -> Tree:
    """In: metrics, to the driver; and what driver and executors say to one another. Spark's UI is reached by a forwarded
    port, which no policy is asked about.
    """
    both = [names.DRIVER, names.EXECUTOR]
    own: Tree = {
        "matchLabels": {names.PIPELINE: pipeline},
        "matchExpressions": [{"key": names.COMPONENT, "operator": "In", "values": both}],
    }
    sparks = [{"port": port, "protocol": "TCP"} for port in (DRIVER_PORT, BLOCKS_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(pipeline),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"port": PORT, "protocol": "TCP"}]},
                {"from": [{"podSelector": own}], "ports": sparks},
            ],
        },
    }


def _monitor(pipeline: str) -> Tree:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _metadata(pipeline),
        "spec": {
            "selector": {"matchLabels": _selector(pipeline, names.DRIVER)},
            "podTargetLabels": [names.PIPELINE],
            "endpoints": [{"port": "http", "path": "/metrics"}],
        },
    }


def _selector(pipeline: str, component: str) -> dict[str, str]:
    return {names.PIPELINE: pipeline, names.COMPONENT: component}
