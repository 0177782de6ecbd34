"""Fields that mean something on a cluster only; a local run leaves them alone and says so."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.pipeline import ConsumerPipeline
from millrace_api.pods import PodFields


def cluster_only(pipeline: ConsumerPipeline) -> Sequence[str]:
    """Paths of those that the manifest sets."""
    spec = pipeline.spec
    found = ["spec.suspend"] if spec.suspend else []
    if "node_lost" in spec.model_fields_set:
        found.append("spec.nodeLost")
    if spec.worker is not None:
        found += [
            f"spec.worker.{field.alias}"
            for name, field in PodFields.model_fields.items()
            if name in spec.worker.model_fields_set
        ]
    return found
