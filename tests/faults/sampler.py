"""Looks at the store under test while everything happens, past every part of the product: each look is one statement, so what it
sees was true at one instant. It changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from tests.faults.chaos_app import LIMITS
from tests.faults.kit import clock
from tests.faults.stage import Span

_LIVING = ("ready", "scheduled", "parked", "running")
_NEWEST = 200  # ended jobs that are looked at each time
_EVERY = 0.4
_LATE = 4.0

Row = Sequence[Any]
Ask = Callable[[str], list[Row]]


class Ended(NamedTuple):
    """A job that was seen at its end."""

    state: str
    token: int


class Reign(NamedTuple):
    """Who was seen to hold a lease, and in which term."""

    name: str
    term: int
    holder: UUID


@dataclass
class Seen:
    """What all looks together saw."""

    looks: int = 0
    history: int = 0  #: jobs that have ended, at the last look
    doubled: list[str] = field(default_factory=list)  #: jobs in two places
    shared_keys: list[str] = field(default_factory=list)  #: unique keys with two living jobs
    keys: int = 0  #: unique keys that were seen held, look by look
    over_limit: list[str] = field(default_factory=list)  #: limits with more held jobs than allowed
    limited: int = 0  #: limits that were seen in use, look by look
    highest: dict[str, int] = field(default_factory=dict)  #: by limited task, the most held jobs of one key
    ended: dict[UUID, Ended] = field(default_factory=dict)  #: as each was first seen
    gaps: list[Span] = field(
        default_factory=list
    )  #: between two looks that should have followed each other soon
    reigns: list[Reign] = field(default_factory=list)  #: in the order they were seen, without repetition


class Sampler:
    """A thread that looks a few times a second; while the store is away it sees nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._dot = "_" if url.startswith("sqlite") else "."
        self.seen = Seen()
        self.missed = 0  #: looks at a store that did not answer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-sampler")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        last = Span("before the first look")
        while not self._over.is_set():
            with contextlib.suppress(psycopg.Error, sqlite3.Error), self._opened() as ask:
                while not self._over.wait(_EVERY):
                    self.look(ask)
                    last = self._mind(last)
            self.missed += 1
            self._over.wait(_EVERY)

    def _mind(self, last: Span) -> Span:
        """A look that came much too late is an outage, whosever fault it was: nobody else got on either."""
        if clock.monotonic() - last.began > _LATE:
            self.seen.gaps.append(last.close())
        return Span("machine or store stood still")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Ask]:
        if self._url.startswith("sqlite"):
            path = self._url.removeprefix("sqlite:///").partition("?")[0]
            with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as raw:
                yield lambda question: raw.execute(question).fetchall()
        else:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=3) as connection:
                yield lambda question: list(connection.execute(question.encode()).fetchall())

    def _table(self, name: str) -> str:
        return f"tidemill{self._dot}{name}"

    def _all(self, columns: str, places: Sequence[str], where: str = "") -> str:
        return " union all ".join(f"select {columns} from {self._table(place)} {where}" for place in places)

    # The looks -----------------------------------------------------------------------------------------------------------

    def look(self, ask: Ask) -> None:
        """Look at everything once."""
        seen = self.seen
        places = self._all("id", (*_LIVING, "history"))
        seen.doubled += [
            f"job {_uuid(row[0])} was in {row[1]} places at once"
            for row in ask(f"select id, count(*) from ({places}) as p group by id having count(*) > 1")
        ]
        keyed = self._all("tenant, unique_key", _LIVING, "where unique_key is not null")
        for tenant, key, count in ask(
            f"select tenant, unique_key, count(*) from ({keyed}) as p group by 1, 2"
        ):
            seen.keys += 1
            if count > 1:
                seen.shared_keys.append(f"key {key} of tenant {tenant} had {count} living jobs at once")
        self._limits(ask)
        newest = (
            f"select id, state, token from {self._table('history')} order by finished_at desc limit {_NEWEST}"
        )
        for id, state, token in ask(newest):
            seen.ended.setdefault(_uuid(id), Ended(state, token))
        for name, term, holder in ask(f"select name, term, holder from {self._table('leases')}"):
            reign = Reign(name, term, _uuid(holder)) if holder is not None else None
            if reign is not None and reign not in seen.reigns[-2:]:
                seen.reigns.append(reign)
        seen.history = ask(f"select count(*) from {self._table('history')}")[0][0]
        seen.looks += 1

    def _limits(self, ask: Ask) -> None:
        held = (
            f"select limits, count(*) from {self._table('running')} where limits is not null group by limits"
        )
        for text, count in ask(held):
            for name in json.loads(text):
                rule = name.partition("/")[0]
                self.seen.limited += 1
                self.seen.highest[rule] = max(self.seen.highest.get(rule, 0), count)
                if count > LIMITS[rule]:
                    self.seen.over_limit.append(f"{count} jobs of {name} were held at once")


def _uuid(value: Any) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
