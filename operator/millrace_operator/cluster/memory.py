"""An API server that only stores, for tests: versions, preconditions, finalizers, watches. It validates and defaults
nothing, and knows one field manager.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from millrace_api.tree import Tree
from millrace_operator.cluster.port import Change, Conflict, Listing
from millrace_operator.objects import KINDS, Kind, mapping, text
from millrace_operator.times import written

_Object = dict[str, Any]


class MemoryCluster:
    """`time` gives the Unix time of deletions."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._objects: dict[tuple[str, str, str], _Object] = {}
        self._log: list[tuple[int, str, _Object]] = []
        self._versions = itertools.count(1)
        self._newest = 0
        self._told = asyncio.Condition()

    async def get(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        return copy.deepcopy(self._objects.get((kind.name, namespace, name)))

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        only_metadata: bool = False,
    ) -> Listing:
        found = [
            _part(tree, only_metadata=only_metadata)
            for (name, space, _), tree in sorted(self._objects.items())
            if name == kind.name
            and namespace in ("", space)
            and _selected(tree, labels)
            and _of_fields(tree, fields)
        ]
        return Listing(found, str(self._newest))

    async def watch(
        self, kind: Kind, *, namespace: str = "", labels: str = "", since: str, only_metadata: bool = False
    ) -> AsyncIterator[Change]:
        at = int(since)
        while True:
            for version, what, tree in [entry for entry in self._log if entry[0] > at]:
                at = version
                space = text(tree, "metadata", "namespace")
                if tree["kind"] == kind.name and namespace in ("", space) and _selected(tree, labels):
                    yield Change(what, _part(tree, only_metadata=only_metadata))  # type: ignore[arg-type]
            async with self._told:
                if self._newest <= at:
                    await self._told.wait()

    async def apply(self, tree: Tree) -> Tree:
        key = _key(tree)
        old = self._objects.get(key)
        if old is None:
            return await self._keep("ADDED", key, _plain(tree))
        wanted = {**_plain(tree), **({"status": old["status"]} if "status" in old else {})}
        kept = (
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "finalizers",
            "deletionTimestamp",
        )
        wanted["metadata"] |= {field: old["metadata"][field] for field in kept if field in old["metadata"]}
        return await self._keep("MODIFIED", key, wanted)

    async def create(self, tree: Tree) -> Tree:
        key = _key(tree)
        if key in self._objects:
            raise Conflict(f"{key[0]} {key[2]} already exists")
        return await self._keep("ADDED", key, _plain(tree))

    async def replace(self, tree: Tree) -> Tree:
        key = _key(tree)
        self._expect(key, tree)
        if key not in self._objects:
            raise Conflict(f"{key[0]} {key[2]} is not there")
        return await self._keep("MODIFIED", key, _plain(tree))

    async def patch(
        self, kind: Kind, namespace: str, name: str, changes: Tree, *, status: bool = False
    ) -> Tree | None:
        key = (kind.name, namespace, name)
        if key not in self._objects:
            return None
        self._expect(key, changes)
        part = (
            {"status": changes["status"]} if status else {k: v for k, v in changes.items() if k != "status"}
        )
        return await self._keep("MODIFIED", key, _merged(self._objects[key], part))

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        grace: int | None = None,  # noqa: ARG002
    ) -> None:
        key = (kind.name, namespace, name)
        tree = self._objects.get(key)
        if tree is None or tree["metadata"]["uid"] != uid:
            return
        if tree["metadata"].get("finalizers"):
            ending = _merged(tree, {"metadata": {"deletionTimestamp": written(self._time())}})
            await self._keep("MODIFIED", key, ending)
        else:
            await self._forget(key)

    async def close(self) -> None:
        pass

    def _expect(self, key: tuple[str, str, str], tree: Tree) -> None:
        wanted = text(tree, "metadata", "resourceVersion")
        if wanted and key in self._objects and self._objects[key]["metadata"]["resourceVersion"] != wanted:
            raise Conflict(f"{key[0]} {key[2]} has been modified")

    async def _keep(self, what: str, key: tuple[str, str, str], tree: _Object) -> Tree:
        old = self._objects.get(key)
        metadata = tree["metadata"]
        if old is not None and _same(old, tree):
            return copy.deepcopy(old)
        version = next(self._versions)
        metadata.setdefault("uid", f"uid-{version}")
        metadata.setdefault("creationTimestamp", written(self._time()))
        changed = old is None or old.get("spec") != tree.get("spec")
        metadata["generation"] = (old["metadata"]["generation"] if old else 0) + changed
        metadata["resourceVersion"] = str(version)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            await self._forget(key)
            return tree
        self._objects[key] = tree
        await self._tell(version, what, tree)
        return copy.deepcopy(tree)

    async def _forget(self, key: tuple[str, str, str]) -> None:
        tree = self._objects.pop(key)
        version = next(self._versions)
        last = _merged(tree, {"metadata": {"resourceVersion": str(version)}})
        await self._tell(version, "DELETED", last)
        uid = tree["metadata"]["uid"]
        for other, found in list(self._objects.items()):
            if any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences", ())):
                await self._forget(other)

    async def _tell(self, version: int, what: str, tree: _Object) -> None:
        self._newest = version
        self._log.append((version, what, copy.deepcopy(tree)))
        async with self._told:
            self._told.notify_all()


def _key(tree: Tree) -> tuple[str, str, str]:
    kind = KINDS[text(tree, "kind")]
    return kind.name, text(tree, "metadata", "namespace"), text(tree, "metadata", "name")


def _plain(tree: Tree) -> _Object:
    return {**copy.deepcopy(dict(tree)), "metadata": dict(mapping(tree, "metadata"))}


def _same(old: _Object, new: _Object) -> bool:
    def content(tree: _Object) -> _Object:
        server = ("resourceVersion", "generation")
        return {**tree, "metadata": {k: v for k, v in tree["metadata"].items() if k not in server}}

    return content(old) == content(new)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> _Object:
    """RFC 7396."""
    merged = dict(old)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            inside = merged.get(key)
            merged[key] = _merged(inside if isinstance(inside, Mapping) else {}, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _selected(tree: Tree, labels: str) -> bool:
    found = mapping(tree, "metadata", "labels")
    pairs = (pair.partition("=") for pair in labels.split(",") if pair)
    return all((found.get(key.rstrip("!")) == value) is not key.endswith("!") for key, _, value in pairs)


def _of_fields(tree: Tree, fields: str) -> bool:
    pairs = (pair.partition("=") for pair in fields.split(",") if pair)
    return all(text(tree, *path.split(".")) == value for path, _, value in pairs)


def _part(tree: Tree, *, only_metadata: bool) -> Tree:
    return copy.deepcopy({"metadata": tree["metadata"]} if only_metadata else tree)
