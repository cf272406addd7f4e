"""Authorised request: caller, tenant, input, and calls of the client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from starlette.requests import Request

from tidemill.client.access import acting
from tidemill.client.jobs.handle import Job
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.options import check_name
from tidemill.web.masks import masked
from tidemill.web.problems import Problem
from tidemill.web.routes import Operation
from tidemill.web.service import Service

P = ParamSpec("P")
R = TypeVar("R")


class WebRequest:
    """A request that the guard admitted. ``tenant`` is the tenant that the query selects, if any."""

    __slots__ = ("app", "headers", "http", "identity", "inspection", "operation", "service", "tenant")

    def __init__(
        self,
        service: Service,
        operation: Operation,
        request: Request,
        identity: Identity,
        tenant: str | None,
    ) -> None:
        self.service = service
        self.app = service.app
        self.inspection = service.inspection
        self.operation = operation
        self.http = request
        self.identity = identity
        self.headers: dict[str, str] = request.scope["tidemill.headers"]
        """Headers by name in lower case; of a repeated header, the first value."""
        self.tenant = identity.tenant if tenant is None else self.allowed(tenant)
        """The tenant whose data may be read, or ``"*"``."""

    # Caller and tenant -------------------------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The tenant to write for: the key's, the selected one, or the app's own."""
        return self.tenant if self.tenant != ALL_TENANTS else self.service.client.tenant

    def chosen(self, tenant: str | None) -> str | None:
        """Return the requested tenant if the caller may use it; None if none was requested."""
        return None if tenant is None else self.allowed(tenant)

    def allowed(self, tenant: str) -> str:
        """Return a tenant that the caller may use, or raise 403."""
        check_name("tenant", tenant)
        if not self.identity.sees(tenant):
            raise Problem(403, "wrong_tenant", f"this key is for tenant {self.identity.tenant}")
        return tenant

    def need(self, role: Role) -> None:
        """Raise 403 if the caller lacks a role that only some requests to this route need."""
        self.service.guard.check_role(self.identity, role)

    # Request -----------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> dict[str, Any]:
        """Path parameters."""
        return self.http.path_params

    @property
    def correlation(self) -> str:
        """Correlation id of this request in the log and the response, and in its jobs if the caller sent it."""
        correlation: str = self.http.scope["tidemill.correlation"]
        return correlation

    def id(self, name: str = "id") -> UUID:
        """Parse an id in the path; raise 404 if it is invalid."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise Problem(404, None, f"{self.path[name][:100]!r} is not an id") from None

    async def job_row(self) -> JobRow:
        """Return the job in the path. A job of another tenant is not found, as if it did not exist.

        If it is in another store of the app and the request chose none, the request continues in that store.
        """
        id = self.id()
        row = await self.service.job_loader.get(id, tenant=self.tenant)
        # The job may be in the archive, or in another store.
        if row is not None:
            return row
        found, store = await self.read(self.inspection.find_job, id, tenant=self.tenant)
        if store != self.service.store_name:
            self.move_to(store)
        return found

    def move_to(self, name: str) -> None:
        """Continue in another store of the app."""
        self.service = self.service.at(name)
        self.app, self.inspection = self.service.app, self.service.inspection

    async def job(self) -> Job[Any]:
        """Return the job in the path as a handle."""
        row = await self.job_row()  # may continue in another store
        return self.inspection.handle(row)

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

    def where(self, path: str) -> str:
        """Return the address of another path of this application, including mount and prefix."""
        scope = self.http.scope
        return f"{scope.get('root_path', '')}{scope['tidemill.prefix']}{path}"
