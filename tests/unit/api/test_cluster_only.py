"""What a local run has no use for is known by name."""

from __future__ import annotations

import pytest

from api_manifests import VALID, changed
from millrace_api import cluster_only, parse

pytestmark = pytest.mark.unit


def test_a_manifest_for_a_laptop_has_none() -> None:
    assert cluster_only(parse(changed({}))) == []


def test_all_that_is_about_pods_and_nodes_is_named() -> None:
    assert cluster_only(
        parse(
            changed({**VALID["all of a worker's pod"], "spec/suspend": True, "spec/deletionPolicy": "Retain"})
        )
    ) == [
        "spec.suspend",
        "spec.deletionPolicy",
        "spec.nodeLost",
        "spec.worker.image",
        "spec.worker.imagePullSecrets",
        "spec.worker.resources",
        "spec.worker.nodeSelector",
        "spec.worker.tolerations",
        "spec.worker.priorityClassName",
        "spec.worker.labels",
        "spec.worker.annotations",
        "spec.worker.affinity",
        "spec.worker.topologySpread",
    ]


def test_pods_of_a_collector_and_their_storage_are_named() -> None:
    changes = {
        **VALID["a collect stage with all that it may have"],
        "spec/storage": {"persistentVolumeClaim": {"claimName": "flights"}},
    }
    assert cluster_only(parse(changed(changes))) == [
        "spec.storage",
        "spec.stages[4].collect.spark.image",
        "spec.stages[4].collect.spark.driver",
        "spec.stages[4].collect.spark.executors",
    ]
