"""Adapters for SQLAlchemy connections and sessions: sync, async and scoped.

Statements go through SQLAlchemy, never directly to the driver's connection: SQLAlchemy opens its transaction with the
first statement it executes, and a statement that bypasses it would run outside that transaction.
"""

from __future__ import annotations

from typing import Any

from tidemill.client.own_connection.sansio import UserStatement
from tidemill.client.own_connection.sqlite import joins
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row

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
