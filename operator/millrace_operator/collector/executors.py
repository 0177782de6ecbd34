"""Where a collector's job runs, in the words of Spark: in the driver's pod alone, or with executors in pods of their own.

All of it is told to the driver as settings on its command line, and as a template for the executors' pods, which fits Pod
Security's `restricted`. Executors speak to the driver by the address of its pod: a name would mean two drivers for a moment,
while one ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from millrace_api import ConsumerPipeline, Driver, Executors
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.objects import amount, mapping

CONTAINER: Final = "executor"
TEMPLATE: Final = "executor.yaml"
OWN_VARIABLES: Final = {"MILLRACE_POD": "metadata.name", "MILLRACE_POD_IP": "status.podIP"}
"""Of the driver, which the kubelet fills in, and where from."""
DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079
_HEAP: Final = Decimal("0.6")
_MEBI: Final = 1 << 20


def local(driver: Driver) -> Mapping[str, str]:
    """All work is done in the driver."""
    return {"spark.master": f"local[{driver.cores}]", "spark.driver.memory": _heap(driver.memory)}


def distributed(
    pipeline: str, namespace: str, image: str, driver: Driver, executors: Executors
) -> Mapping[str, str]:
    """Work is done in executors; what stands as $(...) is filled in by the kubelet."""
    heap, whole = _mebibytes(executors.memory) * _HEAP, _mebibytes(executors.memory)
    return {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.driver.memory": _heap(driver.memory),
        "spark.driver.host": "$(MILLRACE_POD_IP)",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{int(heap)}m",
        "spark.executor.memoryOverhead": f"{int(whole) - int(heap)}m",
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.driver.pod.name": "$(MILLRACE_POD)",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
        "spark.kubernetes.executor.request.cores": executors.cpu or str(executors.cores),
        "spark.kubernetes.executor.podTemplateFile": f"/millrace/manifest/{TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        # the workers' account, which has no token and no rights
        "spark.kubernetes.authenticate.executor.serviceAccountName": pipeline,
        # what it would need rights for beyond pods
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        **_number(executors),
    }


def template(
    pipeline: ConsumerPipeline,
    volumes: list[Tree],
    mounts: list[Tree],
    placement: Mapping[str, object],
    security: Tree,
    *,
    together: bool,
) -> Tree:
    """The pod template. together: on the driver's node, since they can't share the storage otherwise."""
    spec: dict[str, object] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": security,
        "containers": [
            {
                "name": CONTAINER,
                "env": environment(pipeline),
                "securityContext": CONFINED,
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
        **placement,
    }
    if together:
        drivers = {names.PIPELINE: pipeline.metadata.name, names.COMPONENT: names.DRIVER}
        term = {"labelSelector": {"matchLabels": drivers}, "topologyKey": "kubernetes.io/hostname"}
        near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        spec["affinity"] = {**mapping(placement, "affinity"), **near}
    labels = dict(names.labels(pipeline.metadata.name, names.EXECUTOR))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": spec}


CONFINED: Final[Tree] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def environment(pipeline: ConsumerPipeline) -> list[Tree]:
    """Of functions, the same as in the workers."""
    worker = pipeline.spec.worker
    given = worker.env if worker is not None else ()
    return [{"name": one.name, "value": one.value} for one in given if one.name not in OWN_VARIABLES]


def _number(executors: Executors) -> Mapping[str, str]:
    if executors.max is None:
        return {"spark.executor.instances": str(executors.instances)}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(executors.min or 0),
        "spark.dynamicAllocation.maxExecutors": str(executors.max),
    }


def _heap(memory: str) -> str:
    return f"{int(_mebibytes(memory) * _HEAP)}m"


def _mebibytes(memory: str) -> Decimal:
    return (amount(memory) or Decimal(0)) / _MEBI
