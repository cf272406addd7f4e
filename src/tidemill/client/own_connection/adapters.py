"""Adapters for the connections of users: sqlite3, psycopg, asyncpg, SQLAlchemy and Django.

No driver is imported here before a user passes one of its connections.
"""

from __future__ import annotations

import sys
from typing import Any

from tidemill.client.own_connection.dialects import joins
from tidemill.client.own_connection.sansio import UserStatement
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row


class Sqlite3Adapter:
    """A user's sqlite3 connection, with any row_factory and any transaction mode."""

    dialect, style, key = "sqlite", "marks", None

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ready(self) -> None:
        if not joins(self._connection):
            raise UsageError(
                "this sqlite3.Connection commits by itself and has no transaction open, so the job could not be rolled back;"
                ' open one first: connection.execute("begin immediate")'
            )

    def execute(self, line: UserStatement) -> list[Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            (cursor.executemany if line.many else cursor.execute)(line.sql, line.values)
            rows: list[Row] = [] if cursor.description is None else cursor.fetchall()
            return rows
        finally:
            cursor.close()


class _PsycopgAdapter:
    """Base class of both adapters."""

    dialect = "postgres"
    opening = "with connection.transaction(): ..."

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.key: object = connection

    @property
    def style(self) -> str:
        # Packed text is UTF-8. For a connection with another encoding, psycopg encodes plain lists.
        return "packed" if self._connection.info.encoding == "utf-8" else "named"

    def ready(self) -> None:
        from psycopg.pq import TransactionStatus

        status = self._connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise UsageError(
                "an earlier statement of your transaction has failed; roll it back and start again"
            )
        if self._connection.autocommit and status == TransactionStatus.IDLE:
            raise UsageError(
                f"this psycopg.{type(self._connection).__name__} is in autocommit and has no transaction open, so the job could"
                f" not be taken back; open one first: {self.opening}"
            )

    def _adapted(self, cursor: Any) -> Any:
        from tidemill.stores.sql.postgres.values import DUMPERS

        for kind, dumper in DUMPERS:
            cursor.adapters.register_dumper(kind, dumper)  # registered for this cursor only
        return cursor


class PsycopgAdapter(_PsycopgAdapter):
    """A user's ``psycopg.Connection``."""

    def execute(self, line: UserStatement) -> list[Row]:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            self._adapted(cursor).execute(line.sql, line.values, prepare=False, binary=True)
            return cursor.fetchall() if line.gives else []


class AsyncPsycopgAdapter(_PsycopgAdapter):
    """A user's ``psycopg.AsyncConnection``."""

    opening = "async with connection.transaction(): ..."

    async def execute(self, line: UserStatement) -> list[Row]:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await self._adapted(cursor).execute(line.sql, line.values, prepare=False, binary=True)
            return await cursor.fetchall() if line.gives else []


class AsyncpgAdapter:
    """A user's asyncpg connection. It has no transaction unless the user opens one."""

    dialect, style = "postgres", "numbered"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.key: object = getattr(connection, "_con", connection)  # the connection behind a pool's proxy

    def ready(self) -> None:
        if not self._connection.is_in_transaction():
            raise UsageError(
                "this asyncpg.Connection has no transaction open, so the job could not be rolled back; open one first:"
                " async with connection.transaction(): ..."
            )

    async def execute(self, line: UserStatement) -> list[Row]:
        return [tuple(record) for record in await self._connection.fetch(line.sql, *line.values)]


_STYLES = {
    ("postgresql", "pyformat"): "named",
    ("postgresql", "numeric_dollar"): "numbered",
    ("sqlite", "qmark"): "marks",
}


class _SqlAlchemyAdapter:
    """Base class of the adapters, around a ``Connection``, which the asynchronous connections wrap."""

    def __init__(self, connection: Any) -> None:
        dialect = connection.dialect
        style = _STYLES.get((dialect.name, dialect.paramstyle))
        if style is None:
            raise UsageError(
                f"SQLAlchemy connects to {dialect.name} through {dialect.driver} here; we can join it on PostgreSQL with psycopg"
                " or asyncpg, and on SQLite"
            )
        self.dialect = "postgres" if dialect.name == "postgresql" else "sqlite"
        self.style = style
        self._connection = connection

    @property
    def key(self) -> object:
        return self._connection.connection.driver_connection

    def ready(self) -> None:
        """Raise if the connection is in autocommit mode, judging only by the driver's connection."""
        pooled = self._connection.connection
        if self.dialect == "sqlite":
            alone = not joins(pooled.driver_connection)
        else:
            alone = getattr(pooled.dbapi_connection, "autocommit", False) is True
        if alone:
            raise UsageError(
                "this SQLAlchemy connection has isolation_level AUTOCOMMIT, so the job could not be rolled back;"
                " use one that opens transactions"
            )


class SqlAlchemyAdapter(_SqlAlchemyAdapter):
    """A user's ``Connection`` or ``Session``."""

    def __init__(self, given: Any) -> None:
        super().__init__(given if hasattr(given, "exec_driver_sql") else _of_session(given))

    def execute(self, line: UserStatement) -> list[Row]:
        result = self._connection.exec_driver_sql(line.sql, line.values or None)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


class AsyncSqlAlchemyAdapter(_SqlAlchemyAdapter):
    """A user's ``AsyncConnection``."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection.sync_connection)
        self._awaited = connection

    async def execute(self, line: UserStatement) -> list[Row]:
        result = await self._awaited.exec_driver_sql(line.sql, line.values or None)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


async def async_host(given: Any) -> AsyncSqlAlchemyAdapter:
    """Return the adapter for a user's ``AsyncConnection`` or ``AsyncSession``."""
    if hasattr(given, "exec_driver_sql"):
        if given.sync_connection is None:
            raise UsageError(
                "this AsyncConnection is not started yet; use: async with engine.connect() as ..."
            )
        return AsyncSqlAlchemyAdapter(given)
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return AsyncSqlAlchemyAdapter(await given.connection())
    except UnboundExecutionError as error:
        raise _unbound() from error


def _of_session(session: Any) -> Any:
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return session.connection()
    except UnboundExecutionError as error:
        raise _unbound() from error


def _unbound() -> UsageError:
    return UsageError(
        "this session has no database of its own but one for each of its classes; give the connection instead:"
        " session.connection(bind_arguments=...)"
    )


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
            f"connection={alias!r} names a database of Django, and this program has not loaded Django; "
            "give a connection object, or call django.setup() first"
        )
    if alias not in database.connections:
        known = ", ".join(sorted(database.connections))
        raise UsageError(f"Django has no database {alias!r}; there are: {known}")
    return database.connections[alias]
