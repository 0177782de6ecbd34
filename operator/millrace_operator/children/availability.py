"""How many workers may be taken away at once, and who reads their metrics."""

from __future__ import annotations

from millrace_api.tree import Tree
from millrace_operator import names


def budget(pipeline: str) -> Tree:
    """A drain of nodes takes one worker at a time; each pauses only its own partitions. A worker that is not healthy
    anyway never keeps a node from being drained.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(names.selector(pipeline))},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def monitor(pipeline: str) -> Tree:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {},
        "spec": {
            "selector": {"matchLabels": dict(names.selector(pipeline))},
            "podTargetLabels": [names.PIPELINE],
            "endpoints": [{"port": "http", "path": "/metrics"}],
        },
    }
