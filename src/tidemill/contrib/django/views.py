"""Dashboard and HTTP API as a Django view, under ASGI and WSGI.

The dashboard is an ASGI application. It runs on an event loop in a thread of its own, so that it serves a synchronous
and an asynchronous server alike.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from starlette.applications import Starlette
from starlette.requests import Request

from tidemill.contrib.django.project import PROJECT
from tidemill.dashboard import create_site
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.stores.base import Store
from tidemill.web.shutdown import Shutdown

T = TypeVar("T")

_IDENTITY = "tidemill.django"
_SAFE = ("GET", "HEAD", "OPTIONS")
_END = None


class SiteThread:
    """The dashboard of the project, and the thread with its event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._site: tuple[Store, Starlette] | None = None

    @property
    def site(self) -> Starlette:
        """The application; a new one after a test runner has changed the database."""
        app = PROJECT.synced()
        with self._lock:
            if self._site is None or self._site[0] is not app.store:
                self._site = app.store, create_site(app, auth=_identity)
            return self._site[1]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of this thread."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="tidemill-dashboard", daemon=True
                ).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


SITE = SiteThread()


async def _identity(request: Request) -> Identity | None:
    identity: Identity | None = request.scope.get(_IDENTITY)
    return identity


class DashboardRequest:
    """One request to the dashboard, on the loop of the site."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self._scope = scope
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def start(self, site: Starlette) -> dict[str, Any]:
        """Begin the request and return its first message: status and headers."""
        self._task = asyncio.create_task(self._serve(site))
        message = await self._sent.get()
        if message is None:
            await self._task  # raises the error of a request without a response
            raise RuntimeError("the dashboard sent no response")
        return message

    async def _serve(self, site: Starlette) -> None:
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


async def _made(scope: dict[str, Any], body: bytes) -> DashboardRequest:
    return DashboardRequest(scope, body)


@csrf_exempt
def dashboard(request: HttpRequest, rest: str) -> Any:
    """Serve the dashboard and the API to staff. Other users are sent to the sign-in page.

    Superusers have every role; staff with the permission ``tidemill.operate_storedjob`` may change jobs, and other
    staff may look. Forms of the dashboard have their own CSRF tokens, and other sites' requests are refused.
    """
    user: Any = request.user
    if not (user.is_authenticated and user.is_staff):
        if request.method in _SAFE and not rest.startswith(("api/", "live")):
            return redirect_to_login(request.get_full_path())
        return HttpResponseForbidden("sign in as a member of the staff first")
    if request.method not in _SAFE and not _is_same_site(request):
        return HttpResponseForbidden("this request was sent from another site")
    inner = SITE.run(_made(_scope(request, rest, _identity_of(user)), request.body)).result()
    site = SITE.site
    start = SITE.run(inner.start(site)).result()
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    if any(
        name.lower() == "content-type" and value.startswith("text/event-stream") for name, value in headers
    ):
        if isinstance(request, ASGIRequest):
            return _answer(
                StreamingHttpResponse(_chunks(inner, site.state.tidemill.stopping)), start, headers
            )
        # A stream would occupy a thread of the server for as long as the page is open. 204 ends it permanently.
        SITE.run(inner.leave()).result()
        return HttpResponse(status=204)
    return _answer(HttpResponse(SITE.run(inner.body()).result()), start, headers)


def _answer(response: Any, start: dict[str, Any], headers: list[tuple[str, str]]) -> Any:
    response.status_code = start["status"]
    del response["content-type"]
    for name, value in headers:
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        elif name.lower() != "content-length" or not response.streaming:
            response[name] = value
    return response


async def _chunks(inner: DashboardRequest, stopping: Shutdown) -> AsyncIterator[bytes]:
    """The parts of an event stream, on the loop of the server, until the client leaves or the server stops."""
    stop = asyncio.Event()
    stopping.subscribe(stop)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while True:
            part = asyncio.wrap_future(SITE.run(inner.chunk()))
            ends: list[asyncio.Future[Any]] = [part, stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not part.done():
                part.cancel()
                return
            if (data := part.result()) is None:
                return
            yield data
    finally:
        stopped.cancel()
        stopping.unsubscribe(stop)
        SITE.run(inner.leave())


def _scope(request: HttpRequest, rest: str, identity: Identity) -> dict[str, Any]:
    path = request.path
    root = path[: len(path) - len(rest)] if rest else path
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": path,
        "raw_path": path.encode(),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "root_path": root.rstrip("/"),
        "headers": headers,
        "client": (request.META.get("REMOTE_ADDR") or "unknown", 0),
        "server": (request.get_host(), None),
        _IDENTITY: identity,
    }


def _identity_of(user: Any) -> Identity:
    if user.is_superuser:
        role = Role.SUPER_ADMIN
    elif user.has_perm("tidemill.operate_storedjob"):
        role = Role.OPERATOR
    else:
        role = Role.VIEWER
    return Identity(f"django:{user.get_username()}", role, ALL_TENANTS)


def _is_same_site(request: HttpRequest) -> bool:
    origin = request.headers.get("origin")
    if origin not in (None, "null") and urlsplit(origin).netloc != request.get_host():
        return False
    return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
