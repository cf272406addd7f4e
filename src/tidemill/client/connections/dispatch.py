"""From whatever the user calls his connection to the host that speaks to it, known by its class's name: nothing is imported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.client.connections import failures, postgres, sqlite
from tidemill.client.connections.identity import elsewhere
from tidemill.client.connections.talk import AsyncHost, Host, PlainHost, Talk, adrive, drive
from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import JobExists, TidemillError, UsageError
from tidemill.stores.base import Store
from tidemill.stores.sql.store import SqlStore

KINDS = (
    "sqlite3.Connection, psycopg.Connection or AsyncConnection, asyncpg.Connection, SQLAlchemy's Connection, Session,"
    " AsyncConnection or AsyncSession, and the alias of a Django database or its connection"
)

_PLAIN = {
    ("sqlite3", "Connection"): "sqlite3",
    ("pysqlite3", "Connection"): "sqlite3",
    ("psycopg", "Connection"): "psycopg",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "sqlalchemy",
    ("django", "BaseDatabaseWrapper"): "django",
    ("django", "ConnectionProxy"): "django",
}
_ASYNC = {
    ("psycopg", "AsyncConnection"): "psycopg",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy",
}


def enqueue_on(
    connection: object,
    store: Store,
    jobs: Sequence[NewJob],
    *,
    by: str | None = None,
    now: datetime | None = None,
) -> list[Enqueued]:
    """Enqueue inside the transaction that the user has open on his own connection; it commits or rolls back with that.

    The answers are those of ``store.enqueue``. The connection must lead to the store's own database. Nothing of the user's
    session is changed, and nobody else sees the jobs before he commits. With ``by`` an audit entry goes with them.
    """
    if not jobs:
        return []
    kept = _checked(store, jobs)
    host = _plain_host(connection)
    return drive(_conversation(host, kept, jobs, now, by), host)


async def aenqueue_on(
    connection: object,
    store: Store,
    jobs: Sequence[NewJob],
    *,
    by: str | None = None,
    now: datetime | None = None,
) -> list[Enqueued]:
    """As ``enqueue_on``, on an asynchronous connection."""
    if not jobs:
        return []
    kept = _checked(store, jobs)
    host = await _async_host(connection)
    return await adrive(_conversation(host, kept, jobs, now, by), host)


def _checked(store: Store, jobs: Sequence[NewJob]) -> SqlStore:
    if not isinstance(store, SqlStore):
        raise UsageError(
            f"{store.url} is no database that a connection could lead to; connection= needs PostgreSQL or SQLite"
        )
    if len({job.id for job in jobs}) < len(jobs):
        # The database would find out as well, and break the user's transaction.
        raise JobExists("one of these jobs is given twice; nothing was enqueued")
    return store


def _conversation(
    host: Host, store: SqlStore, jobs: Sequence[NewJob], now: datetime | None, by: str | None
) -> Talk[list[Enqueued]]:
    dialect = "sqlite" if store.url.startswith("sqlite") else "postgres"
    if host.dialect != dialect:
        raise elsewhere(store, "SQLite" if host.dialect == "sqlite" else "PostgreSQL")
    converse = sqlite.converse if dialect == "sqlite" else postgres.converse
    try:
        return (yield from converse(host, store, jobs, now, by))
    except TidemillError:
        raise
    except Exception as error:
        if dialect == "sqlite":
            told = failures.of_sqlite(error, sqlite.path_of(store))
        else:
            told = failures.of_postgres(error, store.url)
        if told is None:
            raise
        raise told from error


# Recognising -------------------------------------------------------------------------------------------------------------


def _plain_host(given: Any) -> PlainHost:
    match "django" if isinstance(given, str) else _kind(given, _PLAIN):
        case "sqlite3":
            from tidemill.client.connections.of_sqlite3 import Sqlite3Host

            return Sqlite3Host(given)
        case "psycopg":
            from tidemill.client.connections.of_psycopg import PsycopgHost

            return PsycopgHost(given)
        case "sqlalchemy":
            from tidemill.client.connections.of_sqlalchemy import SqlAlchemyHost

            return SqlAlchemyHost(given)
        case "django":
            from tidemill.client.connections.of_django import DjangoHost

            return DjangoHost(given)
        case _ if _kind(given, _ASYNC) is not None:
            raise UsageError(f"{_name(given)} is asynchronous; use aenqueue and await it")
        case _:
            raise _unknown(given)


async def _async_host(given: Any) -> AsyncHost:
    match _kind(given, _ASYNC):
        case "psycopg":
            from tidemill.client.connections.of_psycopg import AsyncPsycopgHost

            return AsyncPsycopgHost(given)
        case "asyncpg":
            from tidemill.client.connections.of_asyncpg import AsyncpgHost

            return AsyncpgHost(given)
        case "sqlalchemy":
            from tidemill.client.connections.of_sqlalchemy import async_host

            return await async_host(given)
        case _ if isinstance(given, str) or _kind(given, _PLAIN) == "django":
            raise UsageError(
                "Django's connections are not asynchronous; use enqueue, inside sync_to_async together with the transaction"
            )
        case _ if _kind(given, _PLAIN) is not None:
            raise UsageError(f"{_name(given)} is not asynchronous; use enqueue, without await")
        case _:
            raise _unknown(given)


def _kind(given: object, kinds: dict[tuple[str, str], str]) -> str | None:
    """Which of these kinds an object is, by the names of its class and of those that one is made from."""
    for cls in type(given).__mro__:
        found = kinds.get((cls.__module__.partition(".")[0], cls.__name__))
        if found is not None:
            return found
    return None


def _name(given: object) -> str:
    return f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"


def _unknown(given: object) -> UsageError:
    return UsageError(f"connection= cannot be a {_name(given)}; give one of: {KINDS}")
