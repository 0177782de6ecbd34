"""The work queue: each key once, never by two at a time, and no failure that delays another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millrace_operator.work_queue import Key, WorkQueue

pytestmark = pytest.mark.unit


def at_work(queue: WorkQueue, test: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        task = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(test(), 20)
        finally:
            task.cancel()

    asyncio.run(run())


def test_a_key_added_twice_is_worked_on_once_and_again_if_added_meanwhile() -> None:
    done: list[Key] = []
    gate = asyncio.Event()

    async def work(key: Key) -> None:
        done.append(key)
        await gate.wait()

    queue = WorkQueue(work, concurrency=4)

    async def test() -> None:
        queue.add(("a", "x"))
        queue.add(("a", "x"))
        while not done:
            await asyncio.sleep(0)
        queue.add(("a", "x"))
        await asyncio.sleep(0.01)
        assert done == [("a", "x")]  # not by two at a time
        gate.set()
        while len(done) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert len(done) == 2

    at_work(queue, test)


def test_one_that_fails_comes_back_and_the_others_go_on() -> None:
    done: list[Key] = []

    async def work(key: Key) -> None:
        done.append(key)
        if key == ("a", "bad") and done.count(key) == 1:
            raise ValueError("no")

    queue = WorkQueue(work, concurrency=1)

    async def test() -> None:
        for name in ("bad", "one", "two"):
            queue.add(("a", name))
        while done.count(("a", "bad")) < 2:
            await asyncio.sleep(0.01)
        assert done == [("a", "bad"), ("a", "one"), ("a", "two"), ("a", "bad")]
        assert (queue.failed, queue.done) == (1, 3)

    at_work(queue, test)


def test_a_key_comes_back_after_the_pause_that_its_work_asks_for() -> None:
    done: list[Key] = []

    async def work(key: Key) -> float | None:
        done.append(key)
        return 0.01 if len(done) < 3 else None

    queue = WorkQueue(work)

    async def test() -> None:
        queue.add(("a", "x"))
        while len(done) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert len(done) == 3

    at_work(queue, test)
