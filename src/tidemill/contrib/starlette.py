"""Starlette integration: lifespan with an embedded worker, and a mounted dashboard.

It serves FastAPI as well, whose applications are Starlette applications.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import FrameType
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from tidemill.app import App
from tidemill.dashboard import create_site
from tidemill.errors import BadSettings, UsageError
from tidemill.web.guard import Auth
from tidemill.web.settings import ApiSettings

__all__ = ["get_app", "lifespan", "mount"]

Site = TypeVar("Site", bound=Starlette)
Lifespan = Callable[[Site], AbstractAsyncContextManager[Any]]

_APPS = "tidemill_apps"


def lifespan(
    app: App,
    *,
    worker: bool | Mapping[str, Any] = False,
    then: Lifespan[Site] | None = None,
    close: bool = False,
) -> Lifespan[Site]:
    """Return the lifespan of a site with background jobs: ``FastAPI(lifespan=lifespan(app, worker=True))``.

    ``worker`` runs jobs in the process of the site, with default settings or with those of a mapping, such as
    ``{"concurrency": 10, "grace": "5s"}``. ``then`` is the site's own lifespan: it starts before the worker and ends
    after the worker has finished its jobs, so tasks may use what it opens. ``close`` closes the app at the end, for an
    app that the site alone uses.
    """
    if not isinstance(worker, bool | Mapping):
        raise BadSettings(
            f"worker is {worker!r}; give True, False or the settings of a worker", setting="worker"
        )
    if isinstance(worker, Mapping):
        app.worker(**worker)  # refuse wrong settings now, not when the site starts

    @asynccontextmanager
    async def run(site: Site) -> AsyncIterator[Any]:
        _remember(site, app)
        async with AsyncExitStack() as stack:
            stack.callback(_release_sigterm)
            if close:
                stack.callback(app.close)
            state = None if then is None else await stack.enter_async_context(then(site))
            if worker is not False:
                settings = worker if isinstance(worker, Mapping) else {}
                await stack.enter_async_context(app.worker(**settings))
                stack.callback(_hold_sigterm)
            yield state

    return run


def mount(
    site: Starlette,
    app: App,
    path: str = "/jobs",
    *,
    auth: Auth | None = None,
    settings: ApiSettings | None = None,
) -> Starlette:
    """Mount the dashboard and the HTTP API of an app into a site: pages at ``/jobs``, the API at ``/jobs/api``.

    ``auth`` is a coroutine that identifies the user of a request (``tidemill.Identity``, or None if unknown), for a site
    with its own sign-in. Without it, users sign in with an API key. Event streams end when the server stops.
    """
    if not path.startswith("/") or path.endswith("/"):
        raise BadSettings(f"path is {path!r}; begin it with a slash, and end it without", setting="path")
    inner = create_site(app, auth=auth, settings=settings)
    site.mount(path, inner)
    _remember(site, app)
    return inner


async def get_app(connection: HTTPConnection) -> App:
    """Return the app of the site that serves a request; it must have been passed to ``lifespan`` or ``mount``."""
    apps: list[App] = getattr(connection.app.state, _APPS, [])
    if len(apps) != 1:
        raise UsageError(
            f"the site has {len(apps)} Tidemill apps; pass exactly one to lifespan(app) or mount(site, app),"
            " or import the app itself"
        )
    return apps[0]


def _hold_sigterm() -> None:
    """Ignore SIGTERM while the worker finishes its jobs, if the signal would end the process.

    When the first of several hypercorn workers has ended, hypercorn sends the others SIGTERM, which they do not handle.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Unlike SIG_IGN, a handler is not inherited by programs that the process starts.
        signal.signal(signal.SIGTERM, _ignore)


def _release_sigterm() -> None:
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _remember(site: Starlette, app: App) -> None:
    apps: list[App] = getattr(site.state, _APPS, [])
    if not any(other is app for other in apps):
        setattr(site.state, _APPS, [*apps, app])
