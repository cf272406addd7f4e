"""Enqueueing on a user's SQLite connection, with the store's own statements.

The statements use temporary tables, which belong to the user's connection alone and never reach the file. A savepoint
ensures that a failed enqueue leaves nothing in the user's transaction.

Wake-ups cannot be sent from here: before the commit there are no jobs to find, and SQLite does not report the commit.
Workers of other processes notice the jobs when they poll the file. To wake them sooner, call ``store.notify`` after the
commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from tidemill.client.own_connection.sansio import (
    Adapter,
    ConnectionWrite,
    Identity,
    StoreCall,
    Talk,
    UserStatement,
    elsewhere,
    rehearsed,
    same_file,
)
from tidemill.domain.job import NewJob
from tidemill.errors import SchemaOutdated
from tidemill.stores.sql.driver import Items, Row, Takes
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.sqlite.connection import split
from tidemill.stores.sql.sqlite.statements import Statements
from tidemill.stores.sql.store import SqlStore

T = TypeVar("T")

_UNHEX = re.compile(r"unhex\((replace\(json_extract\(\w+, '\$\.\w+'\), '-', ''\))\)")
_UNHEXED = r"(select data from temp.tidemill_unhexed where hex = \1)"
_TABLE = re.compile(r"create temp table if not exists (\w+)")
_SAVEPOINT = "tidemill_enqueue"


class Transactional(Protocol):
    """The attributes with which sqlite3 describes its transaction mode; Python 3.12 added ``autocommit``."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def isolation_level(self) -> str | None: ...


def joins(connection: Transactional) -> bool:
    """Whether a write would belong to a transaction that the user ends.

    Either a transaction is open, or sqlite3 opens one for the write.
    """
    if connection.in_transaction:
        return True
    legacy = getattr(connection, "autocommit", -1) == -1
    return legacy and connection.isolation_level is not None


@lru_cache
def statements() -> Statements:
    """Return the store's statements."""
    return Statements()


@lru_cache
def _places(tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the SQL that creates the temporary tables with these names.

    SQLite supports ``unhex`` only since 3.41, and the user's connection lacks the store's own function, so a table of
    ids replaces it.
    """
    session = resources.files("tidemill.stores.sql.sqlite").joinpath("session.sql").read_text("utf-8")
    return (
        *(
            statement
            for statement in split(session)
            if (made := _TABLE.search(statement)) is not None and made[1] in tables
        ),
        "create temp table if not exists tidemill_unhexed(hex text primary key, data blob not null) without rowid",
    )


def converse(host: Adapter, store: SqlStore, work: ConnectionWrite[T], now: datetime | None) -> Talk[T]:
    """Check the transaction and the database, and write inside a savepoint."""

    def say(sql: str, values: Any = (), *, many: bool = False) -> UserStatement:
        return _spelt(host, sql, values, many=many)

    def run(name: str, takes: Takes, items: Items) -> Talk[list[Row]]:
        program = statements().get(name, takes)
        rows: list[Row] = []
        for sql, many, values in program.bind(takes, items, lambda: at):
            rows = yield say(_UNHEX.sub(_UNHEXED, sql), values, many=many)
        kinds = [kind for _, kind in load("sqlite")[name].gives]
        return program.decode([_read(row, kinds) for row in rows]) if rows else []

    at: Any = now
    yield from look_for_tables(host, store)
    theirs = next(iter((yield from run("installation", {}, {}))), None)
    host.ready()
    ours: Identity = yield StoreCall(store.whereabouts)
    if theirs is None or theirs[0] != ours[0] or not same_file(theirs[1], ours[1]):
        raise elsewhere(store, theirs[1] if theirs else "")
    if at is None:
        at = yield StoreCall(store.now)
    yield from work.before("sqlite")

    for place in _places(work.tables):
        yield say(place)
    # The first write: if sqlite3 opens transactions implicitly, it does so here, and the savepoint is inside that one.
    yield say("delete from temp.tidemill_unhexed")
    yield say(f"savepoint {_SAVEPOINT}")
    try:
        if ids := list(_ids(work.jobs)):
            yield say("insert or ignore into temp.tidemill_unhexed values (?, ?)", ids, many=True)
        answer = yield from rehearsed(work, at, run)
    except GeneratorExit:
        raise
    except BaseException:
        with suppress(Exception):  # after a severe error SQLite has already rolled back the whole transaction
            yield say(f"rollback to {_SAVEPOINT}")
            yield say(f"release {_SAVEPOINT}")
        raise
    yield say(f"release {_SAVEPOINT}")
    return answer


def look_for_tables(host: Adapter, store: SqlStore) -> Talk[None]:
    """Raise if the user's connection sees no Tidemill tables.

    This must run before any store call: the store would create its tables, and wait for the lock that the user's
    transaction holds.
    """
    rows = yield _spelt(
        host, "select 1 from main.sqlite_master where type = 'table' and name = 'tidemill_meta'"
    )
    if not rows:
        rows = yield _spelt(host, "select file from pragma_database_list where name = 'main'")
        _refuse_untabled(store, _read(rows[0], ["text"])[0] or "")


def _spelt(host: Adapter, sql: str, values: Any = (), *, many: bool = False) -> UserStatement:
    spelt = sql if host.style == "marks" else sql.replace("%", "%%").replace("?", "%s")
    return UserStatement(spelt, list(values) if many else tuple(values), many)


def path_of(store: SqlStore) -> str:
    """Return the path of the store's file, taken from its URL."""
    return str(Path(unquote(urlsplit(store.url).path)[1:]).absolute())


def _refuse_untabled(store: SqlStore, file: str) -> None:
    """Raise for a file without Tidemill tables: it is another file, or the store's own before its first migration."""
    if not file or not same_file(file, path_of(store)):
        raise elsewhere(store, file or "a database in memory")
    raise SchemaOutdated(
        f"{store.url} has no Tidemill tables, and they cannot be created inside your transaction; run"
        f" tidemill db migrate --store '{store.url}' first, or create the app with migrate=True"
    )


def _read(row: Row, kinds: Sequence[str]) -> Row:
    """Decode text columns if the connection's ``text_factory`` is bytes."""
    return tuple(
        value.decode() if kind == "text" and isinstance(value, bytes) else value
        for value, kind in zip(row, kinds, strict=True)
    )


def _ids(jobs: Sequence[NewJob]) -> Iterator[tuple[str, bytes]]:
    for job in jobs:
        for id in (job.details.parent_id, job.details.definition_id, job.details.schedule_id):
            if id is not None:
                yield id.hex, id.bytes
