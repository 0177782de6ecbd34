"""What is known of the API server, however its answers and what its watches tell overtake one another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cache import Cache
from millrace_operator.cluster.memory import MemoryCluster
from millrace_operator.cluster.port import Change, Expired
from millrace_operator.objects import PODS, Kind, text

pytestmark = pytest.mark.unit

KEY = ("air", "flights")


def pod(name: str) -> dict[str, Any]:
    labels = {names.MANAGED_BY: "millrace", names.PIPELINE: "flights", names.COMPONENT: names.WORKER}
    metadata = {"name": name, "namespace": "air", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


class SlowCluster(MemoryCluster):
    """What its watches tell of pods, and when they end, is told one by one, when it is asked for."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.steps: asyncio.Queue[str] = asyncio.Queue()
        self.told: asyncio.Queue[None] = asyncio.Queue()

    async def watch(
        self, kind: Kind, *, namespace: str = "", labels: str = "", since: str, only_metadata: bool = False
    ) -> AsyncIterator[Change]:
        if kind is not PODS:
            await asyncio.Event().wait()
        at = int(since)
        while True:
            step = await self.steps.get()
            if step == "expire":
                raise Expired("too old")
            newer = [entry for entry in self._log if entry[0] > at and entry[2]["kind"] == kind.name]
            for version, what, tree in newer[:1] if step == "tell one" else newer:
                at = version
                yield Change(what, tree)  # type: ignore[arg-type]

    async def step(self, what: str = "tell all") -> None:
        self.steps.put_nowait(what)
        for _ in range(20):  # until all that follows from it has happened
            await asyncio.sleep(0)


class Story:
    """A cache and a cluster, and writes of ours whose answers are on their way."""

    def __init__(self) -> None:
        self.cluster = SlowCluster()
        self.cache = Cache(self.cluster)
        self.answers: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        self.marks = itertools.count()

    async def create(self, name: str) -> None:
        await self.cluster.create(pod(name))

    async def delete(self, name: str) -> None:
        there = await self.cluster.get(PODS, "air", name)
        await self.cluster.delete(PODS, "air", name, uid=text(there, "metadata", "uid"))

    async def come_or_go(self, name: str) -> None:
        there = await self.cluster.get(PODS, "air", name)
        await (self.create(name) if there is None else self.delete(name))

    async def write(self, name: str) -> None:
        """It is done at once; its answer takes its time."""
        arrived = asyncio.Event()
        annotations = {"metadata": {"annotations": {"mark": str(next(self.marks))}}}

        async def request() -> Tree | None:
            answer = await self.cluster.patch(PODS, "air", name, annotations)
            await arrived.wait()
            return answer

        self.answers.append((arrived, asyncio.create_task(self.cache.write(request()))))
        await asyncio.sleep(0)

    async def answer(self, which: int) -> None:
        if self.answers:
            arrived, task = self.answers.pop(which % len(self.answers))
            arrived.set()
            await task

    def known(self) -> dict[str, str]:
        return _versions(self.cache.pods(KEY))

    async def there(self) -> dict[str, str]:
        return _versions((await self.cluster.list(PODS)).items)


def _versions(trees: Any) -> dict[str, str]:
    return {text(tree, "metadata", "name"): text(tree, "metadata", "resourceVersion") for tree in trees}


ACTIONS = st.sampled_from(
    [
        *[("come_or_go", "flights-0")] * 3,
        *[("write", "flights-0")] * 3,
        *[("step", "tell all")] * 3,
        ("step", "tell one"),
        ("step", "expire"),
        ("answer", 0),
        ("answer", 1),
    ]
)


async def play(actions: list[tuple[str, Any]]) -> None:
    story = Story()
    filling = asyncio.create_task(story.cache.run())
    await story.cache.ready()
    for verb, what in actions:
        target = story.cluster if verb == "step" else story
        await getattr(target, verb)(what)
    while story.answers:
        await story.answer(0)
    await story.cluster.step()
    assert story.known() == await story.there()
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


@settings(max_examples=200)
@given(st.lists(ACTIONS, min_size=8, max_size=30))
def test_once_all_is_told_it_knows_what_there_is(actions: list[tuple[str, Any]]) -> None:
    asyncio.run(play(actions))


def test_an_answer_that_comes_after_the_news_of_the_end_brings_nothing_back() -> None:
    """A pod that is told of an epoch while it goes would be waited for ever after."""
    story = [("create", "flights-0"), ("step", "tell all"), ("write", "flights-0"), ("delete", "flights-0")]
    asyncio.run(play([*story, ("step", "tell all"), ("answer", 0)]))


def test_an_answer_that_comes_after_a_list_in_which_it_is_not_brings_nothing_back() -> None:
    """It was never seen: the list says so by having nothing, and no watch ever will."""
    story = [("create", "flights-0"), ("write", "flights-0"), ("delete", "flights-0")]
    asyncio.run(play([*story, ("step", "expire"), ("answer", 0)]))
