"""Health and metrics of the operator over HTTP, on a thread of its own.

| path | answer |
|---|---|
| /livez | 200 while the process serves |
| /readyz | 200 while it leads and works; 503 while another does |
| /metrics | Prometheus' text form |
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from millrace_operator.work_queue import WorkQueue


class Health:
    """Written by the operator, read by the server."""

    def __init__(self) -> None:
        self.alive = False
        self.ready = False
        self.queue: WorkQueue | None = None

    def answer(self, path: str) -> tuple[int, str]:
        match path:
            case "/livez":
                return 200, "ok\n"
            case "/readyz":
                return (200, "ok\n") if self.ready else (503, "waits for the leadership or the first lists\n")
            case "/metrics":
                return 200, self._metrics()
            case _:
                return 404, "there is /livez /readyz /metrics\n"

    def _metrics(self) -> str:
        queue = self.queue
        figures = {
            "millrace_operator_leading": ("gauge", "1 while this process leads.", int(self.ready)),
            "millrace_operator_queue_depth": ("gauge", "Pipelines that wait.", queue.depth if queue else 0),
            "millrace_operator_reconciles_total": ("counter", "Done.", queue.done if queue else 0),
            "millrace_operator_reconcile_failures_total": (
                "counter",
                "Failed.",
                queue.failed if queue else 0,
            ),
        }
        return "".join(
            f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n"
            for name, (kind, text, value) in figures.items()
        )


def serve(address: str, health: Health) -> ThreadingHTTPServer:
    """Listens at ADDR:PORT or :PORT; `server_close` ends it. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            code, body = health.answer(self.path.partition("?")[0])
            content = body.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
