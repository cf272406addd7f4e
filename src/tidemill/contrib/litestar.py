"""Litestar integration: plugin with lifespan, dependency and mounted dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, asgi
from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.plugins import InitPlugin

from tidemill.app import App
from tidemill.dashboard import create_site
from tidemill.errors import BadSettings
from tidemill.web.guard import Auth
from tidemill.web.settings import ApiSettings

__all__ = ["TidemillPlugin"]


@dataclass(frozen=True)
class AppState:
    """The value of ``site.state.tidemill``, in which the command line finds the app."""

    app: App


class TidemillPlugin(InitPlugin):
    """``Litestar(plugins=[TidemillPlugin(app, path="/jobs", worker=True)])``.

    ``path`` mounts the dashboard and the API; without it there is none. ``worker`` runs jobs in the process of the site,
    with default settings or with those of a mapping. Handlers receive the app as the dependency ``tidemill``. ``auth``
    identifies the users of a site with its own sign-in; without it, users sign in with an API key.
    """

    def __init__(
        self,
        app: App,
        *,
        path: str | None = None,
        worker: bool | Mapping[str, Any] = False,
        auth: Auth | None = None,
        settings: ApiSettings | None = None,
        close: bool = False,
    ) -> None:
        if path is not None and (not path.startswith("/") or path.endswith("/")):
            raise BadSettings(f"path is {path!r}; begin it with a slash, and end it without", setting="path")
        if isinstance(worker, Mapping):
            app.worker(**worker)  # refuse wrong settings now, not when the site starts
        self._app, self._path, self._worker, self._close = app, path, worker, close
        self._auth, self._settings = auth, settings

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the lifespan, the dependency and the dashboard."""
        app = self._app
        app_config.lifespan = [self._lifespan, *app_config.lifespan]
        app_config.dependencies["tidemill"] = Provide(lambda: app, sync_to_thread=False)
        app_config.signature_namespace["App"] = App
        app_config.state["tidemill"] = AppState(app)
        if self._path is not None:
            app_config.route_handlers = [*app_config.route_handlers, self._mount(self._path)]
        return app_config

    def _mount(self, path: str) -> Any:
        inner = create_site(self._app, auth=self._auth, settings=self._settings)

        async def dashboard(scope: Any, receive: Any, send: Any) -> None:
            await inner(scope, receive, send)

        dashboard.__annotations__ = {"scope": "Scope", "receive": "Receive", "send": "Send", "return": None}
        return asgi(path, is_mount=True, copy_scope=True)(dashboard)

    @asynccontextmanager
    async def _lifespan(self, _: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._close:
                stack.callback(self._app.close)
            if self._worker is not False:
                settings = self._worker if isinstance(self._worker, Mapping) else {}
                await stack.enter_async_context(self._app.worker(**settings))
            yield
