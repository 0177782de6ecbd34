"""What a manifest says of its workers' pods is carried out, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from millrace_operator import names
from operator_world import World

pytestmark = pytest.mark.unit

WORKER = {"image": "flights:1", "code": {"configMapRef": {"name": "flights-code"}}}
PLACED = {
    "labels": {"team": "air"},
    "annotations": {"example.com/about": "flights"},
    "affinity": {
        "required": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "gpu", "operator": "Exists"},
        ],
        "preferred": [{"weight": 7, "key": "spot", "operator": "DoesNotExist"}],
    },
    "topologySpread": [{"topologyKey": "zone"}],
}


def template(**worker: object) -> dict[str, Any]:
    world = World(worker={**WORKER, **worker})
    world.settle()
    return dict(world.objects["StatefulSet", "flights"]["spec"]["template"])


def test_labels_and_annotations_stand_beside_ours() -> None:
    metadata = template(**PLACED)["metadata"]
    assert metadata["labels"] == {"team": "air", **names.labels("flights")}
    assert metadata["annotations"] == {"example.com/about": "flights"}


def test_nodes_are_required_and_preferred() -> None:
    affinity = template(**PLACED)["spec"]["affinity"]
    assert affinity == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "zone", "operator": "In", "values": ["a", "b"]},
                            {"key": "gpu", "operator": "Exists"},
                        ]
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 7,
                    "preference": {"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]},
                }
            ],
        }
    }


def test_workers_are_spread_among_themselves() -> None:
    [spread] = template(**PLACED)["spec"]["topologySpreadConstraints"]
    assert spread == {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector("flights")},
    }


def test_what_is_not_said_is_not_there() -> None:
    plain = template()
    assert {"affinity", "topologySpreadConstraints"}.isdisjoint(plain["spec"])
    assert template(affinity={"required": [], "preferred": []}) == plain


def test_a_change_rolls_the_workers_by_the_template_alone() -> None:
    world = World(worker=WORKER)
    world.settle()
    before = {key for key in world.objects if key[0] == "ConfigMap"}
    world.writes.clear()
    world.change(worker={**WORKER, **PLACED})
    world.settle()
    assert [write for write in world.writes if write.startswith("apply")] == [
        "apply ('StatefulSet', 'flights')"
    ]
    assert {key for key in world.objects if key[0] == "ConfigMap"} == before
