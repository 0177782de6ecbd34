"""Kubernetes objects as plain data: how to look into them, and whether one is as it should be."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from millrace_api.tree import Tree, at, get, items

Key: TypeAlias = tuple[str, str]
"""Kind and name, within a namespace."""

_QUANTITY: Final = re.compile(r"([0-9.]+)(?:([EPTGM]i|Ki|[EPTGMkmun])|[eE]([+-]?[0-9]+))?")
_BINARY: Final = {
    unit: Decimal(1024) ** power for power, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL: Final = {
    unit: Decimal(10) ** power
    for unit, power in {
        "n": -9,
        "u": -6,
        "m": -3,
        "": 0,
        "k": 3,
        "M": 6,
        "G": 9,
        "T": 12,
        "P": 15,
        "E": 18,
    }.items()
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects, and where the API server has them."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "")


PIPELINES: Final = Kind("millrace.dev/v1alpha1", "ConsumerPipeline", "consumerpipelines")
STATEFUL_SETS: Final = Kind("apps/v1", "StatefulSet", "statefulsets")
SERVICES: Final = Kind("v1", "Service", "services")
CONFIG_MAPS: Final = Kind("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNTS: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
DISRUPTION_BUDGETS: Final = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICIES: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
SERVICE_MONITORS: Final = Kind("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
PODS: Final = Kind("v1", "Pod", "pods")
NODES: Final = Kind("v1", "Node", "nodes", namespaced=False)
SECRETS: Final = Kind("v1", "Secret", "secrets")
LEASES: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENTS: Final = Kind("events.k8s.io/v1", "Event", "events")
ROLES: Final = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDINGS: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
CLAIMS: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
CORE_EVENTS: Final = Kind("v1", "Event", "events")  # the same, with fields by which one may ask for them
NAMESPACES: Final = Kind("v1", "Namespace", "namespaces", namespaced=False)

CHILDREN: Final = (
    SERVICE_ACCOUNTS,
    ROLES,
    ROLE_BINDINGS,
    SERVICES,
    CONFIG_MAPS,
    NETWORK_POLICIES,
    DISRUPTION_BUDGETS,
    STATEFUL_SETS,
    SERVICE_MONITORS,
)
KINDS: Final = {
    kind.name: kind
    for kind in (PIPELINES, *CHILDREN, PODS, NODES, SECRETS, LEASES, EVENTS, NAMESPACES, CLAIMS)
}


def key_of(tree: Tree) -> Key:
    return text(tree, "kind"), text(tree, "metadata", "name")


def text(tree: object, *parts: str | int) -> str:
    """The text at a path; "" if there is none."""
    value = at(tree, parts)
    return value if isinstance(value, str) else ""


def number(tree: object, *parts: str | int) -> int:
    """The whole number at a path; 0 if there is none."""
    value = at(tree, parts)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def mapping(tree: object, *parts: str | int) -> Tree:
    """The mapping at a path; an empty one if there is none."""
    value = at(tree, parts)
    return value if isinstance(value, Mapping) else {}


def entries(tree: object, *parts: str | int) -> Sequence[object]:
    """The list at a path; an empty one if there is none."""
    return items(at(tree, parts))


def digest(value: object) -> str:
    """A short hash of plain data, the same in every process."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def amount(quantity: str) -> Decimal | None:
    """What a Kubernetes quantity means; None if it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return None
    amount, unit = Decimal(match[1]), match[2] or ""
    if match[3]:
        return amount * Decimal(10) ** int(match[3])
    return amount * (_BINARY[unit] if unit in _BINARY else _DECIMAL[unit])


def covers(live: object, wanted: object) -> bool:
    """Whether an object is as wanted: everything wanted is there and equal. What else there is are the API server's
    defaults, or fields of others, and not our affair.

    Lists of named things are compared by name, other lists in order. Quantities are equal if they mean the same, since
    the API server writes them in its own way.
    """
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and covers(live[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list | tuple):
        return _list_covers(items(live), wanted)
    return live == wanted or _same_quantity(live, wanted)


def _list_covers(live: Sequence[object], wanted: Sequence[object]) -> bool:
    names = [get(item, "name") for item in wanted]
    if wanted and None not in names:
        by_name = {get(item, "name"): item for item in live}
        return all(
            name in by_name and covers(by_name[name], item) for name, item in zip(names, wanted, strict=True)
        )
    return len(live) == len(wanted) and all(covers(a, b) for a, b in zip(live, wanted, strict=True))


def _same_quantity(live: object, wanted: object) -> bool:
    if not isinstance(live, str) or not isinstance(wanted, str):
        return False
    one, other = amount(live), amount(wanted)
    return one is not None and one == other
