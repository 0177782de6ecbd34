"""Pipelines are looked at again when the ConfigMap with their code changes, and for no other reason."""

from __future__ import annotations

import asyncio

import pytest

from millrace_operator import names
from millrace_operator.cluster.memory import MemoryCluster
from millrace_operator.code_watch import using, watch_code
from millrace_operator.objects import CONFIG_MAPS

pytestmark = pytest.mark.unit


def pipeline(code: str) -> dict[str, object]:
    return {"spec": {"worker": {"code": {"configMapRef": {"name": code}}}}}


PIPELINES = {
    ("air", "one"): pipeline("code"),
    ("air", "two"): pipeline("other"),
    ("air", "none"): {"spec": {}},
    ("sea", "one"): pipeline("code"),
}


def config_map(name: str, namespace: str = "air", **labels: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}


def test_those_are_meant_that_name_it_in_its_namespace() -> None:
    assert using(PIPELINES, config_map("code")) == [("air", "one")]
    assert using(PIPELINES, config_map("nobodys")) == []


def test_changes_are_told_and_our_own_config_maps_are_not_watched() -> None:
    async def story() -> None:
        cluster = MemoryCluster(lambda: 0.0)
        told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        watching = asyncio.create_task(watch_code(cluster, PIPELINES, told.put_nowait))
        assert [await told.get() for _ in PIPELINES] == list(PIPELINES)

        await cluster.create(config_map("unrelated"))
        ours = config_map("code-copy")
        ours["metadata"] = {**dict(names.OURS), **ours["metadata"], "labels": dict(names.OURS)}  # type: ignore[dict-item]
        await cluster.create(ours)
        await cluster.create(config_map("other"))
        assert await told.get() == ("air", "two")
        await cluster.patch(CONFIG_MAPS, "air", "other", {"data": {"m.py": "x"}})
        assert await told.get() == ("air", "two")
        watching.cancel()

    asyncio.run(asyncio.wait_for(story(), 30))
