"""The pod of an errand: a worker's pod with another thing to do. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from millrace.cli.kubectl.view import Pipeline
from millrace.cli.offsets.in_pod import Errand
from millrace.errors import ExitCode, MillraceError
from millrace_api.tree import Tree, at, get, items

CONTAINER: Final = "offsets"
DEADLINE: Final = 600
"""Seconds after which it is ended, should nobody be left who waits for it."""

# What of a worker's container says nothing to this one.
_WORKERS_OWN: Final = frozenset({"ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"})
# Functions are not called; where workers stand to each other is no concern of this one's.
_NOT_TAKEN: Final = frozenset({"affinity", "topologySpreadConstraints", "restartPolicy"})
_MOUNTED: Final = ("--manifest=", "--epoch-file=", "--secrets=")


def name_of(pipeline: Pipeline) -> str:
    """Always the same, so that there is one at a time. The dot keeps it apart from the pods of all pipelines' workers."""
    return f"{pipeline.metadata.name}.offsets"


def pod_of(stateful: Tree, pipeline: Pipeline, errand: Errand) -> dict[str, object]:
    """Args:
        stateful: the workers' StatefulSet. All that a worker has to reach Kafka is taken from it: image, mounts, Secret,
            security, the nodes that it may be on, what it asks of them.

    Raises MillraceError if that is not what an operator makes.
    """
    spec = get(at(stateful, ("spec", "template")), "spec")
    worker = next((c for c in items(get(spec, "containers")) if get(c, "name") == "worker"), None)
    given = [one for one in items(get(worker, "args")) if isinstance(one, str)]
    taken = [one for one in given if one.startswith(_MOUNTED)]
    if not isinstance(spec, Mapping) or not isinstance(worker, Mapping) or len(taken) < 2:
        raise MillraceError(
            f"StatefulSet {pipeline.metadata.name} has no worker as Millrace's operator makes it",
            remedy="`kubectl millrace status` says how the pipeline is",
            code=ExitCode.USAGE,
        )
    command = ["offsets", "in-pod", f"--errand={msgspec.json.encode(errand).decode()}", *taken]
    container = {key: value for key, value in worker.items() if key not in _WORKERS_OWN} | {
        "name": CONTAINER,
        "args": [_literal(word) for word in command],
        "env": [one for one in items(get(worker, "env")) if get(one, "name") != "MILLRACE_INDEX"],
        "volumeMounts": [one for one in items(get(worker, "volumeMounts")) if get(one, "name") != "code"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(pipeline),
        "spec": {key: value for key, value in spec.items() if key not in _NOT_TAKEN}
        | {
            "hostname": CONTAINER,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [one for one in items(spec.get("volumes")) if get(one, "name") != "code"],
        },
    }


def _metadata(pipeline: Pipeline) -> Tree:
    name = pipeline.metadata.name
    owner = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "name": name,
        "uid": pipeline.metadata.uid,
    }
    labels = {
        "app.kubernetes.io/name": "millrace",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": CONTAINER,
        "millrace.dev/pipeline": name,
    }
    return {
        "name": name_of(pipeline),
        "namespace": pipeline.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }


def _literal(word: str) -> str:
    """In the arguments of a container `$(NAME)` stands for a variable."""
    return word.replace("$(", "$$(")


def encoded(pod: Mapping[str, object]) -> str:
    return json.dumps(pod)
