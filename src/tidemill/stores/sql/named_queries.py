"""Named queries: one file per verb and dialect, with a self-describing header.

A header is a description, followed by parameters and result columns, which are the same in every dialect (a test compares them)::

    -- start: changes claimed jobs to running.
    -- takes: now timestamptz
    -- items: id uuid, token int8
    -- gives: id uuid

``takes`` are single values. ``items`` are the columns of a batch: PostgreSQL binds each as one array, SQLite runs the
statements that mention them once for every item. ``gives`` names the result's columns with their types, from which SQLite's
values are converted. Parameters are written ``:name``. A line that ends in ``-- when name`` belongs to the query only if that
parameter is given; so optional conditions need no SQL in Python. ``-- ignores: name`` accepts such a parameter that only lines of the
other dialect depend on. In a file of several statements (SQLite) they are separated by
a line holding only ``;``, and the last one that returns rows gives the result.

Text that several queries share is a part, a file in ``queries/parts``. A line that includes a part is replaced by its text after
the first line, which describes it. Header lines of the part join those of the query, and a part may include other parts::

    -- include: job_columns
    -- include: job_columns(prefix=j)
    -- include: lane_jobs(gate=l.gate)
    -- include: job_columns -- when parks

``prefix`` qualifies every name of a part that is a list of columns. Any other argument replaces ``{argument}`` in the part; an
argument that is missing or not used is an error. Several arguments are separated by ``;``. ``-- when`` applies to every line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources

from tidemill.errors import StoreCorrupt

Column = tuple[str, str]

_HEADER = re.compile(r"^\s*-- (takes|items|gives): (.*)$")
_IGNORES = re.compile(r"^-- ignores: (.*)$")
_WHEN = re.compile(r"^(.*?)\s*-- when (\w+)\s*$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_COMMENT = re.compile(r"--[^\n]*")
_INCLUDE = re.compile(r"^( *)-- include: (\w+)(?:\((.*)\))?( -- when \w+)?$")
_ARGUMENT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class NamedQuery:
    """One named query of one dialect."""

    name: str
    takes: tuple[Column, ...]
    items: tuple[Column, ...]
    gives: tuple[Column, ...]
    body: str
    optional: frozenset[str]  #: the parameters that switch optional lines on

    @cached_property
    def values(self) -> frozenset[str]:
        """The names of its single values."""
        return frozenset(name for name, _ in self.takes)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns of its batch."""
        return frozenset(name for name, _ in self.items)

    def present(self, takes: Mapping[str, object], flags: Iterable[str]) -> frozenset[str]:
        """The optional parameters of a call. Raises an error for a parameter that the file does not declare."""
        refuse_undeclared(self.name, takes.keys(), self.values)
        if flags:
            refuse_undeclared(self.name, flags, self.optional)
        if not self.optional:
            return self.optional
        return self.optional & {name for name in takes if takes[name] is not None}.union(flags)

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

    def text(self) -> str:
        """The file with its parts in their places, for readers."""
        lines = self.body.splitlines()
        described = next((at for at, line in enumerate(lines) if not line.startswith("--")), len(lines))
        heads = [("takes", self.takes), ("items", self.items), ("gives", self.gives)]
        headers = [
            f"-- {head}: " + ", ".join(" ".join(column) for column in columns)
            for head, columns in heads
            if columns
        ]
        return "\n".join([*lines[:described], *headers, *lines[described:]]) + "\n"


def refuse_undeclared(query: str, given: Iterable[str], declared: frozenset[str]) -> None:
    """Raise an error if a call gives something that the file of its query does not declare."""
    if not declared.issuperset(given):
        unknown = ", ".join(sorted(set(given) - declared))
        raise TypeError(
            f"query {query} has no parameter {unknown}; expected {', '.join(sorted(declared)) or 'none'}"
        )


def parameters(sql: str) -> list[str]:
    """The names of the parameters of a statement, in order of first use."""
    return list(dict.fromkeys(_PARAMETER.findall(sql)))


def substitute(sql: str, spelling: Mapping[str, str]) -> str:
    """The statement with every ``:name`` in the driver's syntax."""
    return _PARAMETER.sub(lambda match: spelling[match[1]], sql)


def expand(text: str, part: Callable[[str], str]) -> str:
    """The text of a file with its parts in their places."""
    lines: list[str] = []
    for line in text.splitlines():
        match = _INCLUDE.match(line)
        if match is None:
            lines.append(line)
            continue
        indent, name, arguments, when = match.groups(default="")
        _, _, shared = part(name).partition("\n")
        filled = _fill(name, expand(shared, part), arguments)
        lines += [f"{indent}{line}{when}" for line in filled.splitlines()]
    return "\n".join(lines)


def _fill(part: str, text: str, arguments: str) -> str:
    """The text of a part with these arguments."""
    pairs = [argument.partition("=") for argument in arguments.split(";")] if arguments else []
    values = {name.strip(): value.strip() for name, _, value in pairs}
    prefix = values.pop("prefix", None)
    wrong = values.keys() ^ set(_ARGUMENT.findall(text))
    if wrong:
        raise StoreCorrupt(f"part {part}: missing or unused argument {', '.join(sorted(wrong))}")
    text = _ARGUMENT.sub(lambda match: values[match[1]], text)
    return text if prefix is None else re.sub(r"\w+", rf"{prefix}.\g<0>", text)


def parse(name: str, text: str) -> NamedQuery:
    """Parse one query file, whose parts are in their places."""
    heads: dict[str, list[Column]] = {"takes": [], "items": [], "gives": []}
    body: list[str] = []
    ignored = frozenset[str]()
    for line in text.splitlines():
        if match := _IGNORES.match(line):
            ignored |= set(match[1].split(", "))
            continue
        match = _HEADER.match(line)
        if match is None:
            body.append(line)
            continue
        for column in match[2].split(","):
            words = column.split()
            heads[match[1]].append((words[0], words[1]))
    optional = ignored.union(match[2] for line in body if (match := _WHEN.match(line)))
    query = NamedQuery(
        name, tuple(heads["takes"]), tuple(heads["items"]), tuple(heads["gives"]), "\n".join(body), optional
    )
    declared = query.values | query.columns
    used = set(parameters(_COMMENT.sub("", query.body)))
    if declared != used:
        wrong = ", ".join(sorted(declared ^ used))
        raise StoreCorrupt(f"query {name}: header and body disagree about {wrong}")
    return query


class _Queries(MutableMapping[str, NamedQuery]):
    """The queries of a dialect. Each one is read when it is first used, because most processes use few of them."""

    def __init__(self, dialect: str) -> None:
        self._folder = resources.files(f"tidemill.stores.sql.{dialect}") / "queries"
        self._parsed: dict[str, NamedQuery] = {}
        self._part = lru_cache(self._read_part)

    def __getitem__(self, name: str) -> NamedQuery:
        query = self._parsed.get(name)
        if query is None:
            file = self._folder / f"{name}.sql"
            if not file.is_file():
                raise KeyError(name)
            query = self._parsed[name] = parse(name, expand(file.read_text("utf-8"), self._part))
        return query

    def __setitem__(self, name: str, query: NamedQuery) -> None:
        self._parsed[name] = query

    def __delitem__(self, name: str) -> None:
        del self._parsed[name]

    def _read_part(self, name: str) -> str:
        return (self._folder / "parts" / f"{name}.sql").read_text("utf-8")

    def __iter__(self) -> Iterator[str]:
        names = sorted(file.name for file in self._folder.iterdir())
        return (name.removesuffix(".sql") for name in names if name.endswith(".sql"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@lru_cache
def load(dialect: str) -> MutableMapping[str, NamedQuery]:
    """All queries of a dialect by name. Tests replace some to check that a wrong one is detected."""
    return _Queries(dialect)
