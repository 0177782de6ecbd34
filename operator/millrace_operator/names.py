"""Names, labels and annotations of everything that the operator makes: one place, since they can't be changed later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millrace_api.pipeline import GROUP

FIELD_MANAGER: Final = "millrace"
FINALIZER: Final = f"{GROUP}/drain"

PIPELINE: Final = f"{GROUP}/pipeline"  # label: name of the pipeline
APPLIED: Final = f"{GROUP}/applied"  # annotation: hash of what was applied last
EPOCH: Final = f"{GROUP}/epoch"  # annotation of a pod: the epoch that it was told of
CREDENTIALS: Final = f"{GROUP}/credentials"  # annotation of the pod template: mark of the Secret (seal)
ATTEMPT: Final = f"{GROUP}/attempt"  # label of a driver's pod: number of the attempt

# what a pod is, in the label `component`
WORKER: Final = "worker"
DRIVER: Final = "driver"
EXECUTOR: Final = "executor"

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
OURS: Final = {MANAGED_BY: "millrace"}


def labels(pipeline: str, component: str = WORKER) -> Mapping[str, str]:
    """Of every child."""
    return {
        "app.kubernetes.io/name": "millrace",
        INSTANCE: pipeline,
        COMPONENT: component,
        MANAGED_BY: "millrace",
        PIPELINE: pipeline,
    }


def selector(pipeline: str) -> Mapping[str, str]:
    """What selects the workers' pods. A StatefulSet's selector can never be changed."""
    return {PIPELINE: pipeline, COMPONENT: WORKER}


def selector_text(pipeline: str) -> str:
    return ",".join(f"{key}={value}" for key, value in selector(pipeline).items())


def epoch_map(pipeline: str) -> str:
    return f"{pipeline}-epoch"


def part(pipeline: str, component: str) -> str:
    """Name of an object of a part of the pipeline. The dot keeps it apart from all pipelines' own."""
    return f"{pipeline}.{component}"
