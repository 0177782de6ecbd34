"""What is to be reconciled next: keys, each at most once in the queue and never by two at a time.

A key that is added while it is being worked on is worked on again afterwards. One that fails comes back after a pause
that doubles from failure to failure; the others don't wait for it, unless it holds one of the few places at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

Key = tuple[str, str]
"""Namespace and name of a pipeline."""

Work = Callable[[Key], Awaitable[float | None]]
"""Works on a key; returns seconds after which to come back to it, None: only when it is added."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0


class WorkQueue:
    """Args:
    concurrency: keys that are worked on at once.
    """

    def __init__(self, work: Work, *, concurrency: int = 16) -> None:
        self._work, self._concurrency = work, concurrency
        self._waiting: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._working: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()
        self._log = structlog.get_logger("millrace.operator")
        self.done = 0
        self.failed = 0

    @property
    def depth(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Work on it as soon as may be. Only from the event loop's thread."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._queued:
            return
        self._queued.add(key)
        if key not in self._working:
            self._waiting.append(key)
            self._wake.set()

    def forget(self, key: Key) -> None:
        """The pipeline is gone: what was to come by itself does not."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Until cancelled; what is being worked on is cancelled with it."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            key = self._waiting.popleft()
            self._queued.discard(key)
            self._working.add(key)
            try:
                await self._one(key)
            finally:
                self._working.discard(key)
                if key in self._queued:
                    self._waiting.append(key)
                    self._wake.set()

    async def _one(self, key: Key) -> None:
        try:
            pause = await self._work(key)
        except Exception as error:  # noqa: BLE001  one bad resource never stops the others
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.failed += 1
            pause = min(_FIRST_PAUSE * 2.0 ** (failures - 1), _LONGEST_PAUSE)
            told = {"namespace": key[0], "pipeline": key[1], "again_in": pause}
            self._log.warning("reconcile failed", what=f"{type(error).__name__}: {error}"[:500], **told)
        else:
            self.done += 1
            self._failures.pop(key, None)
        if pause is not None and key not in self._queued:
            self._timers[key] = asyncio.get_running_loop().call_later(pause, self.add, key)
