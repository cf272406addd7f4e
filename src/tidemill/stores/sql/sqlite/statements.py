"""Compiled queries for SQLite, with encoded arguments and decoded results.

Parameters become plain ``?``, one for each mention. A statement that mentions a column of the batch runs once for every
item, the others once; the last one that returns rows gives the result. If a column is NULL in the whole batch, the statement
contains a literal NULL: binding a None costs SQLite's module more than binding several numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from sqlite3 import Connection
from typing import Any

from tidemill.stores.sql.driver import Items, Row, Takes
from tidemill.stores.sql.named_queries import NamedQuery, load, parameters, refuse_undeclared, substitute
from tidemill.stores.sql.sqlite.values import ENCODE, Encode, decoder, encoded

_MENTION = re.compile(r"(?<![:\w]):([a-z_]+)")
_WRITES = re.compile(r"\b(insert|update|delete|replace)\b(?!\()", re.IGNORECASE)

Bound = list[tuple[str, bool, Any]]
"""Statements with their arguments; True means many rows of arguments."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, and the names of its arguments."""

    sql: str
    arguments: tuple[str, ...]
    columns: frozenset[str]  #: the arguments that are columns of the batch

    @property
    def is_batched(self) -> bool:
        """Whether it runs once for every item."""
        return bool(self.columns)


@dataclass(frozen=True, slots=True)
class Program:
    """One query for one set of optional parameters."""

    name: str
    statements: tuple[Statement, ...]
    takes: tuple[tuple[str, Encode], ...]
    items: tuple[tuple[str, Encode], ...]
    declared: frozenset[str]  #: the columns that the file declares
    timed: bool
    reads: bool
    decode: Callable[[list[Row]], list[Row]]

    def bind(self, takes: Takes, items: Items | None, now: Callable[[], datetime]) -> Bound:
        """The statements with these values, encoded for SQLite."""
        given: dict[str, Any] = {name: encode((takes.get(name),))[0] for name, encode in self.takes}
        if self.timed and given["now"] is None:
            given["now"] = ENCODE["timestamptz"]((now(),))[0]
        if items is not None:
            refuse_undeclared(self.name, items, self.declared)
        columns = {} if items is None else {name: encoded(encode, items[name]) for name, encode in self.items}
        empty = frozenset(
            name
            for name, column in columns.items()
            if column and column[0] is None and column.count(None) == len(column)
        )
        bound: Bound = []
        for whole in self.statements:
            if whole.is_batched:
                null = empty & whole.columns
                statement = whole if not null or null == whole.columns else without(whole, null)
                # zip ends with the batch: repeated values never run out.
                mentioned = [
                    columns[name] if name in columns else repeat(given[name]) for name in statement.arguments
                ]
                bound.append((statement.sql, True, zip(*mentioned)))  # noqa: B905
            else:
                bound.append((whole.sql, False, tuple([given[name] for name in whole.arguments])))
        return bound


class Statements:
    """All queries, each compiled once per set of optional parameters."""

    def __init__(self) -> None:
        self._queries = load("sqlite")
        self._programs: dict[tuple[str, frozenset[str]], Program] = {}

    def get(self, name: str, takes: Takes, flags: Iterable[str] = ()) -> Program:
        query = self._queries[name]
        present = query.present(takes, flags)
        compiled = self._programs.get((name, present))
        if compiled is None:
            compiled = self._programs[name, present] = program(query, present)
        return compiled


def program(query: NamedQuery, present: frozenset[str]) -> Program:
    """Compile a query for a call with these optional parameters."""
    texts = query.statements(present)
    used = {name for text in texts for name in parameters(text)}
    return Program(
        name=query.name,
        statements=tuple(
            Statement(
                sql=re.sub(r"\s+", " ", substitute(text, dict.fromkeys(parameters(text), "?"))),
                arguments=tuple(_MENTION.findall(text)),
                columns=query.columns & set(parameters(text)),
            )
            for text in texts
        ),
        takes=tuple((name, ENCODE[kind]) for name, kind in query.takes if name in used),
        items=tuple((name, ENCODE[kind]) for name, kind in query.items if name in used),
        declared=query.columns,
        timed="now" in used,
        reads=not any(_WRITES.search(text) for text in texts),
        decode=decoder([kind for _, kind in query.gives]),
    )


@lru_cache(maxsize=512)
def without(statement: Statement, empty: frozenset[str]) -> Statement:
    """The same statement for a batch in which these columns are NULL throughout."""
    sql, *rest = statement.sql.split("?")
    kept: list[str] = []
    for name, text in zip(statement.arguments, rest, strict=True):
        if name in empty:
            sql += "null"
        else:
            sql += "?"
            kept.append(name)
        sql += text
    return Statement(sql, tuple(kept), statement.columns - empty)


def execute(connection: Connection, bound: Bound) -> list[Row]:
    """Run the statements in order. Returns the rows of the last one that returns any."""
    rows: list[Row] = []
    for sql, many, arguments in bound:
        if many:
            connection.executemany(sql, arguments)
            continue
        cursor = connection.execute(sql, arguments)
        if cursor.description is not None:
            rows = cursor.fetchall()
    return rows
