"""Who the workers are to the cluster, how they are named, and who may speak to them."""

from __future__ import annotations

from typing import Final

from millrace_api.tree import Tree
from millrace_operator import names

PORT: Final = 9400
"""Of health, status and metrics in every worker."""


def service_account() -> Tree:
    """An identity without a token: workers hold no Kubernetes credentials."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {},
        "automountServiceAccountToken": False,
    }


def service(pipeline: str) -> Tree:
    """Headless: it gives each worker a name, also before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(names.selector(pipeline)),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def policy(pipeline: str) -> Tree:
    """In: only to the port of metrics. Out: open, for where functions have their effects only their author knows."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {},
        "spec": {
            "podSelector": {"matchLabels": dict(names.selector(pipeline))},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
        },
    }
