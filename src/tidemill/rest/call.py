"""One request, admitted: who calls, for which tenant, with what; and the ways to answer."""

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

from tidemill.client.acting import acting
from tidemill.client.handle import Job
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Job as Facts
from tidemill.errors import JobNotFound
from tidemill.rest.masking import masked
from tidemill.rest.problems import Problem
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.options import check_name

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.rest.routes import Declared
    from tidemill.rest.service import Service

P = ParamSpec("P")
R = TypeVar("R")

JSON = "application/json"


def encode(document: Any) -> bytes:
    """A document as JSON; what is no text in UTF-8 (half a character) is escaped."""
    try:
        return to_json(document)
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(document, separators=(",", ":"), default=str).encode()


class Call:
    """What a route's coroutine is given."""

    __slots__ = ("body", "identity", "query", "request", "route", "service", "tenant")

    def __init__(
        self, service: Service, route: Declared, request: Request, identity: Identity, query: Any, body: Any
    ) -> None:
        self.service = service
        self.route = route
        self.request = request
        self.identity = identity
        self.query = query
        self.body = body
        self.tenant = self.chosen(getattr(query, "tenant", None)) or identity.tenant
        """Whose things may be read: one tenant, or ``"*"``."""

    # Who and whose -----------------------------------------------------------------------------------------------------

    @property
    def app(self) -> App:
        return self.service.app

    @property
    def home(self) -> str:
        """One tenant, to write for: the key's, the one that was chosen, or the app's own."""
        return self.tenant if self.tenant != ALL_TENANTS else self.app._client.tenant

    def chosen(self, wanted: str | None) -> str | None:
        """The tenant the caller asks for, if it may; None where none was asked for."""
        if wanted is None:
            return None
        check_name("tenant", wanted)
        if not self.identity.sees(wanted):
            raise Problem(403, "wrong_tenant", f"this key is for tenant {self.identity.tenant}")
        return wanted

    def need(self, role: Role) -> None:
        """Refuse who may not do what only some calls of this route do."""
        if not self.identity.role.allows(role):
            raise Problem(403, None, f"this needs the role {role.value}; yours is {self.identity.role.value}")

    # What came in ------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> dict[str, Any]:
        """The named parts of the path."""
        return self.request.path_params

    @property
    def correlation(self) -> str:
        """What names this request in our log, in the answer and, where the caller gave it, in its jobs."""
        found: str = self.request.scope["tidemill.correlation"]
        return found

    def id(self, name: str = "id") -> UUID:
        """An id in the path; what is no id at all is not found."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise Problem(404, None, f"{self.path[name][:100]!r} is not an id") from None

    async def facts(self) -> Facts:
        """The job the path names, if the caller may see it; others' are not found, like those that never were."""
        id = self.id()
        found = await self.service.looking.get(id, tenant=self.tenant)
        if found is None:
            raise JobNotFound(f"there is no job {id}", id=id)
        return found

    async def job(self) -> Job[Any]:
        """The same as a handle."""
        return Job(self.app._client, await self.facts())

    # Asking the client -------------------------------------------------------------------------------------------------

    async def read(self, ask: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what blocks, on a thread."""
        return await self.service.threads.run(ask, *args, **kwargs)

    async def act(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what blocks and changes something, on a thread, as who calls and for his tenant."""
        with contextlib.ExitStack() as around:
            around.enter_context(acting(self.identity.who))
            around.enter_context(tenant_scope(self.home))
            return await self.service.threads.run(do, *args, **kwargs)

    def now(self) -> datetime:
        """The time as this process knows it."""
        return self.app.clock.now()

    # Answering ---------------------------------------------------------------------------------------------------------

    @property
    def sees_secrets(self) -> bool:
        """Whether users' data is shown as it is."""
        return self.identity.role.allows(Role.OPERATOR)

    def masked(self, value: Any) -> Any:
        """Users' own data as this caller may see it."""
        return value if self.sees_secrets else masked(value)

    def reply(
        self, document: Any, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """One document."""
        return Response(encode(document), status or self.route.status, headers, JSON)

    def page(self, items: Sequence[Any], following: str | None = None) -> Response:
        """Several, and where to go on."""
        return self.encoded(encode({"items": items, "next": following}))

    def encoded(self, document: bytes) -> Response:
        """What is JSON already."""
        return Response(document, self.route.status, None, JSON)

    def empty(self, status: int = 204) -> Response:
        """Done, and nothing to say."""
        return Response(None, status)

    def where(self, path: str) -> str:
        """Another address of this API, for ``Location``; right also where the API is mounted."""
        base: str = self.request.scope.get("root_path", "")
        prefix: str = self.request.scope["tidemill.prefix"]
        return f"{base}{prefix}{path}"
