"""The ConfigMaps that workers read: the manifest as they need it, and an own copy of the user's code.

Both are named by a hash of what they hold and can't be changed, so that a worker which is started again in the middle of
a change gets the manifest and the code of its own version, not a mixture; and a new version is a new pod template, which
is what rolls the workers. The user's own ConfigMap is only read: nobody's edit of it reaches a running worker by halves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from millrace_api import ConsumerPipeline
from millrace_api.tree import Tree
from millrace_operator.objects import digest, entries, mapping
from millrace_operator.observed import Resource

MANIFEST: Final = "pipeline.yaml"
# What the operator does with these, it does without the workers: a change of them restarts none.
_OPERATORS_OWN: Final = frozenset({"replicas", "suspend", "deletionPolicy", "nodeLost"})
_OF_SPARKS_PODS: Final = frozenset({"image", "driver", "executors"})
_OF_THE_COLLECTOR: Final = frozenset({"spark", "trigger"})  # in its stage
_OF_PODS: Final = frozenset(
    {
        *(
            "image",
            "imagePullSecrets",
            "resources",
            "nodeSelector",
            "tolerations",
            "priorityClassName",
            "env",
        ),
        *("labels", "annotations", "affinity", "topologySpread"),
    }
)


def manifest(resource: Resource, pipeline: ConsumerPipeline) -> Tree:
    """As the user wrote it, less what does not concern a worker: so that a field which gets a default in a later
    version of Millrace rolls nobody.
    """
    spec = _spec(resource)
    spec.pop("storage", None)
    spec["stages"] = [_for_workers(stage) for stage in entries(spec, "stages")]
    return immutable(f"{resource.name}-manifest", {MANIFEST: _written(resource, pipeline, spec)})


def for_collector(resource: Resource, pipeline: ConsumerPipeline) -> str:
    """The text of a collector's manifest. Sizes of its pods are not in it: they are told in other ways."""
    spec = _spec(resource)
    spec["stages"] = [_for_collector(stage) for stage in entries(spec, "stages")]
    return _written(resource, pipeline, spec)


def code(pipeline: ConsumerPipeline, data: Mapping[str, str]) -> Tree:
    return immutable(f"{pipeline.metadata.name}-code", dict(sorted(data.items())))


def immutable(prefix: str, data: Mapping[str, str]) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{prefix}-{digest(data)[:8]}"},
        "immutable": True,
        "data": data,
    }


def _spec(resource: Resource) -> dict[str, object]:
    spec = {key: value for key, value in resource.spec.items() if key not in _OPERATORS_OWN}
    worker = {key: value for key, value in mapping(spec, "worker").items() if key not in _OF_PODS}
    spec.pop("worker", None)
    return {**spec, **({"worker": worker} if worker else {})}


def _for_workers(stage: object) -> object:
    if not isinstance(stage, Mapping) or not isinstance(stage.get("collect"), Mapping):
        return stage
    collect = {key: value for key, value in stage["collect"].items() if key not in _OF_THE_COLLECTOR}
    return {**stage, "collect": collect}


def _for_collector(stage: object) -> object:
    """Of what the stage says of Spark, all but its pods."""
    if not isinstance(stage, Mapping) or not mapping(stage, "collect", "spark"):
        return stage
    spark = {
        key: value for key, value in mapping(stage, "collect", "spark").items() if key not in _OF_SPARKS_PODS
    }
    collect = {key: value for key, value in mapping(stage, "collect").items() if key != "spark"}
    return {**stage, "collect": {**collect, **({"spark": spark} if spark else {})}}


def _written(resource: Resource, pipeline: ConsumerPipeline, spec: Tree) -> str:
    whole = {
        "apiVersion": pipeline.api_version,
        "kind": pipeline.kind,
        "metadata": {"name": resource.name, "namespace": resource.namespace},
        "spec": spec,
    }
    return json.dumps(whole, indent=1, sort_keys=True)  # JSON is YAML
