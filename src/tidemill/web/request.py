"""Authorised request: caller, tenant, input, and calls of the client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from starlette.requests import Request

from tidemill.client.access import acting
from tidemill.client.jobs.handle import Job
from tidemill.domain.access import Identity, Role
from tidemill.domain.bounds import check_name
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Page
from tidemill.domain.job import Execution, JobRow, hidden_error, hidden_payload
from tidemill.domain.job_match import finds
from tidemill.domain.masks import HIDDEN, hidden, looks_secret, masked, masked_name
from tidemill.domain.permissions import NOTHING, ActTarget
from tidemill.errors import JobNotFound
from tidemill.tasks.ambient import tenant_scope
from tidemill.web.problems import Problem
from tidemill.web.routes import Operation
from tidemill.web.service import Service

P = ParamSpec("P")
R = TypeVar("R")

_UNCHECKED = frozenset({"job", "list", "later"})
"""Sources of an object that the guard cannot know before the route runs."""

_USER_OPTIONS = frozenset({"metadata", "headers"})
"""Options of a job with data of its user."""

_FAILURE_TEXTS = ("message", "reason", "fingerprint")
"""Names of texts in rows about jobs that may contain the message of an error, or its digest."""


class WebRequest:
    """A request that the guard admitted. ``tenant`` is the tenant that the query selects, if any."""

    __slots__ = (
        "app", "headers", "http", "identity", "inspection", "is_checked", "operation", "service", "tenant",
    )  # fmt: skip

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
        self.is_checked = not identity.grants or operation.act.by not in _UNCHECKED
        """Whether the object of the act was compared with the caller's grants. Without that, nothing is answered."""
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
            own = "; select a tenant with ?tenant=" if self.identity.roles else ""
            raise Problem(403, "wrong_tenant", f"this key is for tenant {self.identity.tenant}{own}")
        return tenant

    # Permissions -------------------------------------------------------------------------------------------------------

    def need(self, act: str) -> None:
        """Raise 403 if the caller may not do an act that only some requests to this route do."""
        self.service.guard.check(self.identity, act, None if self._is_later else NOTHING)

    def check(self, task: str | None = None, queue: str | None = None, definition: str | None = None) -> None:
        """Raise 403 if the caller's grants do not include the act of this route on this object."""
        self.is_checked = True
        if self.identity.grants:
            self.service.guard.check(
                self.identity, self.operation.act.act, ActTarget(task, queue, definition)
            )

    def permits(
        self, act: str, task: str | None = None, queue: str | None = None, definition: str | None = None
    ) -> bool:
        """Whether the caller's grants include an act on this object. A list leaves out objects without it."""
        self.is_checked = True
        return not self.identity.grants or self.service.guard.allows(
            self.identity, act, ActTarget(task, queue, definition)
        )

    def finish(self) -> None:
        """Refuse the response if the object of the act was never compared with the caller's grants."""
        if not self.is_checked:
            self.service.guard.check(self.identity, self.operation.act.act, NOTHING)

    def key_permissions(self, grants: Sequence[str], environment: str | None = None) -> dict[str, Any]:
        """Return the grants and the environment of a key that the caller creates. It never exceeds the caller."""
        own = self.identity
        if own.grants and grants:
            raise Problem(
                403,
                "not_granted",
                "your own grants restrict the keys that you create; omit grants to pass them on",
            )
        return {"grants": own.grants or list(grants), "environment": own.environment or environment}

    @property
    def _is_later(self) -> bool:
        return self.operation.act.by in _UNCHECKED

    def checked_row(self, row: JobRow) -> JobRow:
        """Return a job that the caller may see, with its arguments hidden if a grant excludes them. Others are not found."""
        if not self.identity.grants:
            return row
        if not self.permits("jobs.read", row.task, row.queue):
            raise JobNotFound(f"there is no job {row.id}", id=str(row.id))
        self.check(row.task, row.queue)
        return self.cleared(row)

    def cleared(self, row: JobRow) -> JobRow:
        """Return the job with its arguments hidden if no grant includes ``jobs.arguments`` on it."""
        if not self.identity.grants or self.permits("jobs.arguments", row.task, row.queue):
            return row
        return hidden_payload(row)

    def cleared_executions(self, executions: Sequence[Execution]) -> Sequence[Execution]:
        """Return the attempts of a job, without messages of errors if a grant hides arguments."""
        return [hidden_error(execution) for execution in executions] if self.hides_arguments else executions

    def jobs_page(self, **conditions: Any) -> Page[Job[Any]]:
        """Return a page of jobs that the caller's grants include; it may be shorter than its limit."""
        page = self.app.jobs.list(**conditions)
        if not self.identity.grants:
            return page
        items = [job for job in page.items if self.permits("jobs.read", job.row.task, job.row.queue)]
        if self.hides_arguments and (text := conditions.get("text")):
            # The store also searches the messages of errors, which this caller may not see.
            is_found = finds(JobFilter(ALL_TENANTS, text=text, text_in_args=False))
            items = [job for job in items if is_found(self.cleared(job.row))]
        return replace(page, items=items)

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
            return self.checked_row(row) if self.identity.grants else row
        found, store = await self.read(self.inspection.find_job, id, tenant=self.tenant)
        if store != self.service.store_name:
            self.move_to(store)
        return self.checked_row(found)

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
        self.finish()
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
        identity = self.identity
        return identity.role.allows(Role.OPERATOR) and not (identity.grants and self.hides_arguments)

    @property
    def hides_arguments(self) -> bool:
        """Whether a grant of the caller shows jobs without their arguments."""
        grants = self.identity.grants
        return bool(grants) and any(
            grant.names("jobs.read") and not grant.names("jobs.arguments") for grant in grants
        )

    def masked(self, value: Any) -> Any:
        """Mask user data if the caller may not see secrets."""
        return value if self.sees_secrets else masked(value)

    def payload(self, value: Any) -> Any:
        """Mask arguments, results or metadata; of those that a grant hides only the names remain."""
        return hidden(value) if self.hides_arguments else self.masked(value)

    def payload_options(self, options: Mapping[str, Any]) -> Any:
        """Mask the options of a job to come, and hide its metadata and headers if a grant hides arguments."""
        shown = self.masked(options)
        if self.hides_arguments:
            shown = {name: hidden(item) if name in _USER_OPTIONS else item for name, item in shown.items()}
        return shown

    def failure_text(self, text: str | None) -> str | None:
        """Return the message of an error or a reason that contains it, unless a grant hides arguments."""
        return HIDDEN if text and self.hides_arguments else text

    def failure_rows(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows about jobs, without the messages of their errors if a grant hides arguments."""
        rows = list(rows)
        if self.hides_arguments:
            for row in rows:
                row.update({name: self.failure_text(row[name]) for name in _FAILURE_TEXTS if name in row})
        return rows

    def masked_names(self, value: Any) -> Any:
        """Mask the names of limits in texts at any depth, if the caller may not see secrets."""
        if self.sees_secrets:
            return value
        if isinstance(value, str):
            return masked_name(value)
        if isinstance(value, dict):
            return {name: self.masked_names(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked_names(item) for item in value]
        return value

    def check_conditions(self, where: Mapping[str, Any]) -> None:
        """Refuse a filter by a value that the caller may not see: its answer would reveal the value."""
        names = [(kind, name) for kind in ("metadata", "args") for name in where.get(kind) or ()]
        told = [*names, *(("error", where[kind]) for kind in ("error",) if where.get(kind))]
        if told and self.hides_arguments:
            raise self._hidden(told[0], "hidden by a grant without jobs.arguments")
        hidden = [pair for pair in names if looks_secret(pair[1])]
        if hidden and not self.sees_secrets:
            raise self._hidden(
                hidden[0],
                f"masked for the role {self.identity.role.value}",
                "; this requires the role operator",
            )

    def check_selection(self, where: Mapping[str, Any]) -> None:
        """Refuse to act on jobs by a value that the caller may not see, for the same reason."""
        self.check_conditions(where)
        if where.get("text") and self.hides_arguments:
            # A search also finds arguments and messages of errors.
            raise Problem(
                403, "masked_value", "a grant without jobs.arguments hides texts that this search reads"
            )

    @staticmethod
    def _hidden(pair: tuple[str, str], why: str, more: str = "") -> Problem:
        kind, name = "argument" if pair[0] == "args" else pair[0], pair[1][:100]
        return Problem(403, "masked_value", f"{kind} {name!r} is {why}, so it cannot be a filter{more}")

    def where(self, path: str) -> str:
        """Return the address of another path of this application, including mount and prefix."""
        scope = self.http.scope
        return f"{scope.get('root_path', '')}{scope['tidemill.prefix']}{path}"
