"""Health, metrics and status over HTTP, on a thread of its own.

| path | answer |
|---|---|
| /livez | 200 while the loop made progress within its bound, else 503: restart this worker |
| /readyz | 200, or 503 with the reasons, one a line |
| /metrics | Prometheus' text form |
| /status | the snapshot as JSON |

All of them read one snapshot that the loop made; a request costs the loop nothing, and a stuck loop still answers.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

import msgspec

from millrace.errors import ExitCode, MillraceError
from millrace.worker.metrics import exposition
from millrace.worker.status import WorkerStatus, encode

Answer = tuple[int, str, bytes]
"""Status code, content type and body."""


class Health(Protocol):
    """What the server asks; worker.pulse.Pulse answers."""

    bound: float
    """Seconds of no progress after which the loop counts as stuck."""

    def status(self) -> WorkerStatus: ...
    def since_progress(self) -> float: ...


def parse_address(text: str) -> tuple[str, int]:
    """`ADDR:PORT`, `:PORT` (all addresses) or `[V6]:PORT`. Raises MillraceError (USAGE)."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise MillraceError(
            f"{text!r} is no address to listen on",
            where="--http",
            remedy="give ADDR:PORT, such as 127.0.0.1:9400, or :9400 for all addresses",
            code=ExitCode.USAGE,
        )
    return host.strip("[]"), int(port)


class HealthServer:
    """Listens from construction on. `port` is the one really taken (0 asks for any free one).

    Args:
        site: the answer to a path. It is asked on threads of the server's.

    Raises: MillraceError (BUSY) if the port is in use, (USAGE) if the address is not one of this machine.
    """

    def __init__(self, address: tuple[str, int], site: Callable[[str], Answer]) -> None:
        self._host = address[0]
        try:
            self._server = _Server(address, _handler(site))
        except OSError as error:
            raise _refused(address, error) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """HOST:PORT; a name of this machine where it listens at all addresses."""
        return f"{self._host or 'localhost'}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _refused(address: tuple[str, int], error: OSError) -> MillraceError:
    host, port = address
    if error.errno == errno.EADDRINUSE:
        return MillraceError(
            f"port {port} is in use by another process",
            where=f"--http {host}:{port}",
            remedy=f"choose another port, or find its user with `ss -ltnp 'sport = :{port}'`",
            code=ExitCode.BUSY,
        )
    return MillraceError(
        f"can't listen on {host}:{port}: {error.strerror or error}",
        where=f"--http {host}:{port}",
        remedy="give an address of this machine, and a port above 1023 unless you are root",
        code=ExitCode.USAGE,
    )


def _handler(site: Callable[[str], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "millrace"

        def do_GET(self) -> None:
            code, kind, body = site(self.path.partition("?")[0])
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


TEXT = "text/plain; charset=utf-8"


def site_of(health: Health) -> Callable[[str], Answer]:
    """What a worker serves."""
    return partial(answer, health=health)


def answer(path: str, health: Health) -> Answer:
    """A worker's answer to a path."""
    match path:
        case "/livez":
            idle = health.since_progress()
            if idle <= health.bound:
                return 200, TEXT, b"ok\n"
            return 503, TEXT, f"no progress for {idle:.0f} s (bound {health.bound:.0f} s)\n".encode()
        case "/readyz":
            status = health.status()
            if status.ready:
                return 200, TEXT, b"ok\n"
            return 503, TEXT, ("\n".join(status.reasons or (status.state,)) + "\n").encode()
        case "/metrics":
            kind, body = exposition(health.status())
            return 200, kind, body
        case "/status":
            return 200, "application/json", msgspec.json.format(encode(health.status())) + b"\n"
        case _:
            return 404, TEXT, b"there is /livez /readyz /metrics /status\n"
