"""Tenants of a Django project: the current one at enqueue, and that of the job while its task runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Protocol, cast

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from tidemill.domain.job import DEFAULT_TENANT, JobRow
from tidemill.errors import PermanentError, UsageError

__all__ = ["DjangoTenants", "TenantScopes"]


class TenantScopes(Protocol):
    """What ``TIDEMILL["tenants"]`` names: an object or a class with these two methods."""

    def current(self) -> str | None:
        """Return the tenant that the calling code works for, or None for the tenant of the app."""
        ...

    def enter(self, tenant: str) -> AbstractContextManager[object]:
        """Return a context manager in which code works for this tenant."""
        ...


class DjangoTenants:
    """Scopes of django-tenants: the name of a tenant is that of its schema; the public schema is the app's tenant."""

    def __init__(self) -> None:
        from django_tenants import utils

        self._utils = utils
        self._alias: str = utils.get_tenant_database_alias()
        self._own: str = getattr(settings, "TIDEMILL", {}).get("tenant", DEFAULT_TENANT)

    def current(self) -> str | None:
        """Return the schema of this thread's connection, which the middleware of django-tenants has chosen."""
        if _has_running_loop():
            raise UsageError(
                "a coroutine has no current schema, because connections belong to threads; enqueue inside"
                " app.tenant(…), with using(tenant=…), or in a function of sync_to_async"
            )
        schema: str | None = connections[self._alias].schema_name
        return None if schema == self._utils.get_public_schema_name() else schema

    @contextmanager
    def enter(self, tenant: str) -> Iterator[None]:
        """Use the schema of this tenant, and the public schema for the app's own tenant."""
        if tenant == self._own:
            tenant = self._utils.get_public_schema_name()
        elif not self._utils.get_tenant_model().objects.filter(schema_name=tenant).exists():
            # Without the schema, the search path would lead to the tables of the public one.
            raise PermanentError(f"no tenant of this project has the schema {tenant!r}")
        with self._utils.schema_context(tenant):
            yield


class JobScope:
    """Context manager around one execution that works for the tenant of the job, for functions and coroutines."""

    def __init__(self, scopes: TenantScopes, job: JobRow) -> None:
        self._scopes, self._tenant = scopes, job.tenant
        self._thread: Any = None  # asgiref's class has no types

    def __enter__(self) -> None:
        self._scope = self._scopes.enter(self._tenant)
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    async def __aenter__(self) -> None:
        # Coroutines share the thread of sync_to_async and its connections. Jobs of several tenants run at the same time,
        # so each of them gets a thread of its own. A test keeps the thread with its transaction.
        if not await sync_to_async(_is_in_transaction)():
            self._thread = ThreadSensitiveContext()
            await self._thread.__aenter__()
        await sync_to_async(self.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await sync_to_async(self.__exit__)(kind, error, trace)
        finally:
            if self._thread is not None:
                await sync_to_async(connections.close_all)()
                await self._thread.__aexit__(kind, error, trace)


def load_scopes(path: Any) -> TenantScopes:
    """Return the object that ``TIDEMILL["tenants"]`` names; raise ``ImproperlyConfigured`` if it is unusable."""
    try:
        scopes = import_string(path) if isinstance(path, str) else path
        scopes = scopes() if inspect.isclass(scopes) else scopes
    except ImportError as error:
        raise ImproperlyConfigured(f"TIDEMILL['tenants'] is {path!r}: {error}") from error
    missing = [name for name in ("current", "enter") if not callable(getattr(scopes, name, None))]
    if missing:
        raise ImproperlyConfigured(f"TIDEMILL['tenants'] is {path!r}, which has no method {missing[0]}()")
    return cast("TenantScopes", scopes)


def _is_in_transaction() -> bool:
    return any(connection.in_atomic_block for connection in connections.all(initialized_only=True))


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
