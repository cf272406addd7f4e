"""Mutations of a tested process: a wrong clock, or SQL queries without a guard.

A query without its guard stands for a store with a bug; a chaos run on it must fail, otherwise the run proves nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from tests.faults.stepping import OFFSET, SteppedClock

from tidemill.clock import Clock, SystemClock
from tidemill.stores.base import StepResult
from tidemill.stores.sql.named_queries import NamedQuery, load

SKEW = "FAULTS_SKEW"
"""Environment variable: seconds by which this process's clock is wrong."""

WRONG = "FAULTS_WRONG"
"""Environment variable: the guard to remove from this process's queries."""


class Skewed:
    """The system clock with a constant error."""

    def __init__(self, by: timedelta) -> None:
        self._by, self._system = by, SystemClock()

    def now(self) -> datetime:
        return self._system.now() + self._by

    def monotonic(self) -> float:
        return self._system.monotonic()


def own_clock() -> Clock:
    """Return the clock of this process: stepped, skewed, or the system's."""
    if path := os.environ.get(OFFSET):
        return SteppedClock(Path(path))
    seconds = float(os.environ.get(SKEW, "0"))
    return Skewed(timedelta(seconds=seconds)) if seconds else SystemClock()


class Cut(NamedTuple):
    """A piece of a query and its replacement."""

    query: str
    piece: str
    instead: str = ""


_FENCE = (
    r" and (?:\w+\.)?token = (?:\w+\.|:)token"
    r" and (?:\w+\.)?worker (?:=|is not distinct from) (?:\w+\.|:)worker"
)
_TIED = r"\n\s*and not r\.tied(?: -- when plain)?"
_LAST_FIRE = r" and s\.last_fire_at is (?:not distinct from )?(?:x\.|:)expected_fire_at"

_STALE = (
    "remaining = (select o.remaining from tidemill.joins o where o.id = c.id and o.shard = j.shard) - c.good"
)

MUTATIONS: dict[str, dict[str, list[Cut]]] = {
    # Any former holder may end a job.
    "no-fence": {
        "postgres": [Cut(query, _FENCE, "") for query in ("finish", "step", "step_done", "step_handoff")],
        "sqlite": [Cut("finish", _FENCE, "")],
    },
    # Two concurrent schedulers both create a job for one fire.
    "no-unique-fire": {
        "postgres": [
            Cut("advance", _LAST_FIRE),
            Cut(
                "note_fires",
                r"(on conflict \(schedule_id, fire_at, scope_key\)) do nothing",
                r"\1 do update set scope_key = excluded.scope_key",
            ),
        ],
        "sqlite": [
            Cut("advance", _LAST_FIRE),
            Cut("note_fires", r"where not exists \(\n.*?\)\n(?=on conflict do nothing)", "where true\n"),
        ],
    },
    # An attempt counts when its execution is finished: a crash costs none.
    "attempts-at-finish": {
        "postgres": [Cut("finish", r"attempt - refund::int", "attempt - (refund or crashed)::int")],
        "sqlite": [Cut("finish", r"r\.attempt - x\.refund", "r.attempt - max(x.refund, x.crashed)")],
    },
    # A plain finish also ends jobs that others have begun to wait for, and nothing counts their ends.
    "no-followed-guard": {
        "postgres": [Cut(query, _TIED) for query in ("finish", "step", "step_done", "step_handoff")],
        "sqlite": [Cut("finish", _TIED)],
    },
    # Two finishers read the same counter rows, and one of the counts is lost. SQLite has one writer at a time.
    "no-lock-first": {
        "postgres": [
            Cut("lock_ties", " for update"),
            Cut("finish_tied", r"remaining = j\.remaining - c\.good", _STALE),
        ],
    },
}
"""Replacements by name and dialect. The constraints of the tables stay in place."""


def _two_transactions() -> None:
    """An end is written in one transaction and counted in the next, and one process in four dies in between."""
    parts = import_module("tidemill.stores.sql.lifecycle")
    store, chance = parts.SqlLifecycle, Random()
    count = store._count_ends

    def sometimes(self: Any, ends: Any, now: Any) -> None:
        if chance.random() >= 0.25:
            count(self, ends, now)

    store._count_ends = sometimes
    counting = import_module("tidemill.stores.sql.postgres.end_counts").PostgresEndCounts
    step_tied, count_groups = counting._step_tied, counting._count_ends

    def step_or_die(self: Any, finishes: Any, request: Any, now: Any) -> StepResult:
        if chance.random() >= 0.25:
            return cast("StepResult", step_tied(self, finishes, request, now))
        lost = self._finish(finishes, now, "tied")
        return StepResult(lost, [] if request is None else self.claim(request, now=now))

    def count_or_die(self: Any, ends: Any, now: Any) -> None:
        if chance.random() >= 0.25:
            count_groups(self, ends, now)

    counting._step_tied, counting._count_ends = step_or_die, count_or_die


CODE_MUTATIONS: dict[str, Callable[[], None]] = {"two-transactions": _two_transactions}
"""Changes of the code by name."""


def apply_mutation(wrong: str | None = None) -> None:
    """Remove the guard that the environment names, for every store opened from now on."""
    name = wrong if wrong is not None else os.environ.get(WRONG, "")
    if not name:
        return
    if name in CODE_MUTATIONS:
        CODE_MUTATIONS[name]()
        return
    for dialect, cuts in MUTATIONS[name].items():
        queries = cast("dict[str, NamedQuery]", load(dialect))
        for query, piece, instead in cuts:
            body, count = re.subn(piece, instead, queries[query].body, flags=re.DOTALL)
            if not count:
                raise AssertionError(f"{dialect}: {query} contains no {piece}")
            queries[query] = replace(queries[query], body=body)
