"""A thread that samples the tables of the store during a chaos run.

Each sample is one statement, so its result was true at one instant.
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
from tests.faults.cluster import Span
from tests.faults.kit import clock

_LIVING = ("ready", "scheduled", "parked", "running")
# Ended jobs per sample.
_NEWEST = 200
_EVERY = 0.4
_LATE = 4.0

Row = Sequence[Any]
Ask = Callable[[str], list[Row]]


class Ended(NamedTuple):
    """An ended job, as it was first seen."""

    state: str
    token: int


class LeaseTerm(NamedTuple):
    """The holder of a lease in one term."""

    name: str
    term: int
    holder: UUID


@dataclass
class Observations:
    """A summary of all samples."""

    looks: int = 0
    history: int = 0  #: ended jobs in the last sample
    doubled: list[str] = field(default_factory=list)  #: jobs in two tables
    shared_keys: list[str] = field(default_factory=list)  #: unique keys with two live jobs
    keys: int = 0  #: held unique keys, summed over all samples
    over_limit: list[str] = field(default_factory=list)  #: limits with more held jobs than allowed
    limited: int = 0  #: limits in use, summed over all samples
    highest: dict[str, int] = field(default_factory=dict)  #: the most held jobs of one key, by limited task
    ended: dict[UUID, Ended] = field(default_factory=dict)  #: as first seen
    gaps: list[Span] = field(default_factory=list)  #: overly long times between two samples
    pids: dict[UUID, int] = field(default_factory=dict)  #: the runner's pid, by worker id
    lease_terms: list[LeaseTerm] = field(default_factory=list)  #: in order, without repetition


class Sampler:
    """A thread that takes a few samples per second; it pauses while the store is unavailable."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._dot = "_" if url.startswith("sqlite") else "."
        self.seen = Observations()
        self.missed = 0  #: samples that failed because the store was unavailable
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-sampler")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        last = Span("before the first sample")
        while not self._over.is_set():
            with contextlib.suppress(psycopg.Error, sqlite3.Error), self._opened() as ask:
                while not self._over.wait(_EVERY):
                    self.look(ask)
                    last = self._note_gap(last)
            self.missed += 1
            self._over.wait(_EVERY)

    def _note_gap(self, last: Span) -> Span:
        """Record a very late sample as an outage, whatever the cause: other processes were blocked too."""
        if clock.monotonic() - last.began > _LATE:
            self.seen.gaps.append(last.close())
        return Span("the machine or the store was blocked")

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

    # Samples -------------------------------------------------------------------------------------------------------------

    def look(self, ask: Ask) -> None:
        """Take one sample."""
        seen = self.seen
        places = self._all("id", (*_LIVING, "history"))
        seen.doubled += [
            f"job {_uuid(row[0])} was in {row[1]} tables at once"
            for row in ask(f"select id, count(*) from ({places}) as p group by id having count(*) > 1")
        ]
        keyed = self._all("tenant, unique_key", _LIVING, "where unique_key is not null")
        for tenant, key, count in ask(
            f"select tenant, unique_key, count(*) from ({keyed}) as p group by 1, 2"
        ):
            seen.keys += 1
            if count > 1:
                seen.shared_keys.append(f"key {key} of tenant {tenant} had {count} live jobs at once")
        self._limits(ask)
        newest = (
            f"select id, state, token from {self._table('history')} order by finished_at desc limit {_NEWEST}"
        )
        for id, state, token in ask(newest):
            seen.ended.setdefault(_uuid(id), Ended(state, token))
        for name, term, holder in ask(f"select name, term, holder from {self._table('leases')}"):
            lease_term = LeaseTerm(name, term, _uuid(holder)) if holder is not None else None
            if lease_term is not None and lease_term not in seen.lease_terms[-2:]:
                seen.lease_terms.append(lease_term)
        # A dead worker's row is deleted after an hour, and a clock step makes an hour pass at once.
        seen.pids |= {_uuid(id): pid for id, pid in ask(f"select id, pid from {self._table('workers')}")}
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
