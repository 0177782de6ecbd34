"""The functions of the pools' cases, for the engine and for the bare loops; processes import them too."""

from __future__ import annotations

import asyncio
import time


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


def keep_all(values: list[bytes]) -> list[bool]:
    return [value[0] != 48 for value in values]


def map_all(values: list[bytes]) -> list[bytes]:
    return [value[:100] for value in values]
