"""The epoch in a ConfigMap, by compare-and-set on its resourceVersion.

The control plane runs on a thread and asks here; the requests are made on the event loop, which has the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from millrace.ownership.epoch import Epoch, EpochError
from millrace.ownership.epoch_store import EpochConflict, Published
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cluster import Cluster, Conflict
from millrace_operator.objects import CONFIG_MAPS, text

T = TypeVar("T")

FILE: Final = "epoch.json"
_PATIENCE: Final = 30.0  # seconds


class EpochMap:
    """An EpochStore. Not to be called on the event loop's own thread."""

    def __init__(
        self, cluster: Cluster, loop: asyncio.AbstractEventLoop, *, namespace: str, pipeline: str, owner: Tree
    ) -> None:
        self._cluster, self._loop = cluster, loop
        self._namespace, self._pipeline, self._owner = namespace, pipeline, owner
        self.ever = 0
        """A number that was used already; what is published gets a larger one."""

    def read(self) -> Published | None:
        """Raises EpochError, ClusterError."""
        name = names.epoch_map(self._pipeline)
        found = self._wait(self._cluster.get(CONFIG_MAPS, self._namespace, name))
        if found is None or text(found, "metadata", "deletionTimestamp"):
            return None
        where = f"ConfigMap {self._namespace}/{name}"
        epoch = Epoch.decode(text(found, "data", FILE), where=where)
        if epoch.uid != self._owner["uid"]:
            raise EpochError(
                f"the epoch is of another pipeline, {epoch.uid}", where=where, remedy="delete it"
            )
        return Published(epoch, text(found, "metadata", "resourceVersion"))

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        """Raises EpochConflict, ClusterError. The number is lifted above those that were used, which the control plane
        can't know of when the ConfigMap was deleted.
        """
        if 0 < epoch.number <= self.ever:
            epoch = replace(epoch, number=self.ever + 1)
        tree = self._tree(epoch, expected)
        try:
            made = self._wait(self._cluster.create(tree) if expected is None else self._cluster.replace(tree))
        except Conflict as conflict:
            raise EpochConflict(f"the epoch was published meanwhile: {conflict.what}") from conflict
        return Published(epoch, text(made, "metadata", "resourceVersion"))

    def _tree(self, epoch: Epoch, expected: str | None) -> Tree:
        metadata: dict[str, object] = {
            "name": names.epoch_map(self._pipeline),
            "namespace": self._namespace,
            "labels": dict(names.labels(self._pipeline)),
            "ownerReferences": [self._owner],
        }
        if expected is not None:
            metadata["resourceVersion"] = expected
        data: Mapping[str, str] = {FILE: epoch.encode()}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)
