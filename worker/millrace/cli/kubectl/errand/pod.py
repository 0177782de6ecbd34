"""The pod of an errand: a worker's pod with another thing to do. Pure."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from millrace.cli.kubectl.view import Pipeline
from millrace.errors import ExitCode, MillraceError
from millrace_api.tree import Tree, at, get, items

CONTAINER: Final = "errand"
TOKEN: Final = "millrace.dev/errand"
SECRETS: Final = "--secrets="

# What of a worker's container says nothing to this one.
_WORKERS_OWN: Final = frozenset({"ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"})
# Where workers stand to each other is no concern of this one's.
_NOT_TAKEN: Final = frozenset({"topologySpreadConstraints", "restartPolicy"})
_AFTER: Final = 60  # seconds that a pod is left alone with after who waits for it should have taken it away
_LEAST: Final = {"requests": {"cpu": "100m", "memory": "128Mi"}}  # where workers ask for nothing


@dataclass(frozen=True, slots=True)
class Errand:
    """What a pod is sent for.

    Attributes:
        command: of `millrace`, which has a subcommand `in-pod`.
        alone: no other one of this command is at work on the pipeline meanwhile.
        request: for the subcommand, in JSON.
        mounted: options that a worker has and the subcommand wants as well, such as `--manifest=`.
        seconds: after which the pod is ended, should nobody be left who waits for it.
        token: of this errand only.
    """

    command: str
    alone: bool
    request: str
    mounted: tuple[str, ...]
    seconds: int
    token: str

    @classmethod
    def of(
        cls, command: str, request: msgspec.Struct, mounted: Sequence[str], *, alone: bool, patience: float
    ) -> Errand:
        """`patience`: seconds that the pod is waited for."""
        encoded = msgspec.json.encode(request).decode()
        return cls(command, alone, encoded, tuple(mounted), int(patience) + _AFTER, secrets.token_hex(6))


def name_of(pipeline: Pipeline, errand: Errand) -> str:
    """Of those that are alone always the same. The dot keeps it apart from the pods of all pipelines' workers."""
    name = f"{pipeline.metadata.name}.{errand.command}"
    return name if errand.alone else f"{name}-{errand.token}"


def pod_of(stateful: Tree, pipeline: Pipeline, errand: Errand) -> dict[str, object]:
    """Args:
        stateful: the workers' StatefulSet. All that a worker has to reach Kafka is taken from it: image, mounts, Secret,
            security, the nodes that it may be on, what it asks of them.

    Raises MillraceError if that is not what an operator makes.
    """
    spec = get(at(stateful, ("spec", "template")), "spec")
    worker = next((c for c in items(get(spec, "containers")) if get(c, "name") == "worker"), None)
    given = [one for one in items(get(worker, "args")) if isinstance(one, str)]
    taken = [one for one in given if one.startswith(errand.mounted)]
    wanted = [option for option in errand.mounted if option != SECRETS]
    whole = all(any(one.startswith(option) for one in taken) for option in wanted)
    if not isinstance(spec, Mapping) or not isinstance(worker, Mapping) or not whole:
        raise MillraceError(
            f"StatefulSet {pipeline.metadata.name} has no worker as Millrace's operator makes it",
            remedy="`kubectl millrace status` says how the pipeline is",
            code=ExitCode.USAGE,
        )
    dropped = _mounted_at(worker, [one.partition("=")[2] for one in given if one not in taken])
    command = [errand.command, "in-pod", f"--errand={errand.request}", *taken]
    container = {"resources": _LEAST} | {k: v for k, v in worker.items() if k not in _WORKERS_OWN}
    container |= {
        "name": CONTAINER,
        "args": [_literal(word) for word in command],
        "env": [one for one in items(get(worker, "env")) if get(one, "name") != "MILLRACE_INDEX"],
        "volumeMounts": [
            one for one in items(get(worker, "volumeMounts")) if get(one, "name") not in dropped
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(pipeline, errand),
        "spec": {key: value for key, value in spec.items() if key not in _NOT_TAKEN}
        | {
            "hostname": errand.command,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": errand.seconds,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [one for one in items(spec.get("volumes")) if get(one, "name") not in dropped],
        },
    }


def encoded(pod: Mapping[str, object]) -> str:
    return json.dumps(pod)


def _mounted_at(worker: Tree, paths: Sequence[str]) -> set[object]:
    """Names of the volumes that these paths are in."""
    return {
        get(mount, "name")
        for mount in items(get(worker, "volumeMounts"))
        for path in paths
        if f"{path}/".startswith(f"{get(mount, 'mountPath')}/")
    }


def _metadata(pipeline: Pipeline, errand: Errand) -> Tree:
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
        "app.kubernetes.io/component": errand.command,
        "millrace.dev/pipeline": name,
        TOKEN: errand.token,
    }
    return {
        "name": name_of(pipeline, errand),
        "namespace": pipeline.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }


def _literal(word: str) -> str:
    """In the arguments of a container `$(NAME)` stands for a variable."""
    return word.replace("$(", "$$(")
