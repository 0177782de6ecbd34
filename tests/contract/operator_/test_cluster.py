"""What the operator counts on of an API server: the one in memory, and a real one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster.plane import ControlPlane
from millrace_operator.cluster import Cluster, Conflict
from millrace_operator.cluster.memory import MemoryCluster
from millrace_operator.objects import CONFIG_MAPS, text

Test = Callable[[Cluster, str], Awaitable[None]]


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.contract),
        pytest.param("real", marks=pytest.mark.cluster),
    ]
)
def held(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """held(test): run it with a cluster and a namespace in it."""
    real = request.param == "real"
    plane: ControlPlane | None = request.getfixturevalue("plane") if real else None
    namespace: str = request.getfixturevalue("namespace") if real else f"t-{uuid.uuid4().hex[:8]}"

    async def run(test: Test) -> None:
        if plane is None:
            await test(MemoryCluster(lambda: 1_700_000_000.0), namespace)
            return
        from millrace_operator.cluster.real import RealCluster

        cluster = await RealCluster.connect(plane.kubeconfig)
        try:
            await test(cluster, namespace)
        finally:
            await cluster.close()

    return lambda test: asyncio.run(asyncio.wait_for(run(test), 60))


def config_map(namespace: str, name: str = "one", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_what_is_not_there_is_none(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        assert await cluster.get(CONFIG_MAPS, namespace, "none") is None
        assert await cluster.patch(CONFIG_MAPS, namespace, "none", {"data": {"a": "1"}}) is None
        await cluster.delete(CONFIG_MAPS, namespace, "none", uid="u")

    held(test)


def test_apply_makes_changes_and_takes_back_what_is_no_longer_said(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(config_map(namespace, a="1", b="2"))
        again = await cluster.apply(config_map(namespace, a="1", b="2"))
        changed = await cluster.apply(config_map(namespace, a="3"))

        assert text(made, "metadata", "resourceVersion") == text(again, "metadata", "resourceVersion")
        assert text(made, "metadata", "uid") == text(changed, "metadata", "uid")
        assert changed["data"] == {"a": "3"}
        assert await cluster.get(CONFIG_MAPS, namespace, "one") == changed

    held(test)


def test_create_and_replace_are_a_compare_and_set(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace, n="0"))
        with pytest.raises(Conflict):
            await cluster.create(config_map(namespace, n="9"))
        after = await cluster.replace({**made, "data": {"n": "1"}})
        with pytest.raises(Conflict):
            await cluster.replace({**made, "data": {"n": "2"}})

        assert after["data"] == {"n": "1"}
        gone = config_map(namespace, "two", n="0")
        gone["metadata"]["resourceVersion"] = text(after, "metadata", "resourceVersion")
        with pytest.raises(Conflict):
            await cluster.replace(gone)

    held(test)


def test_a_patch_merges_and_keeps_to_a_version(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace, a="1", b="2"))
        version = {"metadata": {"resourceVersion": text(made, "metadata", "resourceVersion")}}
        patched = await cluster.patch(
            CONFIG_MAPS, namespace, "one", {**version, "data": {"a": None, "c": "3"}}
        )

        assert patched is not None
        assert patched["data"] == {"b": "2", "c": "3"}
        with pytest.raises(Conflict):
            await cluster.patch(CONFIG_MAPS, namespace, "one", {**version, "data": {"d": "4"}})

    held(test)


def test_only_the_object_that_is_meant_is_deleted(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace))
        await cluster.delete(CONFIG_MAPS, namespace, "one", uid="another")
        assert await cluster.get(CONFIG_MAPS, namespace, "one") is not None
        await cluster.delete(CONFIG_MAPS, namespace, "one", uid=text(made, "metadata", "uid"))
        assert await cluster.get(CONFIG_MAPS, namespace, "one") is None

    held(test)


def test_a_finalizer_holds_a_deletion_until_it_is_taken_away(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        tree = config_map(namespace)
        tree["metadata"]["finalizers"] = ["millrace.dev/drain"]
        made = await cluster.create(tree)
        await cluster.delete(CONFIG_MAPS, namespace, "one", uid=text(made, "metadata", "uid"))
        ending = await cluster.get(CONFIG_MAPS, namespace, "one")
        assert text(ending, "metadata", "deletionTimestamp")
        await cluster.patch(CONFIG_MAPS, namespace, "one", {"metadata": {"finalizers": []}})
        assert await cluster.get(CONFIG_MAPS, namespace, "one") is None

    held(test)


def test_a_watch_goes_on_from_a_list(held: Callable[[Test], None]) -> None:
    async def test(cluster: Cluster, namespace: str) -> None:
        await cluster.create(config_map(namespace, "one"))
        await cluster.create(config_map(namespace, "two"))
        listing = await cluster.list(CONFIG_MAPS, namespace=namespace, labels="app=two")
        assert [text(item, "metadata", "name") for item in listing.items] == ["two"]
        assert text(listing.items[0], "kind") == "ConfigMap"
        await cluster.patch(CONFIG_MAPS, namespace, "one", {"data": {"a": "1"}})
        await cluster.patch(CONFIG_MAPS, namespace, "two", {"data": {"a": "1"}})
        await cluster.delete(CONFIG_MAPS, namespace, "two", uid=text(listing.items[0], "metadata", "uid"))
        seen = []
        async for change in cluster.watch(
            CONFIG_MAPS, namespace=namespace, labels="app=two", since=listing.version
        ):
            if change.type != "BOOKMARK":
                seen.append((change.type, text(change.object, "metadata", "name")))
            if len(seen) == 2:
                break
        assert seen == [("MODIFIED", "two"), ("DELETED", "two")]

    held(test)
