"""Compiled queries, for libpq and for psycopg cursors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.pq import Format
from psycopg.types.numeric import Int2, Int4, Int8

from tidemill.stores.sql.driver import Items, Takes
from tidemill.stores.sql.named_queries import NamedQuery, load, parameters, refuse_undeclared, substitute
from tidemill.stores.sql.postgres.values import ARRAYS, Pack, column, given, pack, single

_SEARCHES = frozenset({"jobs", "looked", "count"})
_SKEWED = frozenset({"task", "tasks", "queues", "states", "error_group"})
"""Conditions of a search that one value fulfils often and another one rarely. One plan for both reads a million jobs for
a task that has ten."""

_INTEGERS = {"int2": Int2, "int4": Int4, "int8": Int8}


@dataclass(frozen=True, slots=True)
class Statement:
    """One query for one set of optional parameters."""

    name: str
    sql: str  #: with named parameters in psycopg's syntax
    takes: tuple[tuple[str, str], ...]
    items: tuple[tuple[str, str], ...]
    gives: bool
    numbered: bytes  #: with numbered parameters for libpq: single values first, then the columns of the batch
    types: tuple[int, ...]
    formats: tuple[Format, ...]
    values: tuple[tuple[str, Pack], ...]
    columns: tuple[tuple[str, Pack], ...]
    answers: tuple[int, ...]  #: the types of the result columns
    declared: frozenset[str]  #: the columns that the file declares
    by_value: bool  #: its best plan depends on the values
    local: bool  #: it does not wait for a standby, and must not wait for statements that do

    def pack(self, takes: Takes, items: Items | None) -> list[bytes | None]:
        """The parameters for libpq."""
        packed: list[bytes | None] = [
            None if (value := takes.get(name)) is None else pack(value) for name, pack in self.values
        ]
        if items is not None:
            if not self.declared.issuperset(items):
                refuse_undeclared(self.name, items, self.declared)
            packed += [pack(items[name]) for name, pack in self.columns]
        return packed

    def prepared(self, takes: Takes, differing: Sequence[str]) -> PreparedCall:
        """Pack these parameters for calls that also give the differing ones."""
        packs = {name: (place, pack) for place, (name, pack) in enumerate(self.values)}
        rest = {name: value for name, value in takes.items() if name not in differing}
        return PreparedCall(self, self.pack(rest, None), tuple(packs[name] for name in differing))

    def bind(self, takes: Takes, items: Items | None) -> dict[str, Any]:
        """The parameters for psycopg."""
        bound: dict[str, Any] = {}
        for name, kind in self.takes:
            value: Any = takes.get(name)
            if value is None:
                bound[name] = None
            elif kind in ARRAYS:
                bound[name] = pack(ARRAYS[kind], value)
            else:
                bound[name] = _INTEGERS[kind](value) if kind in _INTEGERS else value
        if items is not None:
            refuse_undeclared(self.name, items, self.declared)
            for name, kind in self.items:
                bound[name] = pack(kind, items[name])
        return bound


PLAN_BY_VALUE = Statement(
    name="plan_by_value",
    sql="",
    takes=(),
    items=(),
    gives=False,
    numbered=b"select set_config('plan_cache_mode', 'force_custom_plan', true)",
    types=(),
    formats=(),
    values=(),
    columns=(),
    answers=(),
    declared=frozenset(),
    by_value=False,
    local=False,
)
"""Lets the next statements of the transaction be planned with their values."""

_Call = tuple[str, tuple[str, ...], frozenset[str], tuple[str, ...], bool]
"""A query, the names of its parameters, those with a value, its flags, and whether it has its own transaction."""


class PreparedCall(NamedTuple):
    """A statement for calls that differ in a few parameters; all others are packed once."""

    statement: Statement
    packed: list[bytes | None]
    places: tuple[tuple[int, Pack], ...]  #: of the parameters that differ, in the order of a call's values


class Statements:
    """All queries, each compiled once per set of optional parameters."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._queries = load("postgres")
        self._compiled: dict[tuple[str, frozenset[str]], Statement] = {}
        self._chosen: dict[_Call, Statement] = {}

    def get(self, name: str, takes: Takes, flags: Iterable[str], *, alone: bool = False) -> Statement:
        """The statement for a call. ``alone`` adds the lines for a call in its own transaction."""
        given = frozenset([key for key in takes if takes[key] is not None])
        call = (name, tuple(takes), given, tuple(flags), alone)
        return self._chosen.get(call) or self._choose(call, takes)

    def _choose(self, call: _Call, takes: Takes) -> Statement:
        """Compile the statement for calls that give these parameters, which a few of its lines depend on."""
        name, _, _, flags, alone = call
        query = self._queries[name]
        present = query.present(takes, flags)
        if alone and "alone" in query.optional:
            present |= {"alone"}
        statement = self._compiled.get((name, present))
        if statement is None:
            statement = self._compiled[name, present] = self._compile(query, present)
        self._chosen[call] = statement
        return statement

    def _compile(self, query: NamedQuery, present: frozenset[str]) -> Statement:
        (text,) = query.statements(present)
        used = set(parameters(text))
        text = re.sub(r"\s+", " ", self.qualify(text))
        takes = tuple(pair for pair in query.takes if pair[0] in used)
        items = tuple(pair for pair in query.items if pair[0] in used)
        places = {name: f"${place}" for place, (name, _) in enumerate(takes + items, start=1)}
        types = [single(kind) for _, kind in takes] + [column(kind) for _, kind in items]
        packs = [(name, pack) for (name, _), (_, pack) in zip(takes + items, types, strict=True)]
        return Statement(
            name=query.name,
            sql=substitute(text.replace("%", "%%"), {name: f"%({name})s" for name in used}),
            takes=takes,
            items=items,
            gives=bool(query.gives),
            numbered=substitute(text, places).encode(),
            types=tuple(oid for oid, _ in types),
            formats=(Format.BINARY,) * len(types),
            values=tuple(packs[: len(takes)]),
            columns=tuple(packs[len(takes) :]),
            answers=tuple(given(kind) for _, kind in query.gives),
            declared=query.columns,
            by_value=query.name in _SEARCHES and not _SKEWED.isdisjoint(present),
            local="alone" in present,
        )

    def qualify(self, sql: str) -> str:
        """The SQL for the configured schema."""
        return sql if self._schema == "tidemill" else sql.replace("tidemill.", f"{self._schema}.")
