"""The driver's pod: `millrace collector`, one attempt of it, in the image with Spark.

A bare pod that is never restarted: another run is another attempt, with a pod of its own. It has no token of the API server
unless it has executors to make. Everything but number and past failures is the same in all attempts, and is told apart by a
hash: another hash is another collector, and replaces the one that runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millrace_api import ConsumerPipeline, Spark, Worker
from millrace_api.collect import CollectStage
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.children import content
from millrace_operator.children.network import PORT
from millrace_operator.children.stateful_set import USER, placement
from millrace_operator.collector import executors
from millrace_operator.collector.attempts import Attempt, named
from millrace_operator.collector.drivers import CONTAINER
from millrace_operator.objects import digest, entries, text
from millrace_operator.observed import Resource

GRACE: Final = 110
"""Seconds for the batch under way (60), for the JVM to go, and for the program to see to both (`foreground`)."""
_STORAGE: Final = "/millrace/storage"
_NOTES: Final = "_collector"  # no stage has such a name

_NOTHING: Final = Worker()


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a driver is made of. `settings`: the ConfigMap that it mounts. `pod`: its spec, but for the one container.
    `digest`: of everything.
    """

    pipeline: ConsumerPipeline
    stage: str
    settings: Tree
    pod: Tree
    container: Tree
    digest: str


def plan(
    resource: Resource,
    pipeline: ConsumerPipeline,
    *,
    image: str,
    code: str | None,
    credentials: str,
    claim: str,
    shared: bool,
) -> Plan:
    """code: name of the ConfigMap with our copy. credentials: hash of the Secret's content. shared: pods on several nodes
    may have the storage at once.
    """
    stage, collect = collect_stage(pipeline)
    spark = collect.spark or Spark()
    worker = pipeline.spec.worker or _NOTHING
    volumes, mounts = _volumes(pipeline, code, claim)
    security: Tree = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    settings = {content.MANIFEST: content.for_collector(resource, pipeline)}
    conf = executors.local(spark.driver)
    if spark.executors is not None:
        namespace = resource.namespace
        conf = executors.distributed(resource.name, namespace, image, spark.driver, spark.executors)
        theirs = executors.template(
            pipeline, volumes, mounts, placement(worker), security, together=not shared
        )
        settings[executors.TEMPLATE] = json.dumps(theirs, indent=1, sort_keys=True)
    tree = content.immutable(names.part(resource.name, "collector"), settings)
    volumes = [{"name": "manifest", "configMap": {"name": text(tree, "metadata", "name")}}, *volumes]
    mounts = [{"name": "manifest", "mountPath": "/millrace/manifest", "readOnly": True}, *mounts]
    pod: Tree = {
        "serviceAccountName": names.part(resource.name, names.DRIVER) if spark.executors else resource.name,
        "automountServiceAccountToken": spark.executors is not None,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        # the pod's own name has dots
        "hostname": names.DRIVER,
        "securityContext": security,
        "volumes": volumes,
        **placement(worker),
    }
    container = _container(pipeline, stage, collect, spark, image, conf, mounts, with_code=code is not None)
    return Plan(pipeline, stage, tree, pod, container, digest([pod, container, credentials]))


def pod(resource: Resource, made: Plan, attempt: Attempt, failures: int, owner: Tree) -> Tree:
    """The driver's pod of an attempt."""
    container = made.container
    counted = [f"--attempt={attempt.number}", *([f"--restarts={failures}"] if failures else [])]
    labels = {**names.labels(resource.name, names.DRIVER), names.ATTEMPT: str(attempt.number)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": named(resource.name, made.stage, attempt.number),
            "namespace": resource.namespace,
            "labels": labels,
            "annotations": {names.APPLIED: made.digest},
            "ownerReferences": [owner],
        },
        "spec": {
            **made.pod,
            "containers": [{**container, "args": [*entries(container, "args"), *counted]}],
        },
    }


def collect_stage(pipeline: ConsumerPipeline) -> tuple[str, CollectStage]:
    """Name and content of the pipeline's collect stage, of which there is one."""
    return next((stage.name, stage.collect) for stage in pipeline.spec.stages if stage.collect is not None)


def _container(
    pipeline: ConsumerPipeline,
    stage: str,
    collect: CollectStage,
    spark: Spark,
    image: str,
    conf: Mapping[str, str],
    mounts: list[Tree],
    *,
    with_code: bool,
) -> Tree:
    arguments = [
        "collector",
        f"--manifest=/millrace/manifest/{content.MANIFEST}",
        f"--stage={stage}",
        f"--storage={_STORAGE}",
        f"--notes={_STORAGE}/{pipeline.metadata.name}/{_NOTES}",
        f"--http=:{PORT}",
        "--spark-ui",
    ]
    arguments += ["--code=/millrace/code"] if with_code else []
    arguments += ["--secrets=/millrace/secrets"] if pipeline.spec.kafka.credentials is not None else []
    arguments += ["--pending"] if collect.trigger.on_lag is not None else []
    arguments += [f"--conf={key}={value}" for key, value in conf.items()]
    resources = {
        "requests": {"cpu": spark.driver.cpu or str(spark.driver.cores), "memory": spark.driver.memory},
        "limits": {"memory": spark.driver.memory},
    }
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["millrace"],
        "args": arguments,
        "env": [
            *(
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in executors.OWN_VARIABLES.items()
            ),
            *executors.environment(pipeline),
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": resources,
        "securityContext": executors.CONFINED,
        "volumeMounts": mounts,
        # a session takes its time to come up, on a node with little to spare most of all
        "startupProbe": _probe("/livez", period=2, failures=150),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=3),
        # the last line of its log is why it ended
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _volumes(pipeline: ConsumerPipeline, code: str | None, claim: str) -> tuple[list[Tree], list[Tree]]:
    """Volumes of driver and executors, and where they are mounted: in both at the same places."""
    volumes: list[Tree] = [
        {"name": "storage", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "tmp", "emptyDir": {}},
    ]
    mounts: list[Tree] = [
        {"name": "storage", "mountPath": _STORAGE},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    sources: dict[str, Tree] = {}
    if code is not None:
        sources["code"] = {"configMap": {"name": code}}
    if pipeline.spec.kafka.credentials is not None:
        secret = pipeline.spec.kafka.credentials.secret_ref.name
        sources["secrets"] = {"secret": {"secretName": secret, "defaultMode": 0o440}}
    volumes += [{"name": name, **source} for name, source in sources.items()]
    mounts += [{"name": name, "mountPath": f"/millrace/{name}", "readOnly": True} for name in sources]
    return volumes, mounts


def _probe(path: str, *, period: int, failures: int) -> Tree:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
