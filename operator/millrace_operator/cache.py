"""What the API server has of the operator's concern, kept up to date by watches: children, pods and nodes.

Only objects with our label are asked for, so that what others have in the cluster costs nothing and need not be
readable. Every change is told with the key of the pipeline that it concerns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cluster import Cluster, ClusterError, Expired, Refused
from millrace_operator.objects import (
    CHILDREN,
    NODES,
    PODS,
    SERVICE_MONITORS,
    Key,
    Kind,
    entries,
    key_of,
    text,
)
from millrace_operator.pods import node_lost_since
from millrace_operator.work_queue import Key as PipelineKey

_AGAIN: Final = 2.0  # seconds after which a watch that broke off is tried again


@dataclass(eq=False, slots=True)
class _Meanwhile:
    """What the watches have told while a write was under way: uids of objects that are gone, kinds that were listed anew."""

    gone: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)

    def overtook(self, answer: Tree) -> bool:
        return text(answer, "metadata", "uid") in self.gone or text(answer, "kind") in self.listed


class Cache:
    """Args:
    namespace: "": all of them.
    """

    def __init__(self, cluster: Cluster, *, namespace: str = "") -> None:
        self._cluster, self._namespace = cluster, namespace
        self._changed: Callable[[PipelineKey], None] = lambda _: None
        self._objects: dict[PipelineKey, dict[Key, Tree]] = {}
        self._nodes: dict[str, float] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._under_way: list[_Meanwhile] = []  # of writes
        self._log = structlog.get_logger("millrace.operator")
        self.service_monitors = False

    async def run(self) -> None:
        """Until cancelled."""
        self.service_monitors = await self._knows(SERVICE_MONITORS)
        kinds = [kind for kind in CHILDREN if kind is not SERVICE_MONITORS or self.service_monitors]
        async with asyncio.TaskGroup() as group:
            for kind in (*kinds, PODS, NODES):
                self._ready[kind.name] = asyncio.Event()
                group.create_task(self._follow(kind))

    def tell(self, changed: Callable[[PipelineKey], None]) -> None:
        """From now on call this, in the event loop, with each pipeline of which something changed. What changed before is
        of no account as long as every pipeline is looked at once after this.
        """
        self._changed = changed

    async def ready(self) -> None:
        """Returns when all has been listed once: before, what is not seen may still be there."""
        while len(self._ready) < len(CHILDREN) + 1:
            await asyncio.sleep(0.01)
        for event in list(self._ready.values()):
            await event.wait()

    def children(self, key: PipelineKey, uid: str) -> Mapping[Key, Tree]:
        """Those that this very pipeline owns, by kind and name."""
        found = self._objects.get(key, {})
        return {at: tree for at, tree in found.items() if at[0] != PODS.name and _owned(tree, uid)}

    def pods(self, key: PipelineKey, *components: str) -> tuple[Tree, ...]:
        """Those of these components; of all, if none is named."""
        found = self._objects.get(key, {})
        return tuple(
            tree
            for (kind, _), tree in sorted(found.items())
            if kind == PODS.name
            and (not components or text(tree, "metadata", "labels", names.COMPONENT) in components)
        )

    @property
    def nodes_lost(self) -> Mapping[str, float]:
        return self._nodes

    async def write(self, request: Awaitable[Tree | None]) -> None:
        """Wait for a write of ours; its answer is known at once, not when the watch tells it.

        Unless the watch has told meanwhile that the object is gone, or all of its kind were listed anew: then the answer
        may be the older news, and nothing would ever take the object out again. What is left out of the cache so is told by
        the watch, or was in the list.
        """
        meanwhile = _Meanwhile()
        self._under_way.append(meanwhile)
        try:
            answer = await request
        finally:
            self._under_way.remove(meanwhile)
        if answer is not None and not meanwhile.overtook(answer):
            self._put(answer)

    async def _knows(self, kind: Kind) -> bool:
        try:
            await self._cluster.list(kind, namespace=self._namespace, labels=f"{names.MANAGED_BY}=millrace")
        except Refused:
            return False
        return True

    async def _follow(self, kind: Kind) -> None:
        labels = "" if kind is NODES else f"{names.MANAGED_BY}=millrace"
        since = ""
        while True:
            try:
                if not since:
                    listing = await self._cluster.list(kind, namespace=self._namespace, labels=labels)
                    self._replace(kind, {_place(tree): tree for tree in listing.items})
                    since = listing.version
                    self._ready[kind.name].set()
                watch = self._cluster.watch(kind, namespace=self._namespace, labels=labels, since=since)
                async for change in watch:
                    since = text(change.object, "metadata", "resourceVersion") or since
                    if change.type == "DELETED":
                        self._drop(kind, change.object)
                    elif change.type != "BOOKMARK":
                        self._put(change.object)
            except Expired:
                since = ""
            except ClusterError as error:
                if isinstance(error, Refused) and kind is NODES:
                    self._ready[kind.name].set()  # installed for one namespace: lost nodes are not seen
                self._log.warning("watch broke off", kind=kind.name, what=error.what[:300])
                await asyncio.sleep(_AGAIN)

    def _replace(self, kind: Kind, found: Mapping[tuple[PipelineKey, Key], Tree]) -> None:
        if kind is NODES:
            self._nodes.clear()
        for write in self._under_way:
            write.listed.add(kind.name)
        for pipeline, objects in list(self._objects.items()):
            for at in [at for at in objects if at[0] == kind.name and (pipeline, at) not in found]:
                self._remove(pipeline, at)
        for tree in found.values():
            self._put(tree)

    def _put(self, tree: Tree) -> None:
        if text(tree, "kind") == NODES.name:
            self._put_node(tree)
            return
        pipeline, at = _place(tree)
        if not pipeline[1]:
            return
        there = self._objects.setdefault(pipeline, {})
        old = there.get(at)
        if old is not None and _older(tree, old):
            return
        there[at] = tree
        if old is None or text(old, "metadata", "resourceVersion") != text(
            tree, "metadata", "resourceVersion"
        ):
            self._changed(pipeline)

    def _put_node(self, node: Tree) -> None:
        name, since = text(node, "metadata", "name"), node_lost_since(node)
        if (since is None) == (name not in self._nodes):
            return
        if since is None:
            del self._nodes[name]
        else:
            self._nodes[name] = since
        for pipeline in list(self._objects):
            if any(text(pod, "spec", "nodeName") == name for pod in self.pods(pipeline)):
                self._changed(pipeline)

    def _drop(self, kind: Kind, tree: Tree) -> None:
        if kind is NODES:
            # a node that is gone for good: its pods are lost, as those of one that is silent
            return
        for write in self._under_way:
            write.gone.add(text(tree, "metadata", "uid"))
        pipeline, at = _place(tree)
        old = self._objects.get(pipeline, {}).get(at)
        if old is not None and text(old, "metadata", "uid") == text(tree, "metadata", "uid"):
            self._remove(pipeline, at)

    def _remove(self, pipeline: PipelineKey, at: Key) -> None:
        objects = self._objects[pipeline]
        del objects[at]
        if not objects:
            del self._objects[pipeline]
        self._changed(pipeline)


def _place(tree: Tree) -> tuple[PipelineKey, Key]:
    pipeline = text(tree, "metadata", "labels", names.PIPELINE)
    return (text(tree, "metadata", "namespace"), pipeline), key_of(tree)


def _owned(tree: Tree, uid: str) -> bool:
    return any(text(owner, "uid") == uid for owner in entries(tree, "metadata", "ownerReferences"))


def _older(tree: Tree, than: Tree) -> bool:
    """Of the same object. Versions are opaque, but numbers in every API server there is (KEP-5504 makes it so)."""
    if text(tree, "metadata", "uid") != text(than, "metadata", "uid"):
        return False
    one, other = (text(which, "metadata", "resourceVersion") for which in (tree, than))
    return one.isdigit() and other.isdigit() and int(one) < int(other)
