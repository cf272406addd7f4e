"""Enqueueing and completing jobs in a transaction on the user's own connection.

The adapter is chosen by the name of the connection's class, which avoids importing database drivers that the user has
not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeGuard, TypeVar
from weakref import WeakSet

from tidemill.client.own_connection.adapters import (
    AsyncpgAdapter,
    AsyncPsycopgAdapter,
    DjangoAdapter,
    PsycopgAdapter,
    SqlAlchemyAdapter,
    Sqlite3Adapter,
    async_host,
)
from tidemill.client.own_connection.dialects import (
    converse_postgres,
    converse_sqlite,
    look_for_tables,
    path_of,
)
from tidemill.client.own_connection.sansio import (
    Adapter,
    AsyncAdapter,
    CompletionWrite,
    ConnectionWrite,
    EnqueueWrite,
    PendingOutput,
    SignalWrite,
    StartWrite,
    StepWrite,
    SyncAdapter,
    Talk,
    adrive,
    drive,
    elsewhere,
)
from tidemill.domain.flow_plan import FlowPlan
from tidemill.domain.graph import Started, StepRecord
from tidemill.domain.job import Enqueued, Finish, NewJob
from tidemill.domain.records import AuditEntry
from tidemill.domain.signals import NewSignal, Posted
from tidemill.errors import (
    JobExists,
    SchemaOutdated,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
    TidemillError,
    UsageError,
)
from tidemill.stores.base import Store
from tidemill.stores.sql.store import SqlStore

T = TypeVar("T")

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


def look_on(connection: object, store: Store) -> None:
    """Raise immediately if the user's SQLite connection sees no Tidemill tables; the store's file is not opened."""
    if _is_unseen(store):
        host = _plain_host(connection)
        drive(_looking(host, store), host)


async def alook_on(connection: object, store: Store) -> None:
    """Asynchronous twin of ``look_on``."""
    if _is_unseen(store):
        host = await _async_host(connection)
        await adrive(_looking(host, store), host)


_SEEN: WeakSet[Store] = WeakSet()
"""SQLite stores whose tables a user's connection has seen."""


def _is_unseen(store: Store) -> TypeGuard[SqlStore]:
    return isinstance(store, SqlStore) and store.url.startswith("sqlite") and store not in _SEEN


def _looking(host: Adapter, store: SqlStore) -> Talk[None]:
    if host.dialect == "sqlite":
        yield from _told(look_for_tables(host, store), store)
        _SEEN.add(store)


def enqueue_on(
    connection: object,
    store: Store,
    jobs: Sequence[NewJob],
    *,
    by: str | None = None,
    now: datetime | None = None,
) -> list[Enqueued]:
    """Enqueue inside the transaction that is open on the user's own connection, and commit or roll back with it.

    The results are those of ``store.enqueue``. The connection must lead to the store's own database. The user's session
    is left unchanged, and the jobs are invisible to others until the user commits. With ``by``, an audit entry is
    added.
    """
    if not jobs:
        return []
    checked = _checked(store, jobs)
    host = _plain_host(connection)
    return drive(_conversation(host, checked, EnqueueWrite(jobs, by), now), host)


async def aenqueue_on(
    connection: object,
    store: Store,
    jobs: Sequence[NewJob],
    *,
    by: str | None = None,
    now: datetime | None = None,
) -> list[Enqueued]:
    """Asynchronous twin of ``enqueue_on``."""
    if not jobs:
        return []
    checked = _checked(store, jobs)
    host = await _async_host(connection)
    return await adrive(_conversation(host, checked, EnqueueWrite(jobs, by), now), host)


def start_on(
    connection: object,
    store: Store,
    made: FlowPlan,
    entries: Sequence[AuditEntry],
    *,
    now: datetime | None = None,
) -> Started:
    """Start a flow inside the transaction that is open on the user's own connection, with its audit entries."""
    kept = _checked(store, made.jobs)
    host = _plain_host(connection)
    return drive(_conversation(host, kept, StartWrite(made, entries), now), host)


async def astart_on(
    connection: object,
    store: Store,
    made: FlowPlan,
    entries: Sequence[AuditEntry],
    *,
    now: datetime | None = None,
) -> Started:
    """Asynchronous twin of ``start_on``."""
    kept = _checked(store, made.jobs)
    host = await _async_host(connection)
    return await adrive(_conversation(host, kept, StartWrite(made, entries), now), host)


def finish_on(connection: object, store: Store, finish: Finish, words: PendingOutput) -> bool:
    """Complete a held job inside the user's transaction; return False, writing nothing, if it is no longer held."""
    checked = _checked(store, finish.then)
    host = _plain_host(connection)
    return drive(_conversation(host, checked, CompletionWrite(finish, words), None), host)


async def afinish_on(connection: object, store: Store, finish: Finish, words: PendingOutput) -> bool:
    """Asynchronous twin of ``finish_on``."""
    checked = _checked(store, finish.then)
    host = await _async_host(connection)
    return await adrive(_conversation(host, checked, CompletionWrite(finish, words), None), host)


def signal_on(connection: object, store: Store, signal: NewSignal, *, now: datetime | None = None) -> Posted:
    """Post a signal inside the user's transaction; it exists once the user commits."""
    checked = _checked(store, ())
    host = _plain_host(connection)
    return drive(_conversation(host, checked, SignalWrite(signal), now), host)[0]


async def asignal_on(
    connection: object, store: Store, signal: NewSignal, *, now: datetime | None = None
) -> Posted:
    """Asynchronous twin of ``signal_on``."""
    checked = _checked(store, ())
    host = await _async_host(connection)
    return (await adrive(_conversation(host, checked, SignalWrite(signal), now), host))[0]


def _checked(store: Store, jobs: Sequence[NewJob]) -> SqlStore:
    if not isinstance(store, SqlStore):
        raise UsageError(
            f"{store.url} is not a database that connection= can use; connection= needs PostgreSQL or SQLite"
        )
    if len({job.id for job in jobs}) < len(jobs):
        # The database would also detect the duplicate, but its error would abort the user's transaction.
        raise JobExists("one of these jobs is given twice; nothing was enqueued")
    return store


def _conversation(host: Adapter, store: SqlStore, work: ConnectionWrite[T], now: datetime | None) -> Talk[T]:
    dialect = "sqlite" if store.url.startswith("sqlite") else "postgres"
    if host.dialect != dialect:
        raise elsewhere(store, "SQLite" if host.dialect == "sqlite" else "PostgreSQL")
    converse = converse_sqlite if dialect == "sqlite" else converse_postgres
    return (yield from _told(converse(host, store, work, now), store))


def _told(talk: Talk[T], store: SqlStore) -> Talk[T]:
    """Run the protocol, translating database errors to Tidemill errors."""
    try:
        return (yield from talk)
    except TidemillError:
        raise
    except Exception as error:
        if store.url.startswith("sqlite"):
            told = _of_sqlite(error, path_of(store))
        else:
            told = _of_postgres(error, store.url)
        if told is None:
            raise
        raise told from error


# Adapters ----------------------------------------------------------------------------------------------------------------


def _plain_host(given: Any) -> SyncAdapter:
    match "django" if isinstance(given, str) else _kind(given, _PLAIN):
        case "sqlite3":
            return Sqlite3Adapter(given)
        case "psycopg":
            return PsycopgAdapter(given)
        case "sqlalchemy":
            return SqlAlchemyAdapter(given)
        case "django":
            return DjangoAdapter(given)
        case _ if _kind(given, _ASYNC) is not None:
            raise UsageError(
                f"{_name(given)} is asynchronous; use aenqueue, astart or acomplete, and await it"
            )
        case _:
            raise _unknown(given)


async def _async_host(given: Any) -> AsyncAdapter:
    match _kind(given, _ASYNC):
        case "psycopg":
            return AsyncPsycopgAdapter(given)
        case "asyncpg":
            return AsyncpgAdapter(given)
        case "sqlalchemy":
            return await async_host(given)
        case _ if isinstance(given, str) or _kind(given, _PLAIN) == "django":
            raise UsageError(
                "Django's connections are not asynchronous; use enqueue, start or complete, inside sync_to_async with the transaction"
            )
        case _ if _kind(given, _PLAIN) is not None:
            raise UsageError(
                f"{_name(given)} is not asynchronous; use enqueue, start or complete, without await"
            )
        case _:
            raise _unknown(given)


def _kind(given: object, kinds: dict[tuple[str, str], str]) -> str | None:
    """Return the kind of a connection, found by the names of its class and base classes."""
    for cls in type(given).__mro__:
        kind = kinds.get((cls.__module__.partition(".")[0], cls.__name__))
        if kind is not None:
            return kind
    return None


def _name(given: object) -> str:
    return f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"


def _unknown(given: object) -> UsageError:
    return UsageError(f"connection= cannot be a {_name(given)}; give one of: {KINDS}")


_BUSY = frozenset({"40001", "40P01", "55P03", "57014"})
_MISSING = frozenset({"42P01", "42703", "3F000"})
_REFUSED = frozenset({"22", "23"})
_DONE_FOR = "your transaction has failed with it: roll it back and do all of it again"


def _of_postgres(error: Exception, where: str) -> TidemillError | None:
    """Return the error to raise instead, or None if the driver's own error is the best one."""
    for cause in _causes(error):
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if isinstance(state, str):
            return _error_of(state, _sentence(cause), where)
    return None


def _of_sqlite(error: Exception, path: str) -> TidemillError | None:
    """Return the error to raise instead, or None if the driver's own error is the best one."""
    from tidemill.stores.sql.sqlite import failures

    for cause in _causes(error):
        if isinstance(cause, Exception) and failures.code_of(cause):
            return failures.translate(cause, path, "enqueue")
    return None


def _error_of(state: str, text: str, where: str) -> TidemillError | None:
    if state == "23505":
        return JobExists(
            f"one of these jobs was stored by another process in the meantime ({text}); {_DONE_FOR}"
        )
    if state in _BUSY:
        return StoreBusy(f"{where} is busy ({text}); {_DONE_FOR}")
    if state in _MISSING:
        return SchemaOutdated(
            f"{where} lacks Tidemill's tables ({text}); run: tidemill db migrate --store '{where}'"
        )
    if state == "25P02":
        return UsageError("an earlier statement of your transaction has failed; roll it back and start again")
    if state == "25006":
        return StoreUnavailable(
            f"your transaction may only read ({text}); open one that may write, on the primary"
        )
    if state == "42501":
        return StoreUnavailable(
            f"{where} denied access ({text}); grant the role of your connection privileges on the schema"
        )
    if state[:2] in _REFUSED:
        return StoreCorrupt(f"{where} refused the data ({text}); {_DONE_FOR}")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it wraps, outermost first."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _sentence(error: BaseException) -> str:
    text = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else type(error).__name__


class OwnConnections:
    """Completes jobs of one store."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def finish(self, connection: object, finish: Finish, words: PendingOutput) -> bool:
        """Complete a held job inside the user's transaction; return False, writing nothing, if it is no longer held."""
        return finish_on(connection, self._store(), finish, words)

    async def afinish(self, connection: object, finish: Finish, words: PendingOutput) -> bool:
        """Asynchronous twin of ``finish``."""
        return await afinish_on(connection, self._store(), finish, words)

    def record_steps(self, connection: object, records: Sequence[StepRecord]) -> bool:
        """Record steps of a held job inside the user's transaction; return False if the job is no longer held."""
        host, checked = _plain_host(connection), _checked(self._store(), ())
        return drive(_conversation(host, checked, StepWrite(records), None), host)

    async def arecord_steps(self, connection: object, records: Sequence[StepRecord]) -> bool:
        """Asynchronous twin of ``record_steps``."""
        checked = _checked(self._store(), ())
        host = await _async_host(connection)
        return await adrive(_conversation(host, checked, StepWrite(records), None), host)
