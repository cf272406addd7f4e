"""Dashboard and HTTP API as a Django view, under ASGI and WSGI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, StreamingHttpResponse
from django.utils.crypto import salted_hmac
from django.views.decorators.csrf import csrf_exempt
from starlette.applications import Starlette

from tidemill.contrib.django.project import PROJECT
from tidemill.dashboard import create_site
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.loop_thread import LoopThread
from tidemill.stores.base import Store
from tidemill.web.bridge import (
    SAFE_METHODS,
    BridgedAnswer,
    BridgedRequest,
    ask,
    bridged_identity,
    is_same_site,
    request_scope,
)
from tidemill.web.settings import ApiSettings
from tidemill.web.shutdown import Shutdown


class SiteThread(LoopThread):
    """The dashboard of the project, and the thread with its event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._making = threading.Lock()
        self._site: tuple[Store, Starlette] | None = None

    @property
    def site(self) -> Starlette:
        """The application; a new one after a test runner has changed the database."""
        app = PROJECT.synced()
        with self._making:
            if self._site is None or self._site[0] is not app.store:
                # Every process of a server must accept the forms of the others.
                secret = salted_hmac("tidemill.contrib.django", "dashboard", algorithm="sha256").hexdigest()
                made = create_site(app, auth=bridged_identity, settings=ApiSettings(session_secret=secret))
                self._site = app.store, made
            return self._site[1]


SITE = SiteThread()


@csrf_exempt
def dashboard(request: HttpRequest, rest: str) -> Any:
    """Serve the dashboard and the API to staff. Other users are sent to the sign-in page.

    Superusers have every role; staff with the permission ``tidemill.operate_storedjob`` may change jobs, and other
    staff may look. Forms of the dashboard have their own CSRF tokens, and other sites' requests are refused.
    """
    user: Any = request.user
    if not (user.is_authenticated and user.is_staff):
        if request.method in SAFE_METHODS and not rest.startswith(("api/", "live")):
            return redirect_to_login(request.get_full_path())
        return HttpResponseForbidden("sign in as a member of the staff first")
    if request.method not in SAFE_METHODS and not is_same_site(request.headers, request.get_host()):
        return HttpResponseForbidden("this request was sent from another site")
    site = SITE.site
    answer = ask(SITE, site, _scope(request, rest, _identity_of(user)), request.body)
    if not answer.is_stream:
        return _filled(HttpResponse(answer.body()), answer)
    if isinstance(request, ASGIRequest):
        return _filled(StreamingHttpResponse(_chunks(answer.request, site.state.tidemill.stopping)), answer)
    # A stream would occupy a thread of the server for as long as the page is open. 204 ends it permanently.
    answer.leave()
    return HttpResponse(status=204)


def _filled(response: Any, answer: BridgedAnswer) -> Any:
    response.status_code = answer.status
    del response["content-type"]
    for name, value in answer.headers:
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        elif name.lower() != "content-length" or not response.streaming:
            response[name] = value
    return response


async def _chunks(inner: BridgedRequest, stopping: Shutdown) -> AsyncIterator[bytes]:
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
    return request_scope(
        method=request.method or "GET",
        scheme=request.scheme or "http",
        path=path,
        root_path=path[: len(path) - len(rest)] if rest else path,
        query=request.META.get("QUERY_STRING", ""),
        headers=request.headers,
        client=request.META.get("REMOTE_ADDR"),
        host=request.get_host(),
        identity=identity,
    )


def _identity_of(user: Any) -> Identity:
    if user.is_superuser:
        role = Role.SUPER_ADMIN
    elif user.has_perm("tidemill.operate_storedjob"):
        role = Role.OPERATOR
    else:
        role = Role.VIEWER
    return Identity(f"django:{user.get_username()}", role, ALL_TENANTS)
