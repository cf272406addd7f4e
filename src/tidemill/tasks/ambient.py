"""What surrounds a call: the job it is made from, and the tenant it is made for. Set by those who run jobs, read by those
who enqueue them; the two do not know each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol
from uuid import UUID


class Ambient(Protocol):
    """The job whose code is running here."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def correlation_id(self) -> str: ...

    @property
    def tenant(self) -> str: ...


_job: ContextVar[Ambient | None] = ContextVar("tidemill_job", default=None)
_tenant: ContextVar[str | None] = ContextVar("tidemill_tenant", default=None)
_alone: ContextVar[bool] = ContextVar("tidemill_alone", default=False)


def current_job() -> Ambient | None:
    """The job this code runs in, if any."""
    return _job.get()


def current_tenant() -> str | None:
    """The tenant this code speaks for: the innermost scope, else the job's."""
    scope = _tenant.get()
    if scope is not None:
        return scope
    job = _job.get()
    return None if job is None else job.tenant


def in_transaction() -> bool:
    """Whether this code has a transaction of the store open, which others must not be drawn into."""
    return _alone.get()


class inside_job:  # noqa: N801  (used as a statement; a generator would cost more than many a job)
    """The block runs as this job."""

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
    """The block speaks for this tenant."""
    token = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(token)


@contextmanager
def own_transaction() -> Iterator[None]:
    """The block has a transaction of the store open."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)
