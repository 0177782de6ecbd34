"""The functions that ours and the peers call, the very same; processes import them too.

With BENCH_CALLS=FILE each call adds a byte to that file, also from other processes: how `engine.py --check` counts them.
Standard library only, as child.py.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any


def keep(value: bytes) -> bool:
    return value[0] != 48


def change(value: bytes) -> bytes:
    return value[:100]


def keep_json(value: dict[str, object]) -> bool:
    return value["cancelled"] is not True


def change_json(value: dict[str, object]) -> dict[str, object]:
    return {"carrier": value["carrier"], "delay": value["delay"]}


def keep_all(values: list[bytes]) -> list[bool]:
    return [value[0] != 48 for value in values]


def change_all(values: list[bytes]) -> list[bytes]:
    return [value[:100] for value in values]


def turn(value: bytes) -> bytes:
    """As long as it was: for what is produced."""
    return b"." + value[1:]


def trivial(value: bytes) -> bytes:
    return value[:100]


def busy(value: bytes) -> bytes:
    """100 us of the CPU."""
    end = time.thread_time_ns() + 100_000
    while time.thread_time_ns() < end:
        pass
    return value


async def trivial_async(value: bytes) -> bytes:
    return value[:100]


async def waits(value: bytes) -> bytes:
    await asyncio.sleep(0.001)
    return value[:100]


def _counted(function: Callable[..., Any], into: int, *, many: bool = False) -> Callable[..., Any]:
    def call(value: Any) -> Any:
        os.write(into, b"." * (len(value) if many else 1))
        return function(value)

    return call


def _counted_async(
    function: Callable[[bytes], Coroutine[Any, Any, bytes]], into: int
) -> Callable[[bytes], Coroutine[Any, Any, bytes]]:
    async def call(value: bytes) -> bytes:
        os.write(into, b".")
        return await function(value)

    return call


if _file := os.environ.get("BENCH_CALLS"):
    # of two functions that are called one after the other only the first is counted: it sees every message
    _calls = os.open(_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    keep, keep_json = _counted(keep, _calls), _counted(keep_json, _calls)
    keep_all = _counted(keep_all, _calls, many=True)
    turn, trivial, busy = _counted(turn, _calls), _counted(trivial, _calls), _counted(busy, _calls)
    trivial_async, waits = _counted_async(trivial_async, _calls), _counted_async(waits, _calls)
