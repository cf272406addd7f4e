"""Named queries: one file per verb and dialect, with a self-describing header.

A header is a description, followed by parameters and result columns, which are the same in every dialect (a test compares them)::

    -- start: changes claimed jobs to running.
    -- takes: now timestamptz
    -- items: id uuid, token int8
    -- gives: id uuid

``takes`` are single values. ``items`` are the columns of a batch: PostgreSQL binds each as one array, SQLite runs the
statements that mention them once for every item. ``gives`` names the result's columns with their types, from which SQLite's
values are converted. Parameters are written ``:name``. A line that ends in ``-- when name`` belongs to the query only if that
parameter is given; so optional conditions need no SQL in Python. In a file of several statements (SQLite) they are separated by
a line holding only ``;``, and the last one that returns rows gives the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from tidemill.errors import StoreCorrupt

Column = tuple[str, str]

_HEADER = re.compile(r"^-- (takes|items|gives): (.*)$")
_WHEN = re.compile(r"^(.*?)\s*-- when (\w+)\s*$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One named query of one dialect."""

    name: str
    takes: tuple[Column, ...]
    items: tuple[Column, ...]
    gives: tuple[Column, ...]
    body: str
    optional: frozenset[str]  #: the parameters that switch optional lines on

    def statements(self, present: frozenset[str]) -> tuple[str, ...]:
        """The SQL without comments, for a call in which these optional parameters are given."""
        kept: list[str] = []
        for line in self.body.splitlines():
            match = _WHEN.match(line)
            if match is None:
                kept.append(line)
            elif match[2] in present:
                kept.append(match[1])
        text = _COMMENT.sub("", "\n".join(kept))
        return tuple(part.strip() for part in re.split(r"^;$", text, flags=re.M) if part.strip())


def parameters(sql: str) -> list[str]:
    """The names of the parameters of a statement, in order of first use."""
    return list(dict.fromkeys(_PARAMETER.findall(sql)))


def substitute(sql: str, spelling: Mapping[str, str]) -> str:
    """The statement with every ``:name`` in the driver's syntax."""
    return _PARAMETER.sub(lambda match: spelling[match[1]], sql)


def parse(name: str, text: str) -> NamedQuery:
    """Parse one query file."""
    heads: dict[str, list[Column]] = {"takes": [], "items": [], "gives": []}
    body: list[str] = []
    for line in text.splitlines():
        match = _HEADER.match(line)
        if match is None:
            body.append(line)
            continue
        for column in match[2].split(","):
            words = column.split()
            heads[match[1]].append((words[0], words[1]))
    optional = frozenset(match[2] for line in body if (match := _WHEN.match(line)))
    query = NamedQuery(
        name, tuple(heads["takes"]), tuple(heads["items"]), tuple(heads["gives"]), "\n".join(body), optional
    )
    said = {column for column, _ in query.takes + query.items}
    used = set(parameters(_COMMENT.sub("", query.body)))
    if said != used:
        wrong = ", ".join(sorted(said ^ used))
        raise StoreCorrupt(f"query {name}: header and body disagree about {wrong}")
    return query


@lru_cache
def load(dialect: str) -> Mapping[str, NamedQuery]:
    """All queries of a dialect by name."""
    folder = resources.files(f"tidemill.stores.sql.{dialect}") / "queries"
    return {
        file.name.removesuffix(".sql"): parse(file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    }
