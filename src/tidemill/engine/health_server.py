"""The HTTP endpoints ``/livez``, ``/readyz`` and ``/metrics`` of a worker.

It reports the given verdict and does not depend on jobs.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from tidemill.domain.prometheus import CONTENT_TYPE
from tidemill.engine.health import LOOPBACK, HealthVerdict
from tidemill.engine.runner.metrics import worker_metrics
from tidemill.errors import BadSettings


class HealthServer:
    """An HTTP server on its own thread, which calls ``judge`` at every request. ``host`` is loopback by default.

    ``/livez`` returns 200 while the worker's own loop runs. A 503 there means that the worker should be restarted.
    ``/readyz`` returns 200 while the worker can take jobs. A 503 there contains the reasons and requires no restart.
    """

    def __init__(self, judge: Callable[[], HealthVerdict], *, port: int, host: str = LOOPBACK) -> None:
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _Answer)
        except (OSError, OverflowError) as error:
            raise BadSettings(
                f"the health endpoint cannot listen on {host}:{port}: {error}; choose another --health-port",
                host=host,
                port=port,
            ) from error
        self._server.judge = judge
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="tidemill-health", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that never finishes its request must not block the shutdown
    judge: Callable[[], HealthVerdict]

    def server_bind(self) -> None:
        """Bind without the base class's look-up of a host name, which may wait for a DNS server."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Server6(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Bind ``::`` for IPv4 clients too."""
        if self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Answer(BaseHTTPRequestHandler):
    timeout = 5  # seconds for a client to send its request
    server: _Server

    def do_GET(self) -> None:
        verdict = self.server.judge()
        match self.path.partition("?")[0]:
            case "/livez":
                self._say(200 if verdict.alive else 503, {"alive": verdict.alive})
            case "/readyz":
                good = verdict.alive and verdict.ready
                body = {"ready": good, "reasons": list(verdict.reasons), **verdict.details}
                self._say(200 if good else 503, body)
            case "/metrics":
                text = worker_metrics(verdict.alive, verdict.ready, verdict.details, verdict.counters())
                self._answer(200, text.encode(), CONTENT_TYPE)
            case _:
                self._say(404, {"error": "there are /livez, /readyz and /metrics"})

    do_HEAD = do_GET  # noqa: N815  (the protocol prescribes the name)

    def _say(self, code: int, body: Mapping[str, object]) -> None:
        self._answer(code, json.dumps(body).encode() + b"\n", "application/json")

    def _answer(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        return "tidemill"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes arrive every few seconds."""
