"""Authorised API request: caller, tenant, input, and response helpers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json
from starlette.requests import Request
from starlette.responses import Response

from tidemill.client.access import acting
from tidemill.client.core import client_of
from tidemill.client.jobs.handle import Job
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow as Facts
from tidemill.rest.masks import masked
from tidemill.rest.problems import Problem
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.options import check_name

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.rest.routes import Guarded
    from tidemill.rest.service import Service

P = ParamSpec("P")
R = TypeVar("R")

JSON = "application/json"


def encode(document: Any) -> bytes:
    """Encode a document as JSON. Lone surrogates, which UTF-8 cannot represent, are escaped."""
    try:
        return to_json(document)
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(document, separators=(",", ":"), default=str).encode()


class ApiRequest:
    """The request that a route's coroutine receives."""

    __slots__ = ("body", "identity", "query", "request", "route", "service", "tenant")

    def __init__(
        self, service: Service, route: Guarded, request: Request, identity: Identity, query: Any, body: Any
    ) -> None:
        self.service = service
        self.route = route
        self.request = request
        self.identity = identity
        self.query = query
        self.body = body
        self.tenant = self.chosen(getattr(query, "tenant", None)) or identity.tenant
        """The tenant whose data may be read, or ``"*"``."""

    # Caller and tenant -------------------------------------------------------------------------------------------------

    @property
    def app(self) -> App:
        return self.service.app

    @property
    def home(self) -> str:
        """The tenant to write for: the key's, the selected one, or the app's own."""
        return self.tenant if self.tenant != ALL_TENANTS else client_of(self.app).tenant

    def chosen(self, wanted: str | None) -> str | None:
        """Return the requested tenant if the caller may use it; None if none was requested."""
        if wanted is None:
            return None
        check_name("tenant", wanted)
        if not self.identity.sees(wanted):
            raise Problem(403, "wrong_tenant", f"this key is for tenant {self.identity.tenant}")
        return wanted

    def need(self, role: Role) -> None:
        """Raise 403 if the caller lacks a role that only some requests to this route need."""
        if not self.identity.role.allows(role):
            raise Problem(
                403, None, f"this requires the role {role.value}; yours is {self.identity.role.value}"
            )

    # Request -----------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> dict[str, Any]:
        """Path parameters."""
        return self.request.path_params

    @property
    def correlation(self) -> str:
        """Correlation id of this request in the log and the response, and in its jobs if the caller sent it."""
        found: str = self.request.scope["tidemill.correlation"]
        return found

    def id(self, name: str = "id") -> UUID:
        """Parse an id in the path; raise 404 if it is invalid."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise Problem(404, None, f"{self.path[name][:100]!r} is not an id") from None

    async def facts(self) -> Facts:
        """Return the job in the path. A job of another tenant is not found, as if it did not exist."""
        id = self.id()
        found = await self.service.looking.get(id, tenant=self.tenant)
        # The job may be in the archive.
        if found is None:
            found = await self.read(client_of(self.app).get, id, tenant=self.tenant, store=None)
        return found

    async def job(self) -> Job[Any]:
        """Return the job in the path as a handle."""
        return Job(client_of(self.app), await self.facts())

    # Client calls ------------------------------------------------------------------------------------------------------

    async def read(self, ask: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on a thread."""
        return await self.service.threads.run(ask, *args, **kwargs)

    async def act(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call that changes data on a thread, as the caller and in the caller's tenant."""
        with contextlib.ExitStack() as around:
            around.enter_context(acting(self.identity.who))
            around.enter_context(tenant_scope(self.home))
            return await self.service.threads.run(do, *args, **kwargs)

    def now(self) -> datetime:
        """Return the time of this process's clock."""
        return self.app.clock.now()

    # Responses ---------------------------------------------------------------------------------------------------------

    @property
    def sees_secrets(self) -> bool:
        """Whether the caller may see user data unmasked."""
        return self.identity.role.allows(Role.OPERATOR)

    def masked(self, value: Any) -> Any:
        """Mask user data if the caller may not see secrets."""
        return value if self.sees_secrets else masked(value)

    def reply(
        self, document: Any, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Respond with one document."""
        return Response(encode(document), status or self.route.status, headers, JSON)

    def page(self, items: Sequence[Any], following: str | None = None) -> Response:
        """Respond with a list of documents and the cursor of the next page."""
        return self.encoded(encode({"items": items, "next": following}))

    def encoded(self, document: bytes) -> Response:
        """Respond with a document that is already encoded."""
        return Response(document, self.route.status, None, JSON)

    def empty(self, status: int = 204) -> Response:
        """Respond without content."""
        return Response(None, status)

    def where(self, path: str) -> str:
        """Return the address of another path of this API, including mount and prefix, for ``Location``."""
        base: str = self.request.scope.get("root_path", "")
        prefix: str = self.request.scope["tidemill.prefix"]
        return f"{base}{prefix}{path}"
