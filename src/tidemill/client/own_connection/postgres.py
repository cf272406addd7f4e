"""Enqueueing on a user's PostgreSQL connection, with the store's own queries.

The wake-up is sent in the same transaction. PostgreSQL delivers it at the commit, merges equal ones, and drops it on a
rollback. ``?notify=0`` in the store's URL disables it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tidemill.client.own_connection.sansio import (
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
)
from tidemill.errors import JobExists, StoreBusy
from tidemill.stores.sql.driver import Items, Row, Takes
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from tidemill.stores.sql.postgres.settings import PostgresSettings

T = TypeVar("T")

_PARAMETER = re.compile(r"%\((\w+)\)s")
_NOW = re.compile(r"\bnow\(\)")
_SAVEPOINT = "tidemill_enqueue"
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

    def line(self, name: str, takes: Takes, items: Items) -> UserStatement:
        """Return a named query with its values."""
        statement = self._statements.get(name, takes, ())
        # ``now()`` is the start of the user's transaction, which may be long ago.
        sql = _NOW.sub("statement_timestamp()", statement.sql)
        if self._style == "packed":
            return UserStatement(sql, statement.bind(takes, items))
        values: dict[str, Any] = {column: takes.get(column) for column, _ in statement.takes}
        for column, kind in statement.items:
            given: Sequence[Any] = items[column]
            if kind == "uuid":  # every driver accepts an id as text, but not every driver accepts a UUID
                values[column] = [str(id) for id in given]
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


phrasebook = lru_cache(QueryTexts)


@lru_cache
def _settings(url: str) -> PostgresSettings:
    from tidemill.stores.sql.postgres.settings import read_settings

    return read_settings(url)


def converse(host: Adapter, store: SqlStore, work: ConnectionWrite[T], now: datetime | None) -> Talk[T]:
    """Check the transaction and the database, write, and send the wake-ups in the same transaction."""
    settings = _settings(store.url)
    book = phrasebook(settings.schema, host.style)
    host.ready()
    yield from _identify(host, store, book, settings.schema)

    def run(name: str, takes: Takes, items: Items) -> Talk[list[Row]]:
        kinds = [kind for _, kind in load("postgres")[name].gives]
        rows = yield book.line(name, takes, items)._replace(gives=bool(kinds))
        return [_read(row, kinds) for row in rows]

    yield from work.before("postgres")
    answer = yield from _all_or_none(work, rehearsed(work, now, run))
    topics = work.topics(answer)
    if topics and settings.notify:
        yield from _wake(book, f"{settings.schema}_wake", topics)
    return answer


def _all_or_none(work: ConnectionWrite[T], writing: Talk[T]) -> Talk[T]:
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


def _read(row: Row, kinds: Sequence[str]) -> Row:
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
        rows = yield book.line("installation", {}, {})
    return (rows[0][0], rows[0][1]) if there and rows else ("", place)
