"""A TCP proxy before one broker that can keep a request back, or make the way to the broker long: what the network does
to anybody and nobody can do at will.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

TXN_OFFSET_COMMIT = 28  # Kafka's number of the request
END_TXN = 26


class KafkaProxy:
    """Listens on `port` and forwards to `target`, frame by frame in the clients' direction. Everything ends with
    `close`.

    Attributes:
        delay: seconds that whatever the broker says is under way.
    """

    def __init__(self, port: int = 0) -> None:
        self.delay = 0.0
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._keep: int | None = None
        self._kept: list[tuple[socket.socket, bytes]] = []
        self._came = threading.Event()
        self._sockets: list[socket.socket] = []

    def start(self, target: str) -> Self:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def keep_next(self, api_key: int) -> None:
        """Keep back the next request of this kind; what follows it goes through."""
        with self._lock:
            self._keep = api_key
            self._came.clear()

    def wait_kept(self, timeout: float) -> bool:
        """Whether a request was kept back within `timeout` s."""
        return self._came.wait(timeout)

    def release(self) -> int:
        """Let what was kept back go to the broker, on the connections it came by. Returns how many requests."""
        with self._lock:
            kept, self._kept = self._kept, []
        for upstream, frame in kept:
            upstream.sendall(frame)
        return len(kept)

    def close(self) -> None:
        self._closed.set()
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        assert self._target is not None
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)  # whatever comes of it, `close` closes it
            try:
                upstream = socket.create_connection(self._target)
            except OSError:  # the broker is away: so are we
                client.close()
                continue
            self._sockets.append(upstream)
            threading.Thread(target=self._requests, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self._replies, args=(upstream, client), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        """Frames: 4 bytes of length, then the request, which begins with its kind. The way to the broker stays open
        when the client has gone, for what is kept back.
        """
        try:
            while head := _exactly(client, 4):
                frame = head + _exactly(client, struct.unpack(">i", head)[0])
                (kind,) = struct.unpack_from(">h", frame, 4)
                with self._lock:
                    keep = kind == self._keep
                    if keep:
                        self._keep = None
                        self._kept.append((upstream, frame))
                        self._came.set()
                if not keep:
                    upstream.sendall(frame)
        except OSError:
            return

    def _replies(self, upstream: socket.socket, client: socket.socket) -> None:
        try:
            while data := upstream.recv(65536):
                self._closed.wait(self.delay)
                client.sendall(data)
        except OSError:
            return


def _exactly(source: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = source.recv(length - len(data))
        if not more:
            return b""
        data += more
    return data
