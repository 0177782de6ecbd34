"""What a manifest may say of its workers' pods to others: labels and annotations, and where in the cluster they should be.

Keys of Kubernetes and of Millrace say what a pod is and how it is confined. They are not the author's, but for a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from millrace_api.forms import LabelKey, LabelValue
from millrace_api.model import Model
from millrace_api.problems import PathParts
from millrace_api.tree import Tree, at, get, items

KEPT_DOMAINS: Final = ("kubernetes.io", "k8s.io", "millrace.dev")
"""With all that is below them."""
KEPT_PREFIX: Final = "io.kubernetes."  # of container runtimes
KEPT_KEYS: Final = ("controller-revision-hash", "pod-template-hash")
FREE: Final = (
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
"""Of the kept domains, what says nothing that anybody relies on."""
VALUED: Final = ("In", "NotIn")
MOST_KEYS: Final = 32


class NodeRule(Model):
    """What a node's label must be."""

    key: LabelKey = Field(description="Key of the node's label, for example topology.kubernetes.io/zone.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        default="In",
        description="In (default) or NotIn: its value is, or is not, one of values. Exists or DoesNotExist: there is such a label, or not.",
    )
    values: Annotated[
        tuple[LabelValue, ...],
        Field(strict=False, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), max_length=32, description="Values for In and NotIn.")


class WeighedNodeRule(NodeRule):
    """What a node's label should be, and how much that counts."""

    weight: int = Field(
        default=1, ge=1, le=100, description="How much it counts against the others, 1 (default) to 100."
    )


class Affinity(Model):
    """Nodes that the workers must, or should rather, run on."""

    required: Annotated[
        tuple[NodeRule, ...],
        Field(strict=False, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), max_length=16, description="All of these hold for a node that runs workers.")
    preferred: Annotated[
        tuple[WeighedNodeRule, ...],
        Field(strict=False, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), max_length=16, description="Nodes for which more of these hold are taken first.")


class Spread(Model):
    """How evenly the workers are spread over parts of the cluster."""

    topology_key: LabelKey = Field(
        description="Label of nodes whose values are the parts: kubernetes.io/hostname, topology.kubernetes.io/zone."
    )
    max_skew: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="By how many workers two parts may differ, 1 (default) to 1000.",
    )
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = Field(
        default="ScheduleAnyway",
        description="If that can't be met: ScheduleAnyway (default) starts the worker all the same, DoNotSchedule lets it wait.",
    )


def is_kept(key: str) -> bool:
    """Whether a label or annotation of this key is not the author's to set."""
    domain = key.partition("/")[0] if "/" in key else ""
    kept = any(domain == one or domain.endswith(f".{one}") for one in KEPT_DOMAINS)
    return key not in FREE and (kept or key in KEPT_KEYS or key.startswith(KEPT_PREFIX))


def broken_placing_rules(worker: object) -> Iterator[tuple[PathParts, str, str]]:
    """Path below `spec.worker`, problem and remedy of each rule that it breaks; any shape."""
    for field in ("labels", "annotations"):
        given = get(worker, field)
        for key in given if isinstance(given, Mapping) else ():
            if isinstance(key, str) and is_kept(key):
                yield (
                    (field, key),
                    f"{key[:317]} is Kubernetes' or Millrace's own",
                    f"choose a key of your own domain; of theirs you may set {', '.join(FREE)}",
                )
    for kind in ("required", "preferred"):
        for index, rule in enumerate(items(at(worker, ("affinity", kind)))):
            if isinstance(rule, Mapping):
                yield from _values(("affinity", kind, index), rule)


def _values(place: PathParts, rule: Tree) -> Iterator[tuple[PathParts, str, str]]:
    operator = rule.get("operator") or "In"
    given = bool(items(rule.get("values")))
    if operator in VALUED and not given:
        yield (*place, "values"), f"operator {operator} needs values", "list one or more"
    elif operator in ("Exists", "DoesNotExist") and given:
        yield (*place, "values"), f"operator {operator} has no values", "leave values out"
