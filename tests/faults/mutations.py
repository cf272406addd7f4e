"""Mutations of a tested process: a wrong clock, or SQL queries without a guard.

A query without its guard stands for a store with a bug; a chaos run on it must fail, otherwise the run proves nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

from tests.faults.stepping import OFFSET, SteppedClock

from tidemill.clock import Clock, SystemClock
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
_LAST_FIRE = r" and s\.last_fire_at is (?:not distinct from )?(?:x\.|:)expected_fire_at"

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
}
"""Replacements by name and dialect. The constraints of the tables stay in place."""


def apply_mutation(wrong: str | None = None) -> None:
    """Remove the guard that the environment names, for every store opened from now on."""
    name = wrong if wrong is not None else os.environ.get(WRONG, "")
    if not name:
        return
    for dialect, cuts in MUTATIONS[name].items():
        queries = cast("dict[str, NamedQuery]", load(dialect))
        for query, piece, instead in cuts:
            body, count = re.subn(piece, instead, queries[query].body, flags=re.DOTALL)
            if not count:
                raise AssertionError(f"{dialect}: {query} contains no {piece}")
            queries[query] = replace(queries[query], body=body)
