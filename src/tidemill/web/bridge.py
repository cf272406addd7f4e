"""Bridge from synchronous frameworks to the dashboard, which is an ASGI application.

Requests run on an event loop in a thread of its own, so that WSGI and ASGI servers are served alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp

from tidemill.domain.access import Identity
from tidemill.loop_thread import LoopThread

T = TypeVar("T")

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_IDENTITY = "tidemill.identity"
_END = None


class BridgedRequest:
    """One request to the site, on the loop of a ``LoopThread``."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self._scope = scope
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def start(self, site: ASGIApp) -> dict[str, Any]:
        """Begin the request and return its first message: status and headers."""
        self._task = asyncio.create_task(self._serve(site))
        message = await self._sent.get()
        if message is None:
            await self._task  # raises the error of a request without a response
            raise RuntimeError("the dashboard sent no response")
        return message

    async def _serve(self, site: ASGIApp) -> None:
        try:
            await site(self._scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(_END)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._sent.put_nowait(message)

    async def chunk(self) -> bytes | None:
        """Return the next part of the body; None at its end."""
        message = await self._sent.get()
        return (
            None if message is _END or message["type"] != "http.response.body" else message.get("body", b"")
        )

    async def body(self) -> bytes:
        """Return the whole body."""
        parts = []
        while (part := await self.chunk()) is not None:
            parts.append(part)
        return b"".join(parts)

    async def leave(self) -> None:
        """End the request as a client that closes its connection."""
        self._gone.set()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


class BridgedAnswer:
    """The response of the site to a request of a synchronous framework."""

    def __init__(self, thread: LoopThread, request: BridgedRequest, start: Mapping[str, Any]) -> None:
        self._thread, self.request = thread, request
        self.status: int = start["status"]
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]

    @property
    def is_stream(self) -> bool:
        """Whether the body is an event stream, which has no end."""
        return any(
            name.lower() == "content-type" and value.startswith("text/event-stream")
            for name, value in self.headers
        )

    def body(self) -> bytes:
        """Return the whole body."""
        return self._thread.run(self.request.body()).result()

    def parts(self) -> Iterator[bytes]:
        """Yield the body in parts; the request ends with the iterator."""
        try:
            while (part := self._thread.run(self.request.chunk()).result()) is not None:
                yield part
        finally:
            self.leave()

    def leave(self) -> None:
        """End the request."""
        self._thread.run(self.request.leave()).result()


def ask(thread: LoopThread, site: ASGIApp, scope: dict[str, Any], body: bytes) -> BridgedAnswer:
    """Send a request to the site and wait for the head of its response."""
    request = thread.run(_made(scope, body)).result()
    return BridgedAnswer(thread, request, thread.run(request.start(site)).result())


async def _made(scope: dict[str, Any], body: bytes) -> BridgedRequest:
    return BridgedRequest(scope, body)


def request_scope(
    *,
    method: str,
    scheme: str,
    path: str,
    root_path: str,
    query: str,
    headers: Mapping[str, str],
    client: str | None,
    host: str,
    identity: Identity | None,
) -> dict[str, Any]:
    """Return the ASGI scope of a request. ``path`` is the whole path, and ``root_path`` that of the mount."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1"),
        "root_path": root_path.rstrip("/"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in headers.items()
        ],
        "client": (client or "unknown", 0),
        "server": (host, None),
        _IDENTITY: identity,
    }


async def bridged_identity(request: Request) -> Identity | None:
    """Return the identity that the framework has found; for ``create_site(auth=…)``."""
    identity: Identity | None = request.scope.get(_IDENTITY)
    return identity


def is_same_site(headers: Mapping[str, str], host: str) -> bool:
    """Whether a request comes from a page of this host, or from a program. Names are in lower case or in any case."""
    origin = headers.get("origin")
    if origin not in (None, "null") and urlsplit(origin).netloc != host:
        return False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
