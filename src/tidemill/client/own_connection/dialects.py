"""Enqueueing on a user's connection in both dialects, with the store's own statements.

PostgreSQL: the wake-up is sent in the same transaction. PostgreSQL delivers it at the commit, merges equal ones, and
drops it on a rollback. ``?notify=0`` in the store's URL disables it. With ``?wake=`` the wake-up is sent a moment later, because
the bus does not see the commit.

SQLite: the statements use temporary tables, which belong to the user's connection alone and never reach the file. A
savepoint ensures that a failed enqueue leaves nothing in the user's transaction. Wake-ups cannot be sent: before the
commit there are no jobs to find, and SQLite does not report the commit. Workers of other processes notice the jobs when
they poll the file. To wake them sooner, call ``store.notify`` after the commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

from tidemill.client.own_connection.sansio import (
    Acted,
    Adapter,
    ConnectionWrite,
    Identity,
    StoreCall,
    Talk,
    UserStatement,
    elsewhere,
    rehearsed,
    remember,
    remembered,
    same_file,
)
from tidemill.domain.job import NewJob
from tidemill.errors import JobExists, SchemaOutdated, StoreBusy
from tidemill.stores.sql.driver import QueryCall, Row, Takes
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from tidemill.stores.sql.postgres.settings import PostgresSettings
    from tidemill.stores.sql.sqlite.statements import Statements


T = TypeVar("T")

_SAVEPOINT = "tidemill_enqueue"

# PostgreSQL --------------------------------------------------------------------------------------------------------------

_PARAMETER = re.compile(r"%\((\w+)\)s")
_NOW = re.compile(r"\bnow\(\)")
_MICROSECOND = timedelta(microseconds=1)
_SPANS = (
    "array(select s.span * interval '1 microsecond'"
    " from unnest(%({})s::bigint[]) with ordinality as s(span, place) order by s.place)"
)
"""Converts microseconds to intervals.

Drivers send durations in days, and a day in the user's session time zone has 23 or 25 hours when clocks change.
"""


class QueryTexts:
    """The queries of one schema in one parameter style."""

    def __init__(self, schema: str, style: str) -> None:
        from tidemill.stores.sql.postgres.statements import Statements

        self._statements = Statements(schema)
        self._style = style

    def line(self, call: QueryCall) -> UserStatement:
        """Return a named query with its values."""
        name, takes, items, flags = call
        statement = self._statements.get(name, takes, flags)
        # ``now()`` is the start of the user's transaction, which may be long ago.
        sql = _NOW.sub("statement_timestamp()", statement.sql)
        if self._style == "packed":
            return UserStatement(sql, statement.bind(takes, items))
        values: dict[str, Any] = {
            column: _as_text(takes.get(column)) if kind in ("uuid", "uuids") else takes.get(column)
            for column, kind in statement.takes
        }
        for column, kind in statement.items:
            given: Sequence[Any] = (items or {})[column]
            if kind == "uuid":  # every driver accepts an id as text, but not every driver accepts a UUID
                values[column] = _as_text(given)
            elif kind == "interval":
                values[column] = [None if span is None else span // _MICROSECOND for span in given]
                sql = sql.replace(f"%({column})s::interval[]", _SPANS.format(column))
            else:
                values[column] = list(given)
        return self._spelt(sql, values)

    def ask(self, sql: str, **values: object) -> UserStatement:
        """Return an ad-hoc statement with its values."""
        return self._spelt(sql, values)

    def _spelt(self, sql: str, values: dict[str, Any]) -> UserStatement:
        if self._style != "numbered":
            return UserStatement(sql, values)
        numbered, order = _numbered(sql)
        return UserStatement(numbered, tuple(values[column] for column in order))


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    order = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    places = {column: f"${place}" for place, column in enumerate(order, start=1)}
    return _PARAMETER.sub(lambda match: places[match[1]], sql).replace("%%", "%"), order


def _as_text(value: Any) -> Any:
    """An id, or a list of ids, as text."""
    if value is None or isinstance(value, UUID):
        return value and str(value)
    return [id and str(id) for id in value]


phrasebook = lru_cache(QueryTexts)


@lru_cache
def _settings(url: str) -> PostgresSettings:
    from tidemill.stores.sql.postgres.settings import read_settings

    return read_settings(url)


def converse_postgres(
    host: Adapter, store: SqlStore, work: ConnectionWrite[T], now: datetime | None
) -> Talk[T]:
    """Check the transaction and the database, write, and send the wake-ups in the same transaction."""
    settings = _settings(store.url)
    book = phrasebook(settings.schema, host.style)
    host.ready()
    yield from _identify(host, store, book, settings.schema)

    def run(call: QueryCall) -> Talk[list[Row]]:
        kinds = [kind for _, kind in load("postgres")[call.name].gives]
        rows = yield book.line(call)._replace(gives=bool(kinds))
        return [_plain_ids(row, kinds) for row in rows]

    yield from work.before("postgres")
    answer, notified = yield from _all_or_none(work, rehearsed(work, now, run, store.subscriptions))
    topics = work.topics(answer) | notified
    if topics and settings.wake is not None:
        yield StoreCall(partial(store.notify_later, topics))
    elif topics and settings.notify:
        yield from _wake(book, f"{settings.schema}_wake", topics)
    return answer


def _all_or_none(work: ConnectionWrite[T], writing: Talk[Acted[T]]) -> Talk[Acted[T]]:
    """Run a batch that may need a second statement inside a savepoint, and undo the first if the second is given up.

    A database error needs no undo, because it aborts the user's transaction.
    """
    if not work.in_rounds:
        return (yield from writing)
    yield UserStatement(f"savepoint {_SAVEPOINT}", gives=False)
    try:
        answer = yield from writing
    except (StoreBusy, JobExists):
        yield UserStatement(f"rollback to savepoint {_SAVEPOINT}", gives=False)
        yield UserStatement(f"release savepoint {_SAVEPOINT}", gives=False)
        raise
    yield UserStatement(f"release savepoint {_SAVEPOINT}", gives=False)
    return answer


def _plain_ids(row: Row, kinds: Sequence[str]) -> Row:
    """Convert ids to plain UUIDs: drivers and users may have their own classes for them."""
    return tuple(
        UUID(str(value)) if kind == "uuid" and type(value) is not UUID else value
        for value, kind in zip(row, kinds, strict=True)
    )


def _wake(book: QueryTexts, channel: str, topics: frozenset[str]) -> Talk[None]:
    from tidemill.stores.sql.postgres.wakeups import payloads

    for payload in payloads(topics):
        yield book.ask(
            "select pg_notify(%(channel)s::text, %(payload)s::text)", channel=channel, payload=payload
        )


def _identify(host: Adapter, store: SqlStore, book: QueryTexts, schema: str) -> Talk[None]:
    """Raise unless both sides report the same installation; query cached identities again before raising."""
    theirs: Identity | None = None
    for again in (False, True):
        ours: Identity = yield StoreCall(partial(store.whereabouts, again=again))
        theirs = None if again else remembered(host.key, schema)
        if theirs is None:
            theirs = yield from _look(book, schema)
        if theirs == ours:
            remember(host.key, schema, theirs)
            return
    raise elsewhere(store, theirs[1] if theirs else "")


def _look(book: QueryTexts, schema: str) -> Talk[Identity]:
    """Return the identity of the connection's database.

    Querying a table that does not exist would abort the user's transaction, so this first checks that it exists.
    """
    rows = yield book.ask(
        "select to_regclass(%(name)s::text) is not null, current_database()::text", name=f"{schema}.meta"
    )
    there, place = rows[0]
    if there:
        rows = yield book.line(QueryCall("installation", {}))
    return (rows[0][0], rows[0][1]) if there and rows else ("", place)


# SQLite ------------------------------------------------------------------------------------------------------------------

_UNHEX = re.compile(r"\bunhex\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_UNHEXED = r"(select data from temp.tidemill_unhexed where hex = \1)"
_TABLE = re.compile(r"create temp table if not exists (\w+)")


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
    from tidemill.stores.sql.sqlite.statements import Statements

    return Statements()


@lru_cache
def _places(tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the SQL that creates the temporary tables with these names.

    SQLite supports ``unhex`` only since 3.41, and the user's connection lacks the store's own function, so a table of
    ids replaces it.
    """
    from tidemill.stores.sql.sqlite.connection import split

    session = resources.files("tidemill.stores.sql.sqlite").joinpath("session.sql").read_text("utf-8")
    return (
        *(
            statement
            for statement in split(session)
            if (made := _TABLE.search(statement)) is not None and made[1] in tables
        ),
        "create temp table if not exists tidemill_unhexed(hex text primary key, data blob not null) without rowid",
    )


def converse_sqlite(
    host: Adapter, store: SqlStore, work: ConnectionWrite[T], now: datetime | None
) -> Talk[T]:
    """Check the transaction and the database, and write inside a savepoint."""

    def say(sql: str, values: Any = (), *, many: bool = False) -> UserStatement:
        return _spelt(host, sql, values, many=many)

    def run(call: QueryCall) -> Talk[list[Row]]:
        name, takes, items, flags = call
        program = statements().get(name, takes, flags)
        rows: list[Row] = []
        yield from translate(_taken_ids(takes))
        for sql, many, values in program.bind(takes, items, lambda: at):
            rows = yield say(_UNHEX.sub(_UNHEXED, sql), values, many=many)
        kinds = [kind for _, kind in load("sqlite")[name].gives]
        return program.decode([_decoded(row, kinds) for row in rows]) if rows else []

    def translate(ids: Iterable[UUID]) -> Talk[None]:
        if pairs := [(id.hex, id.bytes) for id in ids]:
            yield say("insert or ignore into temp.tidemill_unhexed values (?, ?)", pairs, many=True)

    at: Any = now
    yield from look_for_tables(host, store)
    theirs = next(iter((yield from run(QueryCall("installation", {})))), None)
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
        yield from translate(_ids(work.jobs))
        answer, _ = yield from rehearsed(work, at, run, store.subscriptions)
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
        _refuse_untabled(store, _decoded(rows[0], ["text"])[0] or "")


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


def _decoded(row: Row, kinds: Sequence[str]) -> Row:
    """Decode text columns if the connection's ``text_factory`` is bytes."""
    return tuple(
        value.decode() if kind == "text" and isinstance(value, bytes) else value
        for value, kind in zip(row, kinds, strict=True)
    )


def _ids(jobs: Sequence[NewJob]) -> Iterator[UUID]:
    """The ids in the details of jobs, which are stored as text first."""
    for job in jobs:
        of = job.details
        for id in (of.parent_id, of.definition_id, of.schedule_id, of.flow_id, of.group_id):
            if id is not None:
                yield id


def _taken_ids(takes: Takes) -> Iterator[UUID]:
    """The ids in the lists that a statement takes."""
    for name, value in takes.items():
        if name == "pairs" and isinstance(value, str):
            yield from (UUID(id) for id, _ in json.loads(value))
        elif isinstance(value, Collection) and not isinstance(value, str):
            yield from (id for id in value if isinstance(id, UUID))
