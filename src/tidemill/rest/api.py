"""``create_api``: the application with all declared routes.

Every endpoint is an ``ApiEndpoint``, so every request passes the guard.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidemill.rest import (
    access,
    api_docs,
    archive,
    archive_changes,
    audit,
    batches,
    config,
    definitions,
    errors,
    events,
    flows,
    health,
    hooks,
    job_actions,
    job_bulk,
    job_creation,
    job_lookup,
    job_streams,
    keys,
    limits,
    logs,
    notifications,
    pauses,
    queues,
    schedules,
    sessions,
    shards,
    signal_links,
    signals,
    stats,
    stores,
    tasks,
    tenants,
    tick,
    workers,
)
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.openapi import openapi
from tidemill.rest.parsers import read_body, read_query, refuse_body
from tidemill.rest.routes import ApiOperation
from tidemill.web.app import check_guarded, create_web_app
from tidemill.web.endpoint import Endpoint
from tidemill.web.guard import Auth
from tidemill.web.routes import by_path
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App

MODULES = (
    job_creation, job_bulk, tick, job_lookup, job_actions, job_streams, events, signals, hooks, signal_links, flows, batches, tasks, definitions, schedules,
    queues, pauses, limits, errors, tenants, workers,
    logs, config, archive, archive_changes, audit, keys, access, sessions, notifications, stats, stores, shards, health, api_docs,
)  # fmt: skip
"""The route modules. Modules with literal paths precede those with a placeholder in the same place."""


STORE = "tidemill-store"
"""Header that names a store: in a request the store to address, in a response the one that was addressed."""


class ApiEndpoint(Endpoint[ApiOperation]):
    """Endpoint of one path of the API."""

    async def respond(self, operation: ApiOperation, request: Request) -> Response:
        service = self.service
        identity = await service.guard.admit(operation, request)
        query = read_query(operation.query, request)
        if operation.body is not None:
            body = await read_body(
                operation.body, request, service.settings, optional=operation.body_optional
            )
        else:
            body = None
            if not operation.raw:
                refuse_body(request)
        store = getattr(query, "store", None) or request.scope["tidemill.headers"].get(STORE)
        if store is not None and operation.role is not None:
            service = service.at(store)
        call = ApiRequest(service, operation, request, identity, query, body)
        response = await operation.handler(call)
        if not call.is_checked:
            call.finish()
        if call.service.has_several_stores and operation.role is not None:
            response.headers[STORE] = call.service.store_name
        return response


def all_routes() -> list[ApiOperation]:
    """Return all routes in matching order."""
    return [operation for module in MODULES for operation in module.routes]


def create_api(
    app: App, *, prefix: str = "", auth: Auth | None = None, settings: ApiSettings | None = None
) -> Starlette:
    """Create the HTTP API of an app, ready to serve or mount.

    ``auth`` is a coroutine that identifies the caller of a request (``tidemill.Identity``, or None if unknown). Without it, callers need an API key of the app. ``prefix`` is prepended to every path. ``app.close()``
    also closes the API.
    """
    api = create_web_app(app, prefix=prefix, auth=auth, settings=settings)
    service = api.state.tidemill
    service.openapi = _document(prefix)
    for path, operations in by_path(all_routes()).items():
        api.routes.append(Route(prefix + path, ApiEndpoint(service, operations), name=path))
    check_guarded(api)
    return api


@lru_cache(maxsize=8)
def _document(prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document. It is the same for every app, so it is built once per prefix."""
    return openapi(all_routes(), prefix)
