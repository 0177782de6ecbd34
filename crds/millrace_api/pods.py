"""What a manifest may say about the pods of its workers: a small typed subset of a pod's own fields.

Small on purpose. What the schema does not know CEL can't check, and a pod template given whole would let whoever may
write a pipeline run anything under the operator's rights (host paths, privileges, other service accounts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from millrace_api.forms import DnsSubdomain, Duration, Image, LabelKey, LabelValue, Quantity
from millrace_api.model import Model
from millrace_api.placing import MOST_KEYS, Affinity, Spread
from millrace_api.times import duration_seconds

_Key = Annotated[str, Field(max_length=317)]
_Value = Annotated[str, Field(max_length=63)]
AnnotationValue = Annotated[str, Field(max_length=4096)]


class Amounts(Model):
    """Amounts of CPU and memory."""

    cpu: Quantity | None = Field(
        default=None, description='CPU, as a quantity in quotes, for example "500m" or "2".'
    )
    memory: Quantity | None = Field(default=None, description="Memory, as a quantity, for example 512Mi.")
    ephemeral_storage: Quantity | None = Field(
        default=None,
        description="Temporary disk space (/tmp is the only place that can be written), for example 1Gi.",
    )


class Resources(Model):
    """What a worker asks of its node, and what it may use at most."""

    requests: Amounts | None = Field(default=None, description="What a node must have free for a worker.")
    limits: Amounts | None = Field(default=None, description="What a worker may use at most.")


class Toleration(Model):
    """A taint of nodes that the workers don't mind."""

    key: _Key | None = Field(default=None, description="Key of the taint; absent: any, with operator Exists.")
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Equal (default): the value must be equal; Exists: any value."
    )
    value: _Value | None = Field(default=None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; absent: any."
    )


class ImagePullSecret(Model):
    """A Secret with the password of a registry."""

    name: DnsSubdomain = Field(description="Name of the Secret, in the pipeline's own namespace.")


class NodeLost(Model):
    """What happens to workers on a node that answers no more."""

    after: Duration = Field(
        default="5m",
        description="When a node has been lost for so long, its workers are started elsewhere (default 5m). It is safe "
        "at any length: should the old worker still be alive, the broker refuses what it writes.",
    )

    @property
    def after_seconds(self) -> float:
        return duration_seconds(self.after)


class PodFields(Model):
    """The part of `worker` that is about its pods; a local run has none and leaves these alone."""

    image: Image | None = Field(
        default=None,
        description="Image of the workers. Default: the one that the operator was installed with.",
    )
    image_pull_secrets: Annotated[
        tuple[ImagePullSecret, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default=(), max_length=8, description="Secrets for pulling the image. Names are unique.")
    resources: Resources | None = Field(
        default=None, description="CPU and memory of each worker. Default: none asked for, no limit."
    )
    node_selector: Mapping[_Key, _Value] = Field(
        default_factory=dict, max_length=16, description="Labels that a node must have to run workers."
    )
    tolerations: Annotated[
        tuple[Toleration, ...],
        Field(strict=False, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), max_length=16, description="Taints of nodes that the workers don't mind.")
    priority_class_name: DnsSubdomain | None = Field(
        default=None, description="PriorityClass of the workers' pods. Default: the cluster's."
    )
    labels: Mapping[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=MOST_KEYS,
        description="Labels of the workers' pods, beside Millrace's own. Keys of kubernetes.io, k8s.io and millrace.dev are refused.",
    )
    annotations: Mapping[LabelKey, AnnotationValue] = Field(
        default_factory=dict,
        max_length=MOST_KEYS,
        description="Annotations of the workers' pods. Keys of kubernetes.io, k8s.io and millrace.dev are refused.",
    )
    affinity: Affinity | None = Field(
        default=None,
        description="Nodes that the workers, and a collector's pods, must or should rather run on.",
    )
    topology_spread: Annotated[
        tuple[Spread, ...],
        Field(
            strict=False,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["topologyKey"],
            },
        ),
    ] = Field(
        default=(),
        max_length=8,
        description="How evenly the workers are spread over nodes or zones. Each topologyKey once.",
    )
