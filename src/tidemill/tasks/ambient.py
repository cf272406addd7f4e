"""Ambient state of a call: current job, tenant and collecting block.

A collecting block keeps the jobs enqueued inside it until the job completes. The engine sets these values and the
client reads them; neither imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Protocol
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


class Collector(Protocol):
    """A block of a running job. Jobs enqueued inside it are written when the job completes."""

    @property
    def is_open(self) -> bool: ...

    @property
    def only(self) -> bool:
        """Whether a job that cannot be collected is refused."""
        ...

    @property
    def declared(self) -> Declared:
        """The task of the running job."""
        ...

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None: ...


_job: ContextVar[Ambient | None] = ContextVar("tidemill_job", default=None)
_tenant: ContextVar[str | None] = ContextVar("tidemill_tenant", default=None)
_collector: ContextVar[Collector | None] = ContextVar("tidemill_collector", default=None)


def current_job() -> Ambient | None:
    """Return the job this code runs in, if any."""
    return _job.get()


def current_tenant() -> str | None:
    """Return the tenant this code acts for: that of the innermost scope, else that of the job."""
    scope = _tenant.get()
    if scope is not None:
        return scope
    job = _job.get()
    return None if job is None else job.tenant


def current_collector() -> Collector | None:
    """Return the innermost open block around this code, if any."""
    found = _collector.get()
    return found if found is not None and found.is_open else None


# Used like a statement; a generator-based context manager would cost more than many jobs.
class inside_job:  # noqa: N801
    """Context manager that runs its block as this job."""

    __slots__ = ("_job", "_scope", "_token")

    def __init__(self, job: Ambient) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._token = _job.set(self._job)
        self._scope = None if _tenant.get() is None else _tenant.set(None)

    def __exit__(self, *_: object) -> None:
        if self._scope is not None:
            _tenant.reset(self._scope)
        _job.reset(self._token)


@contextmanager
def tenant_scope(tenant: str) -> Iterator[None]:
    """Run the block for this tenant."""
    token = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(token)


def collecting(block: Collector) -> tuple[Collector | None, Token[Collector | None]]:
    """Make this block the collector. Returns the outer block and the token for ``stop_collecting``."""
    outer = _collector.get()
    return outer, _collector.set(block)


def stop_collecting(token: Token[Collector | None]) -> None:
    """Restore the outer block as the collector."""
    _collector.reset(token)
