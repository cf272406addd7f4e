"""Ambient state of a call: current job, tenant, store and collecting block.

A collecting block keeps the jobs enqueued inside it until the job completes. The engine sets these values and the
client reads them; neither imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.domain.records import AuditEntry
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


class StoreScope(NamedTuple):
    """A ``using_store`` block: the app that it belongs to, the chosen store, and the block around it."""

    owner: object
    name: str
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
TENANT: ContextVar[str | None] = ContextVar("tidemill_tenant", default=None)
STORE: ContextVar[StoreScope | None] = ContextVar("tidemill_store", default=None)
COLLECTOR: ContextVar[Collector | None] = ContextVar("tidemill_collector", default=None)


def current_job() -> Ambient | None:
    """Return the job this code runs in, if any."""
    return JOB.get()


def current_tenant() -> str | None:
    """Return the tenant this code acts for: that of the innermost scope, else that of the job."""
    scope = TENANT.get()
    if scope is not None:
        return scope
    job = JOB.get()
    return None if job is None else job.tenant


def current_store(owner: object) -> str | None:
    """Return the store that the innermost ``using_store`` block of this app names, if any."""
    scope = STORE.get()
    while scope is not None and scope.owner is not owner:
        scope = scope.outer
    return None if scope is None else scope.name


def current_collector() -> Collector | None:
    """Return the innermost open block around this code, if any."""
    found = COLLECTOR.get()
    return found if found is not None and found.is_open else None


# Used like a statement; a generator-based context manager would cost more than many jobs.
class inside_job:  # noqa: N801
    """Context manager that runs its block as this job."""

    __slots__ = ("_job", "_scope", "_store_scope", "_token")

    def __init__(self, job: Ambient) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = JOB.set(self._job)
        self._scope = None if TENANT.get() is None else TENANT.set(None)
        self._store_scope = None if STORE.get() is None else STORE.set(None)

    def __exit__(self, *_: object) -> None:
        if self._store_scope is not None:
            STORE.reset(self._store_scope)
        if self._scope is not None:
            TENANT.reset(self._scope)
        JOB.reset(self._token)


@contextmanager
def tenant_scope(tenant: str) -> Iterator[None]:
    """Run the block for this tenant."""
    token = TENANT.set(tenant)
    try:
        yield
    finally:
        TENANT.reset(token)


@contextmanager
def store_scope(owner: object, name: str) -> Iterator[None]:
    """Run the block with this store as the current one of an app."""
    token = STORE.set(StoreScope(owner, name, STORE.get()))
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
