"""Fields that mean something on a cluster only; a local run leaves them alone and says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millrace_api.pipeline import ConsumerPipeline
from millrace_api.pods import PodFields

_OF_SPARK: Final = ("image", "driver", "executors")


def cluster_only(pipeline: ConsumerPipeline) -> Sequence[str]:
    """Paths of those that the manifest sets."""
    spec = pipeline.spec
    found = ["spec.suspend"] if spec.suspend else []
    if "deletion_policy" in spec.model_fields_set:
        found.append("spec.deletionPolicy")
    if "node_lost" in spec.model_fields_set:
        found.append("spec.nodeLost")
    if spec.storage is not None:
        found.append("spec.storage")
    for at, stage in enumerate(spec.stages):
        spark = stage.collect.spark if stage.collect is not None else None
        if spark is not None:
            given = [name for name in _OF_SPARK if name in spark.model_fields_set]
            found += [f"spec.stages[{at}].collect.spark.{name}" for name in given]
    if spec.worker is not None:
        found += [
            f"spec.worker.{field.alias}"
            for name, field in PodFields.model_fields.items()
            if name in spec.worker.model_fields_set
        ]
    return found
