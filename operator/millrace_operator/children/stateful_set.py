"""The StatefulSet: a worker's index is its pod's ordinal.

Its pods fit Pod Security's `restricted`. They are updated one by one (RollingUpdate), from the last to the first, each
draining before it ends; they come and go all at once when their number changes (Parallel), since the protocol and not
the order of pods says who owns what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from millrace_api import Affinity, Amounts, ConsumerPipeline, NodeRule, Worker
from millrace_api.pipeline import RESTARTED
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.children.content import MANIFEST
from millrace_operator.children.network import PORT

CONTAINER: Final = "worker"
USER: Final = 65532
GRACE: Final = 60
"""Seconds that a worker has to drain (30), to commit (10) and to end; then it is killed, and nothing is lost."""

_NOTHING: Final = Worker()


def stateful_set(
    pipeline: ConsumerPipeline,
    image: str,
    *,
    replicas: int,
    manifest: str,
    code: str | None,
    credentials: str,
) -> Tree:
    """`manifest`, `code`: names of ConfigMaps. `credentials`: mark of the Secret: another one rolls."""
    name, worker = pipeline.metadata.name, pipeline.spec.worker or _NOTHING
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": dict(names.selector(name))},
            "template": {
                "metadata": {
                    "labels": {**worker.labels, **names.labels(name)},
                    **_annotations(pipeline, worker, credentials),
                },
                "spec": _pod(pipeline, image, manifest, code),
            },
        },
    }


def _annotations(
    pipeline: ConsumerPipeline, worker: Worker, credentials: str
) -> Mapping[str, Mapping[str, str]]:
    """The author's, and what rolls the workers although nothing else of them has changed."""
    restarted = pipeline.metadata.annotations.get(RESTARTED, "")
    given = {names.CREDENTIALS: credentials, RESTARTED: restarted}
    annotations = {**worker.annotations, **{key: value for key, value in given.items() if value}}
    return {"annotations": annotations} if annotations else {}


def _pod(pipeline: ConsumerPipeline, image: str, manifest: str, code: str | None) -> Tree:
    worker = pipeline.spec.worker or _NOTHING
    volumes, mounts = _volumes(pipeline, manifest, code)
    pod: dict[str, object] = {
        "serviceAccountName": pipeline.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            _container(pipeline, worker, worker.image or image, mounts, with_code=code is not None)
        ],
        "volumes": volumes,
    }
    return {**pod, **placement(worker), **_spread(pipeline.metadata.name, worker)}


def placement(worker: Worker) -> Mapping[str, object]:
    """What decides on which nodes a pod runs, and how its images get there: of a collector's pods, too."""
    found: dict[str, object] = {}
    if worker.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": secret.name} for secret in worker.image_pull_secrets]
    if worker.node_selector:
        found["nodeSelector"] = dict(worker.node_selector)
    if worker.tolerations:
        found["tolerations"] = [
            one.model_dump(by_alias=True, exclude_none=True) for one in worker.tolerations
        ]
    if worker.priority_class_name:
        found["priorityClassName"] = worker.priority_class_name
    if worker.affinity is not None and (nodes := _node_affinity(worker.affinity)):
        found["affinity"] = {"nodeAffinity": nodes}
    return found


def _node_affinity(affinity: Affinity) -> Mapping[str, object]:
    found: dict[str, object] = {}
    if affinity.required:
        term = {"matchExpressions": [_expression(rule) for rule in affinity.required]}
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    if affinity.preferred:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": rule.weight, "preference": {"matchExpressions": [_expression(rule)]}}
            for rule in affinity.preferred
        ]
    return found


def _expression(rule: NodeRule) -> Tree:
    values = {"values": list(rule.values)} if rule.values else {}
    return {"key": rule.key, "operator": rule.operator, **values}


def _spread(pipeline: str, worker: Worker) -> Mapping[str, object]:
    """Of the workers among themselves."""
    if not worker.topology_spread:
        return {}
    constraints = [
        {
            "topologyKey": one.topology_key,
            "maxSkew": one.max_skew,
            "whenUnsatisfiable": one.when_unsatisfiable,
            "labelSelector": {"matchLabels": dict(names.selector(pipeline))},
        }
        for one in worker.topology_spread
    ]
    return {"topologySpreadConstraints": constraints}


def _container(
    pipeline: ConsumerPipeline, worker: Worker, image: str, mounts: Sequence[Tree], *, with_code: bool
) -> Tree:
    arguments = [
        "worker",
        f"--manifest=/millrace/manifest/{MANIFEST}",
        "--epoch-file=/millrace/epoch/epoch.json",
        "--index=$(MILLRACE_INDEX)",
        f"--http=:{PORT}",
    ]
    arguments += ["--code=/millrace/code"] if with_code else []
    arguments += ["--secrets=/millrace/secrets"] if pipeline.spec.kafka.credentials is not None else []
    ordinal = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    container: dict[str, object] = {
        "name": CONTAINER,
        "image": image,
        "command": ["millrace"],
        "args": arguments,
        "env": [
            {"name": "MILLRACE_INDEX", "valueFrom": ordinal},
            *({"name": variable.name, "value": variable.value} for variable in worker.env),
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        # functions may take long to import; a worker that waits for the broker is alive
        "startupProbe": _probe("/livez", period=2, failures=150),
        "livenessProbe": _probe("/livez", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        # the last line of a worker's log is why it ended
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    asked = worker.resources
    given = {"requests": asked.requests, "limits": asked.limits} if asked is not None else {}
    resources = {kind: amounts for kind, some in given.items() if (amounts := _amounts(some))}
    if resources:
        container["resources"] = resources
    return container


def _volumes(
    pipeline: ConsumerPipeline, manifest: str, code: str | None
) -> tuple[Sequence[Tree], Sequence[Tree]]:
    """Volumes and where they are mounted."""
    name = pipeline.metadata.name
    sources: dict[str, Tree] = {
        "manifest": {"configMap": {"name": manifest}},
        "epoch": {"configMap": {"name": names.epoch_map(name)}},
    }
    if code is not None:
        sources["code"] = {"configMap": {"name": code}}
    if pipeline.spec.kafka.credentials is not None:
        secret = pipeline.spec.kafka.credentials.secret_ref.name
        sources["secrets"] = {"secret": {"secretName": secret, "defaultMode": 0o440}}
    volumes: list[Tree] = [{"name": volume, **source} for volume, source in sources.items()]
    mounts: list[Tree] = [
        {"name": volume, "mountPath": f"/millrace/{volume}", "readOnly": True} for volume in sources
    ]
    return [*volumes, {"name": "tmp", "emptyDir": {}}], [*mounts, {"name": "tmp", "mountPath": "/tmp"}]


def _amounts(given: Amounts | None) -> Mapping[str, str]:
    if given is None:
        return {}
    found = {"cpu": given.cpu, "memory": given.memory, "ephemeral-storage": given.ephemeral_storage}
    return {resource: amount for resource, amount in found.items() if amount is not None}


def _probe(path: str, *, period: int, failures: int) -> Tree:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
