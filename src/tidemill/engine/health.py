"""``/livez``, ``/readyz`` and ``/metrics`` for whoever runs the worker. It reports what it is told and knows nothing of jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tidemill.domain.exposition import CONTENT_TYPE
from tidemill.engine.numbers import worker_metrics
from tidemill.engine.tally import Tally
from tidemill.errors import BadSettings

LOOPBACK = "127.0.0.1"


class Verdict(NamedTuple):
    """How the worker is: ``reasons`` says why it is not alive or not ready; ``facts`` are shown beside it."""

    alive: bool
    ready: bool
    reasons: tuple[str, ...] = ()
    facts: Mapping[str, object] = {}
    tally: Callable[[], Tally] = Tally  #: adds up what its runners have done


class Health:
    """An HTTP server on a thread of its own, asking ``judge`` at every request; loopback unless told otherwise.

    ``/livez`` is 200 while the worker's own loop turns: a 503 there means "restart me". ``/readyz`` is 200 while it can take
    jobs: a 503 there means "leave me alone, I know", and says why.
    """

    def __init__(self, judge: Callable[[], Verdict], *, port: int, host: str = LOOPBACK) -> None:
        try:
            self._server = _Server((host, port), _Answer)
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
        """Stop answering; closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that never finishes its request holds nobody up
    judge: Callable[[], Verdict]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Answer(BaseHTTPRequestHandler):
    timeout = 5  # seconds for a client to say what it wants
    server: _Server

    def do_GET(self) -> None:
        verdict = self.server.judge()
        match self.path.partition("?")[0]:
            case "/livez":
                self._say(200 if verdict.alive else 503, {"alive": verdict.alive})
            case "/readyz":
                good = verdict.alive and verdict.ready
                body = {"ready": good, "reasons": list(verdict.reasons), **verdict.facts}
                self._say(200 if good else 503, body)
            case "/metrics":
                text = worker_metrics(verdict.alive, verdict.ready, verdict.facts, verdict.tally())
                self._answer(200, text.encode(), CONTENT_TYPE)
            case _:
                self._say(404, {"error": "there are /livez, /readyz and /metrics"})

    do_HEAD = do_GET  # noqa: N815  (the name is the protocol's)

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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's own word)
        """A probe every few seconds is no news."""
