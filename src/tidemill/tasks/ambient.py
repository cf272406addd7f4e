"""Ambient state of a call: current job, tenant, store and collecting block.

A collecting block keeps the jobs enqueued inside it until the job completes. The engine sets these values and the
client reads them; neither imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.domain.records import AuditEntry

if TYPE_CHECKING:
    from tidemill.tasks.task import Declared

Audited = tuple[UUID, AuditEntry]
"""An audit entry and the job it is about."""


class Ambient(Protocol):
    """The job whose code is running."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def correlation_id(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def store_name(self) -> str | None:
        """The name of the store that the job is in; None if its app has one store."""
        ...

    @property
    def declared(self) -> Declared:
        """The task of the job."""
        ...


class TenantScope(NamedTuple):
    """A ``using_tenant`` block, and the job whose code has opened it."""

    tenant: str
    job: Ambient | None


class StoreScope(NamedTuple):
    """A ``using_store`` block: the app that it belongs to, the chosen store, its job, and the block around it."""

    owner: object
    name: str
    job: Ambient | None
    outer: StoreScope | None


class Collector(Protocol):
    """A block that takes the jobs enqueued inside it: of a running job, written when it completes, or of a batch."""

    @property
    def is_open(self) -> bool: ...

    @property
    def only(self) -> bool:
        """Whether a job that cannot be collected is refused."""
        ...

    @property
    def declared(self) -> Declared | None:
        """The task of the running job; None for the block of a batch."""
        ...

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None: ...


JOB: ContextVar[Ambient | None] = ContextVar("tidemill_job", default=None)
TENANT: ContextVar[TenantScope | None] = ContextVar("tidemill_tenant", default=None)
STORE: ContextVar[StoreScope | None] = ContextVar("tidemill_store", default=None)
COLLECTOR: ContextVar[Collector | None] = ContextVar("tidemill_collector", default=None)


def current_job() -> Ambient | None:
    """Return the job this code runs in, if any."""
    return JOB.get()


def scoped_tenant() -> str | None:
    """Return the tenant of the innermost scope that the current job, or code outside jobs, has opened."""
    scope = TENANT.get()
    return scope.tenant if scope is not None and scope.job is JOB.get() else None


def current_tenant() -> str | None:
    """Return the tenant this code acts for: that of the innermost scope, else that of the job."""
    tenant, job = scoped_tenant(), JOB.get()
    return job.tenant if tenant is None and job is not None else tenant


def current_store(owner: object) -> str | None:
    """Return the store that the innermost ``using_store`` block of this app names, if any."""
    scope, job = STORE.get(), JOB.get()
    while scope is not None and scope.job is job:
        if scope.owner is owner:
            return scope.name
        scope = scope.outer
    return None


def current_collector() -> Collector | None:
    """Return the innermost open block around this code, if any."""
    found = COLLECTOR.get()
    return found if found is not None and found.is_open else None


# Used like a statement; a generator-based context manager would cost more than many jobs.
class inside_job:  # noqa: N801
    """Context manager that runs its block as this job.

    Scopes name the job that has opened them. So those around the block do not apply inside it, and a job need not reset
    them, which would cost it two reads of context variables.
    """

    __slots__ = ("_job", "_token")

    def __init__(self, job: Ambient) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = JOB.set(self._job)

    def __exit__(self, *_: object) -> None:
        JOB.reset(self._token)


@contextmanager
def tenant_scope(tenant: str) -> Iterator[None]:
    """Run the block for this tenant."""
    token = TENANT.set(TenantScope(tenant, JOB.get()))
    try:
        yield
    finally:
        TENANT.reset(token)


@contextmanager
def store_scope(owner: object, name: str) -> Iterator[None]:
    """Run the block with this store as the current one of an app."""
    token = STORE.set(StoreScope(owner, name, JOB.get(), STORE.get()))
    try:
        yield
    finally:
        STORE.reset(token)


def collecting(block: Collector) -> tuple[Collector | None, Token[Collector | None]]:
    """Make this block the collector. Returns the outer block and the token for ``stop_collecting``."""
    outer = COLLECTOR.get()
    return outer, COLLECTOR.set(block)


def stop_collecting(token: Token[Collector | None]) -> None:
    """Restore the outer block as the collector."""
    COLLECTOR.reset(token)
