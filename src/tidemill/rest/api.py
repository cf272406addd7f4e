"""``create_api``: the application with all declared routes.

Every endpoint is a ``Endpoint``, so every request passes the guard.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tidemill.errors import BadSettings
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.guard import Auth, Guard, KeyCache
from tidemill.rest.middleware import Middleware
from tidemill.rest.openapi import openapi
from tidemill.rest.parsers import read_body, read_query, refuse_body
from tidemill.rest.problems import Problem, problem_of
from tidemill.rest.routes import Operation, Routes
from tidemill.rest.service import Service
from tidemill.rest.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App

FILES = (
    "job_creation", "job_bulk", "tick", "job_lookup", "job_actions", "events", "tasks", "definitions", "schedules", "queues",
    "pauses", "workers", "config", "archive", "audit", "keys", "stats", "health", "api_docs",
)  # fmt: skip
"""The route modules. Modules with literal paths precede those with a placeholder in the same place."""


class Endpoint:
    """Endpoint of one path with all its methods."""

    def __init__(self, service: Service, guard: Guard, acts: dict[str, Operation]) -> None:
        self._service, self._guard, self.acts = service, guard, acts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except Exception as error:  # noqa: BLE001  (problem_of logs unexpected errors)
            instance = scope["tidemill.correlation"]
            response = problem_of(error, instance).response(instance)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        verb = "GET" if request.method == "HEAD" else request.method
        route = self.acts.get(verb)
        if route is None:
            allowed = ", ".join(sorted(self.acts))
            raise Problem(
                405,
                None,
                f"{request.method[:20]} is not allowed here; allowed: {allowed}",
                headers={"allow": allowed},
            )
        identity = await self._guard.admit(route, request)
        query = read_query(route.query, request)
        if route.body is not None:
            body = await read_body(route.body, request, self._service.settings, optional=route.body_optional)
        else:
            body = None
            await refuse_body(request)
        return await route.handler(ApiRequest(self._service, route, request, identity, query, body))


def all_routes() -> list[Operation]:
    """Return all routes in matching order."""
    found: list[Operation] = []
    for name in FILES:
        routes = importlib.import_module(f"tidemill.rest.{name}").routes
        assert isinstance(routes, Routes)
        found += routes
    return found


def create_api(
    app: App, *, prefix: str = "", auth: Auth | None = None, settings: ApiSettings | None = None
) -> FastAPI:
    """Create the HTTP API of an app, ready to serve or mount.

    ``auth`` is a coroutine that identifies the caller of a request (``tidemill.domain.access.Identity``, or None if
    unknown). Without it, callers need an API key of the app. ``prefix`` is prepended to every path. ``app.close()``
    also closes the API.
    """
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise BadSettings(
            f"prefix is {prefix!r}; begin it with a slash, and end it without", setting="prefix"
        )
    chosen = settings or ApiSettings()
    service = Service(app, chosen)
    service.guard = guard = Guard(app, chosen, auth or KeyCache(app))

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.stop()

    api = FastAPI(title="Tidemill", openapi_url=None, docs_url=None, redoc_url=None, lifespan=life)
    api.router.redirect_slashes = False
    acts = all_routes()
    service.openapi = _document(prefix)
    for path, doors in _by_path(acts).items():
        api.router.routes.append(Route(prefix + path, Endpoint(service, guard, doors), name=path))
    check_guarded(api)
    api.openapi = lambda: service.openapi  # type: ignore[method-assign]
    api.add_exception_handler(HTTPException, _refused)
    api.add_middleware(Middleware, settings=chosen, prefix=prefix)
    api.state.tidemill = service
    return api


@lru_cache(maxsize=8)
def _document(prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document. It is the same for every app, so it is built once per prefix."""
    return openapi(all_routes(), prefix)


def check_guarded(api: FastAPI) -> None:
    """Raise an error for a route without a declaration, because nothing would specify who may call it."""
    for route in api.router.routes:
        if not isinstance(route, Route) or not isinstance(route.endpoint, Endpoint):
            raise BadSettings(f"route {getattr(route, 'path', route)!r} does not say which role may call it")


def _by_path(acts: Iterable[Operation]) -> dict[str, dict[str, Operation]]:
    found: dict[str, dict[str, Operation]] = {}
    for act in acts:
        if found.setdefault(act.path, {}).setdefault(act.method, act) is not act:
            raise BadSettings(f"{act.method} {act.path} is declared twice")
    return found


async def _refused(request: Request, error: Exception) -> Response:
    """Convert errors of the router, such as 404 for an unknown path."""
    instance: str = request.scope["tidemill.correlation"]
    return problem_of(error, instance).response(instance)
