"""The ASGI application of the HTTP API and the dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from tidemill.errors import BadSettings
from tidemill.web.access_tokens import access_tokens
from tidemill.web.endpoint import Endpoint
from tidemill.web.guard import Auth, KeyCache
from tidemill.web.middleware import Middleware
from tidemill.web.service import Service
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App


class WebApp(Starlette):
    """A Starlette application whose own middleware converts every error.

    ``Middleware`` and the endpoints leave no error for Starlette's two error middlewares, which cost 13 calls per
    request. They are added only with exception handlers of a user, which need them.
    """

    def build_middleware_stack(self) -> ASGIApp:
        if self.exception_handlers:
            return super().build_middleware_stack()
        app: ASGIApp = self.router
        for middleware, args, options in reversed(self.user_middleware):
            app = middleware(app, *args, **options)
        return app


def create_web_app(app: App, *, prefix: str, auth: Auth | None, settings: ApiSettings | None) -> WebApp:
    """Create an application without routes. ``web_app.state.tidemill`` is its ``Service``."""
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise BadSettings(
            f"prefix is {prefix!r}; begin it with a slash, and end it without", setting="prefix"
        )
    settings = settings or ApiSettings()
    service = Service(app, settings, auth or KeyCache(app, None, access_tokens(app, settings)))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    web_app = WebApp(lifespan=lifespan)
    web_app.router.redirect_slashes = False
    web_app.add_middleware(Middleware, settings=settings, prefix=prefix)
    web_app.state.tidemill = service
    return web_app


def check_guarded(web_app: Starlette) -> None:
    """Raise an error for a route without a declared operation, because nothing would specify who may call it."""
    for route in web_app.routes:
        if not isinstance(route, Route) or not isinstance(route.endpoint, Endpoint):
            raise BadSettings(f"route {getattr(route, 'path', route)!r} does not say which role may call it")
