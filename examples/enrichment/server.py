"""A service that knows prices: python server.py [PORT]. It takes its time, and now and then it is too busy to answer."""

from __future__ import annotations

import asyncio
import random
import sys

chance = random.Random(1)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            line = (await reader.readuntil(b"\r\n\r\n")).decode()
            article = int(line.split()[1].rpartition("/")[2])
            await asyncio.sleep(0.02)
            status, body = "200 OK", f'{{"price": {price(article)}}}'
            if chance.random() < 0.1:
                status, body = "503 Service Unavailable", "{}"
            elif article % 50 == 0:
                status, body = "404 Not Found", "{}"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def price(article: int) -> int:
    """Cents."""
    return 100 + article * 37 % 1000


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8099))
