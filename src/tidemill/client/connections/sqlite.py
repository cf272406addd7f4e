"""What is said to a user's SQLite connection: the store's own statements, in places that are made there for the purpose.

These are temporary tables: they belong to his connection alone, and never reach the file. A savepoint around it all sees to it
that an enqueue which fails leaves nothing of itself in his transaction.

Wake-ups cannot be sent from here: before the commit there is nothing to find, and when he commits nobody tells us. Workers of
other processes notice by their own look at the file within their poll; who is in a hurry calls ``store.notify`` afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from tidemill.client.connections.identity import Identity, elsewhere, same_file
from tidemill.client.connections.talk import Errand, Host, Line, Talk, enqueueing
from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import SchemaOutdated
from tidemill.stores.sql.driver import Items, Row, Takes
from tidemill.stores.sql.queries import load
from tidemill.stores.sql.sqlite.connection import split
from tidemill.stores.sql.sqlite.statements import Statements
from tidemill.stores.sql.store import SqlStore

_UNHEX = re.compile(r"unhex\((replace\(json_extract\(\w+, '\$\.\w+'\), '-', ''\))\)")
_UNHEXED = r"(select data from temp.tidemill_unhexed where hex = \1)"
_PLACES = re.compile(r"create temp table if not exists (tidemill_item_enqueue|tidemill_holders)\b")
_SAVEPOINT = "tidemill_enqueue"


class Transactional(Protocol):
    """The attributes by which sqlite3 says how it treats transactions; ``autocommit`` is there from Python 3.12 on."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def isolation_level(self) -> str | None: ...


def joins(connection: Transactional) -> bool:
    """Whether a write would be part of a transaction that the user ends: one is open, or sqlite3 opens one with the write."""
    if connection.in_transaction:
        return True
    legacy = getattr(connection, "autocommit", -1) == -1
    return legacy and connection.isolation_level is not None


@lru_cache
def statements() -> Statements:
    """The store's statements."""
    return Statements()


@lru_cache
def _places() -> tuple[str, ...]:
    """The SQL that makes the temporary tables.

    SQLite has had ``unhex`` only since 3.41, and the user's connection does not have ours: a table of ids does its work.
    """
    session = resources.files("tidemill.stores.sql.sqlite").joinpath("session.sql").read_text("utf-8")
    return (
        *(statement for statement in split(session) if _PLACES.search(statement)),
        "create temp table if not exists tidemill_unhexed(hex text primary key, data blob not null) without rowid",
    )


def converse(
    host: Host, store: SqlStore, jobs: Sequence[NewJob], now: datetime | None, by: str | None
) -> Talk[list[Enqueued]]:
    """Make sure of transaction and database, and enqueue within a savepoint."""

    def say(sql: str, values: Any = (), *, many: bool = False) -> Line:
        spelt = sql if host.style == "marks" else sql.replace("%", "%%").replace("?", "%s")
        return Line(spelt, list(values) if many else tuple(values), many)

    def run(name: str, takes: Takes, items: Items) -> Talk[list[Row]]:
        program = statements().get(name, takes)
        rows: list[Row] = []
        for sql, many, values in program.bind(takes, items, lambda: at):
            rows = yield say(_UNHEX.sub(_UNHEXED, sql), values, many=many)
        kinds = [kind for _, kind in load("sqlite")[name].gives]
        return program.decode([_read(row, kinds) for row in rows]) if rows else []

    def look() -> Talk[Identity | None]:
        rows = yield say("select 1 from main.sqlite_master where type = 'table' and name = 'tidemill_meta'")
        if rows:
            rows = yield from run("installation", {}, {})
            return (rows[0][0], rows[0][1]) if rows else None
        rows = yield say("select file from pragma_database_list where name = 'main'")
        _refuse_untabled(store, _read(rows[0], ["text"])[0] or "")
        return None

    at: Any = now
    theirs = yield from look()
    host.ready()
    ours: Identity = yield Errand(store.whereabouts)
    if theirs is None or theirs[0] != ours[0] or not same_file(theirs[1], ours[1]):
        raise elsewhere(store, theirs[1] if theirs else "")
    if at is None:
        at = yield Errand(store.now)

    for place in _places():
        yield say(place)
    # The first write: where sqlite3 opens transactions by itself, it does so here, and the savepoint lies within.
    yield say("delete from temp.tidemill_unhexed")
    yield say(f"savepoint {_SAVEPOINT}")
    try:
        if ids := list(_ids(jobs)):
            yield say("insert or ignore into temp.tidemill_unhexed values (?, ?)", ids, many=True)
        enqueued = yield from enqueueing(jobs, at, run, by)
    except GeneratorExit:
        raise
    except BaseException:
        with suppress(Exception):  # the worst errors have undone the whole transaction already
            yield say(f"rollback to {_SAVEPOINT}")
            yield say(f"release {_SAVEPOINT}")
        raise
    yield say(f"release {_SAVEPOINT}")
    return enqueued


def path_of(store: SqlStore) -> str:
    """The store's file, as its address names it."""
    return str(Path(unquote(urlsplit(store.url).path)[1:]).absolute())


def _refuse_untabled(store: SqlStore, file: str) -> None:
    """A file without our tables is another one, or it is the store's own and nobody has made them yet."""
    if not file or not same_file(file, path_of(store)):
        raise elsewhere(store, file or "a database in memory")
    raise SchemaOutdated(
        f"{store.url} has no Tidemill tables yet, and they cannot be made while this connection is at work;"
        f" run first: tidemill db migrate --store '{store.url}'"
    )


def _read(row: Row, kinds: Sequence[str]) -> Row:
    """A row with text as text, also where the connection's ``text_factory`` is bytes."""
    return tuple(
        value.decode() if kind == "text" and isinstance(value, bytes) else value
        for value, kind in zip(row, kinds, strict=True)
    )


def _ids(jobs: Sequence[NewJob]) -> Iterator[tuple[str, bytes]]:
    for job in jobs:
        for id in (job.details.parent_id, job.details.definition_id, job.details.schedule_id):
            if id is not None:
                yield id.hex, id.bytes
