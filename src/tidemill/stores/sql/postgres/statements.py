"""Named queries made ready for psycopg: our parameters spelt its way, our types packed or cast."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg.types.numeric import Int2, Int4, Int8

from tidemill.stores.sql.driver import Items, Takes
from tidemill.stores.sql.postgres.arrays import pack
from tidemill.stores.sql.queries import Query, load, parameters, substitute

_INTEGERS = {"int2": Int2, "int4": Int4, "int8": Int8}
_ARRAYS = {"uuids": "uuid", "texts": "text", "int2s": "int2", "int4s": "int4", "int8s": "int8"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One query for one set of optional parameters."""

    sql: str
    takes: tuple[tuple[str, str], ...]
    items: tuple[tuple[str, str], ...]
    gives: bool

    def bind(self, takes: Takes, items: Items | None) -> dict[str, Any]:
        """The parameters as psycopg wants them."""
        bound: dict[str, Any] = {}
        for name, kind in self.takes:
            value: Any = takes.get(name)
            if value is None:
                bound[name] = None
            elif kind in _ARRAYS:
                bound[name] = pack(_ARRAYS[kind], value)
            else:
                bound[name] = _INTEGERS[kind](value) if kind in _INTEGERS else value
        if items is not None:
            for name, kind in self.items:
                bound[name] = pack(kind, items[name])
        return bound


class Statements:
    """All queries, each compiled once for each set of optional parameters it is called with."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._queries = load("postgres")
        self._compiled: dict[tuple[str, frozenset[str]], Statement] = {}

    def get(self, name: str, takes: Takes, flags: Iterable[str]) -> Statement:
        query = self._queries[name]
        present = query.optional and query.optional & (
            {key for key in takes if takes[key] is not None} | set(flags)
        )
        found = self._compiled.get((name, present))
        if found is None:
            found = self._compiled[name, present] = self._compile(query, present)
        return found

    def _compile(self, query: Query, present: frozenset[str]) -> Statement:
        (text,) = query.statements(present)
        used = set(parameters(text))
        text = re.sub(r"\s+", " ", self.qualify(text)).replace("%", "%%")
        return Statement(
            sql=substitute(text, {name: f"%({name})s" for name in used}),
            takes=tuple(column for column in query.takes if column[0] in used),
            items=tuple(column for column in query.items if column[0] in used),
            gives=bool(query.gives),
        )

    def qualify(self, sql: str) -> str:
        """The SQL for the schema in use."""
        return sql if self._schema == "tidemill" else sql.replace("tidemill.", f"{self._schema}.")
