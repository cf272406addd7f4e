"""Adapter for Django: the alias of a database, or its connection."""

from __future__ import annotations

import sys
from typing import Any

from tidemill.client.own_connection.sansio import UserStatement
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row

_DIALECTS = {"postgresql": ("postgres", "named"), "sqlite": ("sqlite", "percents")}


class DjangoAdapter:
    """A database of a Django project, used through Django's cursors with its transactions, logging and test cases."""

    def __init__(self, given: Any) -> None:
        self._wrapper = _wrapper(given)
        try:
            self.dialect, self.style = _DIALECTS[self._wrapper.vendor]
        except KeyError:
            raise UsageError(
                f"Django's database {self._wrapper.alias!r} is {self._wrapper.vendor}; we can join PostgreSQL and SQLite"
            ) from None

    @property
    def key(self) -> object:
        return self._wrapper.connection

    def ready(self) -> None:
        if not self._wrapper.in_atomic_block and self._wrapper.get_autocommit():
            alias = self._wrapper.alias
            raise UsageError(
                f"Django's database {alias!r} is in no atomic block, so the job could not be rolled back; open one first:"
                f" with transaction.atomic(using={alias!r}): ..."
            )

    def execute(self, line: UserStatement) -> list[Row]:
        with self._wrapper.cursor() as cursor:
            (cursor.executemany if line.many else cursor.execute)(line.sql, line.values)
            return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]


def _wrapper(given: Any) -> Any:
    """Return the connection behind an alias, or behind ``django.db.connection``, the proxy for the current thread."""
    if not isinstance(given, str) and hasattr(type(given), "in_atomic_block"):
        return given
    database = sys.modules.get("django.db")
    alias = given if isinstance(given, str) else given.alias
    if database is None:
        raise UsageError(
            f"connection={alias!r} names a database of Django, and this program has not loaded Django"
        )
    if alias not in database.connections:
        known = ", ".join(sorted(database.connections))
        raise UsageError(f"Django has no database {alias!r}; there are: {known}")
    return database.connections[alias]
