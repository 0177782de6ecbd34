"""Leadership by a Lease: of several operators one works, the others wait until its Lease is no longer renewed.

Two that both believe to lead do no harm (the fence and the epoch's compare-and-set see to that); they only get in each
other's way. So a leader that can't renew in time ends its process instead of going on.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from millrace.clock import Clock
from millrace_api.tree import Tree
from millrace_operator.cluster import Cluster, ClusterError, Conflict
from millrace_operator.objects import LEASES, mapping, text

DURATION = 15.0  # seconds
RENEW = 5.0


class Lost(Exception):
    """Another leads, or nobody can tell."""


class Leadership:
    def __init__(self, cluster: Cluster, clock: Clock, *, namespace: str, name: str, identity: str) -> None:
        self._cluster, self._clock = cluster, clock
        self._namespace, self._name, self._identity = namespace, name, identity
        self._seen: tuple[str, float] = ("", 0.0)
        self._log = structlog.get_logger("millrace.operator")

    async def acquire(self) -> None:
        """Returns as the leader."""
        while True:
            try:
                if await self._try():
                    self._log.info(
                        "leading", lease=f"{self._namespace}/{self._name}", identity=self._identity
                    )
                    return
            except ClusterError as error:
                self._log.warning("no answer about the lease", what=error.what[:300])
            await asyncio.sleep(RENEW / 2)

    async def keep(self) -> None:
        """Renews for ever. Raises Lost."""
        renewed = self._clock.monotonic()
        while True:
            await asyncio.sleep(RENEW)
            try:
                if not await self._try():
                    raise Lost("another operator holds the lease")
                renewed = self._clock.monotonic()
            except ClusterError as error:
                if self._clock.monotonic() - renewed > DURATION - RENEW:
                    raise Lost(f"the lease can't be renewed: {error.what}") from error

    async def release(self) -> None:
        """So that the next need not wait."""
        lease = await self._cluster.get(LEASES, self._namespace, self._name)
        if lease is not None and text(lease, "spec", "holderIdentity") == self._identity:
            await self._cluster.replace({**lease, "spec": {**mapping(lease, "spec"), "holderIdentity": ""}})

    async def _try(self) -> bool:
        """Take or renew. A holder counts as gone when its Lease has not changed for its duration by our own clock: clocks
        of two machines are not to be compared.
        """
        lease = await self._cluster.get(LEASES, self._namespace, self._name)
        try:
            if lease is None:
                await self._cluster.create(self._lease(None))
                return True
            holder = text(lease, "spec", "holderIdentity")
            version, now = text(lease, "metadata", "resourceVersion"), self._clock.monotonic()
            if self._seen[0] != version:
                self._seen = (version, now)
            if holder in ("", self._identity) or now - self._seen[1] > DURATION:
                await self._cluster.replace(self._lease(lease))
                return True
        except Conflict:
            pass
        return False

    def _lease(self, before: Tree | None) -> Tree:
        now = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: Tree = {"name": self._name, "namespace": self._namespace}
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": int(DURATION), "renewTime": now}
        if before is not None:
            metadata = mapping(before, "metadata")
            spec = {**mapping(before, "spec"), **spec}
        return {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": metadata, "spec": spec}
