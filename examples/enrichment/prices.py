"""The function of pipeline.yaml, and a client of HTTP of a few lines. In earnest one takes aiohttp or httpx."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import millrace

HOST, _, PORT = os.environ.get("PRICES", "127.0.0.1:8099").partition(":")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
idle: list[Connection] = []  # all calls are in one event loop, so that they can share connections


class Unavailable(Exception):
    """The service is busy: worth another attempt."""


async def priced(order: dict[str, Any]) -> dict[str, Any]:
    """The order with its price. An article that the service does not know makes it Invalid."""
    status, content = await get(f"/prices/{order['article']}")
    if status == 404:
        raise millrace.Invalid(f"no price for article {order['article']}")
    if status != 200:
        raise Unavailable(f"status {status}")
    return {**order, "price": json.loads(content)["price"] * order["count"]}


async def get(path: str) -> tuple[int, bytes]:
    """Status and body. Raises OSError."""
    reader, writer = idle.pop() if idle else await asyncio.open_connection(HOST, int(PORT))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        content = await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    except asyncio.IncompleteReadError as error:
        writer.close()
        raise ConnectionResetError("the service hung up") from error
    except (
        BaseException
    ):  # a timeout cancels us: what comes over this connection is no answer to anybody else
        writer.close()
        raise
    idle.append((reader, writer))
    return int(head.split()[1]), content
