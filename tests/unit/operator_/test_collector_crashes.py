"""The operator dies after each of its writes in turn, and a new one takes over: the real controller on an API server in
memory, with Kafka in memory. A driver is made once, by whoever it may be, and never without its attempt being told before.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import yaml

from millrace.clock import SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cache import Cache
from millrace_operator.cluster import Conflict
from millrace_operator.cluster.memory import MemoryCluster
from millrace_operator.controller import Controller
from millrace_operator.kafka import Threads
from millrace_operator.objects import PIPELINES, PODS, Kind
from millrace_operator.observed import Settings
from millrace_operator.seal import Seal

pytestmark = pytest.mark.unit

KEY = ("air", "flights")
MANIFEST = """
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: flights, namespace: air}
spec:
  kafka: {bootstrapServers: "kafka:9092"}
  source: {topic: flights, create: {partitions: 2}}
  stages:
  - name: by-a
    collect:
      schema: a string, t timestamp
      groupBy: [a]
      window: {size: 1h, time: t, lateness: 1h}
      aggregate: {n: count(*)}
      sink: {console: {}}
      spark: {executors: {instances: 1}}
  worker: {image: "flights:1"}
  storage: {persistentVolumeClaim: {claimName: flights}}
"""
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "flights", "namespace": "air"},
    "spec": {"accessModes": ["ReadWriteMany"]},
}


class Dead(Exception):
    """The operator is no more."""


class Api(MemoryCluster):
    """Lets the operator die after `left` writes, just before or just after the answer to the last has come."""

    def __init__(self, *, answers: bool) -> None:
        self.clock = SystemClock()
        super().__init__(self.clock.time)
        self.left: int | None = None
        self.made: list[
            tuple[str, tuple[int, ...]]
        ] = []  # drivers, and the attempts told of when each was made
        self._answers = answers

    async def apply(self, tree: Tree) -> Tree:
        self._alive()
        return self._answered(await super().apply(tree))

    async def create(self, tree: Tree) -> Tree:
        self._alive()
        if tree["kind"] == "Pod":
            await self._note(tree)
        return self._answered(await super().create(tree))

    async def replace(self, tree: Tree) -> Tree:
        self._alive()
        return self._answered(await super().replace(tree))

    async def patch(
        self, kind: Kind, namespace: str, name: str, changes: Tree, *, status: bool = False
    ) -> Tree | None:
        self._alive()
        return self._answered(await super().patch(kind, namespace, name, changes, status=status))

    def _alive(self) -> None:
        if self.left is not None and self.left <= 0:
            raise Dead

    def _answered(self, result: Any) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left == 0 and not self._answers:
                raise Dead
        return result

    async def _note(self, tree: Tree) -> None:
        name = str(tree["metadata"]["name"])  # type: ignore[index]
        if await self.get(PODS, KEY[0], name) is None:
            told = await self.get(PIPELINES, *KEY) or {}
            attempts = told["status"]["collector"]["attempts"]  # type: ignore[index]
            self.made.append((name, tuple(one["number"] for one in attempts if "ended" not in one)))


class Operator:
    """One life of it."""

    def __init__(self, api: Api, broker: MemoryBroker) -> None:
        self._api, self._threads = api, Threads(1)
        self._cache = Cache(api)
        self._pipelines: dict[tuple[str, str], Tree] = {}
        settings = Settings(spark_image="spark:1")
        self._controller = Controller(
            api,
            self._cache,
            self._pipelines,
            lambda *_: broker.cluster(client_id="op"),
            api.clock,
            settings,
            self._threads,
            Seal(b"1" * 32),
        )

    async def live(self) -> None:
        """Until it has nothing to write any more, or is dead."""
        filling = asyncio.create_task(self._cache.run())
        try:
            await self._cache.ready()
            idle = 0
            while idle < 3:
                before = (await self._api.list(PIPELINES)).version
                await self._once()
                idle = idle + 1 if (await self._api.list(PIPELINES)).version == before else 0
        except Dead:
            pass
        finally:
            filling.cancel()
            self._controller.close()
            self._threads.shutdown()

    async def _once(self) -> None:
        found = await self._api.get(PIPELINES, *KEY)
        assert found is not None
        self._pipelines[KEY] = found
        with contextlib.suppress(Conflict):  # the work queue tries again
            await self._controller.reconcile_one(KEY)
        await asyncio.sleep(0)


async def _crash_and_recover(writes: int, *, answers: bool) -> tuple[Api, bool]:
    api, broker = Api(answers=answers), MemoryBroker(SystemClock())
    await api.create(yaml.safe_load(MANIFEST))
    await api.create(CLAIM)
    api.left = writes
    await Operator(api, broker).live()
    died = api.left == 0
    api.left = None
    await Operator(api, broker).live()
    return api, died


@pytest.mark.parametrize("answers", [True, False])
def test_a_crash_after_any_write_leads_to_one_driver(answers: bool) -> None:
    async def all_of_them() -> int:
        for writes in range(1, 60):
            api, died = await _crash_and_recover(writes, answers=answers)
            assert api.made == [("flights.by-a.1", (1,))], writes
            pods = (await api.list(PODS, labels=f"{names.COMPONENT}={names.DRIVER}")).items
            assert len(pods) == 1
            told = await api.get(PIPELINES, *KEY) or {}
            [attempt] = told["status"]["collector"]["attempts"]  # type: ignore[index]
            assert attempt["uid"] == pods[0]["metadata"]["uid"]  # type: ignore[index]
            if not died:
                return writes
        raise AssertionError("it never comes to rest")

    assert asyncio.run(all_of_them()) > 12  # writes that there are


def test_a_driver_of_another_pipeline_under_the_name_is_not_taken_for_ours() -> None:
    async def stranger() -> None:
        api, broker = Api(answers=True), MemoryBroker(SystemClock())
        await api.create(yaml.safe_load(MANIFEST))
        await api.create(CLAIM)
        theirs = {"name": "flights.by-a.1", "namespace": "air", "ownerReferences": [{"uid": "another"}]}
        await MemoryCluster.create(api, {"apiVersion": "v1", "kind": "Pod", "metadata": theirs})
        await Operator(api, broker).live()

        told = await api.get(PIPELINES, *KEY) or {}
        [attempt] = told["status"]["collector"]["attempts"]  # type: ignore[index]
        assert "uid" not in attempt
        found = await api.get(PODS, "air", "flights.by-a.1") or {}
        assert found["metadata"]["ownerReferences"] == [{"uid": "another"}]  # type: ignore[index]

    asyncio.run(stranger())
