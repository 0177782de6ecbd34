"""Workers that stand still, and what they say of it: a stage that is stuck in a call.

A worker finds that out by itself (docs/watching.md) and stays ready, so neither its pod nor Kafka tells of it. It holds no
credentials with which it could write it anywhere. So it is asked, over the port of health and metrics that is open anyway;
but only when Kafka gives reason to: partitions of it have messages waiting, and their claims have not moved for a minute. A
pipeline that gets on costs nothing, and one that is stuck a request now and then.

The answer is made by code that is not ours. Of it only numbers and the names of the manifest's own stages are believed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millrace.clock import Clock
from millrace.ownership.control_rules import holders
from millrace_api.tree import Tree, get, items
from millrace_operator.children.network import PORT
from millrace_operator.objects import number, text
from millrace_operator.observed import KafkaView, Stuck
from millrace_operator.pods import index_of
from millrace_operator.work_queue import Key

STILL: Final = 60.0
"""Seconds without progress after which a worker is asked: as long as a call may take until the worker itself tells of it."""
SOONEST: Final = 25.0  # seconds between two requests to one worker, below the pause between two looks
LATEST: Final = 300.0  # the same, for one that says again and again that nothing is stuck
_AT_ONCE: Final = 16  # workers of all pipelines
_OF_ONE: Final = 8  # workers of one pipeline in a look
_PATIENCE: Final = 2.0  # seconds for an answer
_LARGEST: Final = 1 << 20  # bytes of it

Ask = Callable[[str], Awaitable[object]]
"""What the worker at this address says of itself, plain data; None: it did not answer."""


@dataclass(slots=True)
class _Asked:
    at: float
    pause: float
    told: Stuck | None


@dataclass(slots=True)
class _Watched:
    """`since`: by partition, its holder and offset, and when it was seen so first."""

    since: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    asked: dict[str, _Asked] = field(default_factory=dict)  # by uid of the pod


class Standstill:
    """Of all pipelines. Workers are asked beside the work on pipelines, which never waits for them."""

    def __init__(self, clock: Clock, ask: Ask | None = None) -> None:
        self._clock, self._ask = clock, ask or status_of
        self._watched: dict[Key, _Watched] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._lines = asyncio.Semaphore(_AT_ONCE)

    def look(
        self, key: Key, view: KafkaView | None, pods: Sequence[Tree], stages: Collection[str]
    ) -> tuple[Stuck, ...]:
        """Workers with a stage that is stuck, by index, as far as they have answered. Whoever is to be asked now has by the
        next look. Empty also where nobody knows.
        """
        if view is None or view.identity is None or view.epoch is None or view.failure is not None:
            return ()
        watched = self._watched.setdefault(key, _Watched())
        still = self._still(watched, view)
        suspects = [pod for pod in pods if index_of(pod) in still and text(pod, "status", "podIP")]
        uids = {text(pod, "metadata", "uid") for pod in suspects}
        watched.asked = {uid: asked for uid, asked in watched.asked.items() if uid in uids}
        for pod in [pod for pod in suspects if self._due(watched, pod)][:_OF_ONE]:
            self._question(watched, pod, stages)
        found = [asked.told for asked in watched.asked.values() if asked.told is not None]
        return tuple(sorted(found, key=lambda one: one.index))

    async def answered(self) -> None:
        """Returns when nobody is being asked."""
        await asyncio.gather(*self._asking)

    def close(self) -> None:
        for task in self._asking:
            task.cancel()

    def forget(self, key: Key) -> None:
        self._watched.pop(key, None)

    def _still(self, watched: _Watched, view: KafkaView) -> set[int]:
        """Workers that hold a partition which waits, and has not moved for long enough."""
        assert view.identity is not None
        assert view.epoch is not None
        now = self._clock.monotonic()
        held = holders(view.identity, view.claims, range(view.epoch.partitions))
        since = {}
        for partition, holder in held.items():
            if holder is None or holder < 0 or not view.lag.get(partition):
                continue
            offset = view.claims[partition].offset
            before = watched.since.get(partition)
            same = before is not None and before[:2] == (holder, offset)
            since[partition] = before if before is not None and same else (holder, offset, now)
        watched.since = since
        return {holder for holder, _, first in since.values() if now - first >= STILL}

    def _due(self, watched: _Watched, pod: Tree) -> bool:
        asked = watched.asked.get(text(pod, "metadata", "uid"))
        return asked is None or self._clock.monotonic() - asked.at >= asked.pause

    def _question(self, watched: _Watched, pod: Tree, stages: Collection[str]) -> None:
        uid = text(pod, "metadata", "uid")
        before = watched.asked.get(uid)
        quiet = before is not None and before.told is None
        pause = min(before.pause * 2, LATEST) if quiet and before is not None else SOONEST
        asked = _Asked(self._clock.monotonic(), pause, before.told if before is not None else None)
        watched.asked[uid] = asked
        task = asyncio.create_task(self._answer(asked, pod, stages))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer(self, asked: _Asked, pod: Tree, stages: Collection[str]) -> None:
        index = index_of(pod)
        assert index is not None
        async with self._lines:
            asked.told = stuck_of(index, await self._ask(text(pod, "status", "podIP")), stages)


def stuck_of(index: int, status: object, stages: Collection[str]) -> Stuck | None:
    """The first stage that a worker's status tells of as stuck, if it is one of the manifest's."""
    for one in items(get(status, "stuck")):
        stage = text(one, "stage")
        if stage in stages:
            return Stuck(index, stage, number(one, "partition"), number(one, "first"))
    return None


async def status_of(address: str) -> object:
    """/status of the worker there, over plain HTTP."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return _body(await _get(address, PORT, "/status"))
    except (OSError, TimeoutError, ValueError, RecursionError):
        return None  # it explains, and nothing depends on it


async def _get(address: str, port: int, path: str) -> bytes:
    """The whole answer. HTTP/1.0: it ends with the connection."""
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: worker\r\n\r\n".encode())
        await writer.drain()
        found = bytearray()
        while len(found) < _LARGEST and (part := await reader.read(65_536)):
            found += part
        return bytes(found)
    finally:
        writer.close()


def _body(answer: bytes) -> Mapping[str, object]:
    """Raises ValueError for all but a whole JSON object with status 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("not found")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no status")
    return found
