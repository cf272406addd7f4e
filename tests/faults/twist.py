"""What is turned in a process under test, as its environment says: its clock, or its statements. Only tests import this.

A statement without its guard is what a store would be that was built wrong; a chaos run on it must end red, or it proves nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from tidemill.clock import Clock, SystemClock
from tidemill.stores.sql.queries import Query, load

SKEW = "FAULTS_SKEW"
"""Environment variable: seconds by which this process' clock is wrong."""

WRONG = "FAULTS_WRONG"
"""Environment variable: which guard is taken out of the statements of this process."""


class Skewed:
    """The machine's clock, but wrong by so much. Its seconds are as long as anybody's."""

    def __init__(self, by: timedelta) -> None:
        self._by, self._system = by, SystemClock()

    def now(self) -> datetime:
        return self._system.now() + self._by

    def monotonic(self) -> float:
        return self._system.monotonic()


def own_clock() -> Clock:
    """The clock that this process is to go by."""
    seconds = float(os.environ.get(SKEW, "0"))
    return Skewed(timedelta(seconds=seconds)) if seconds else SystemClock()


class Cut(NamedTuple):
    """A piece of a query that becomes another."""

    query: str
    piece: str
    instead: str = ""


_TOKEN = r" and (?:\w+\.)?token = (?:\w+\.|:)token"
_LAST_FIRE = r" and s\.last_fire_at is (?:not distinct from )?(?:x\.|:)expected_fire_at"

WRONGS: dict[str, dict[str, list[Cut]]] = {
    # Whoever once held a job may end it.
    "no-token": {
        "postgres": [Cut(query, _TOKEN, "") for query in ("finish", "step", "step_done", "step_inherited")],
        "sqlite": [Cut("finish", _TOKEN, "")],
    },
    # Two who fire at the same time both make a job.
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
    # An attempt counts when it is finished by the one who made it: a crash is free.
    "attempts-at-finish": {
        "postgres": [Cut("finish", r"attempt - refund::int", "attempt - (refund or crashed)::int")],
        "sqlite": [Cut("finish", r"r\.attempt - x\.refund", "r.attempt - max(x.refund, x.crashed)")],
    },
}
"""By name and dialect, what is changed. The tables' own constraints stay as they are."""


def twist(wrong: str | None = None) -> None:
    """Take the guard out that the environment names, for every store that is opened from now on."""
    name = wrong if wrong is not None else os.environ.get(WRONG, "")
    if not name:
        return
    for dialect, cuts in WRONGS[name].items():
        queries = cast("dict[str, Query]", load(dialect))
        for query, piece, instead in cuts:
            body, found = re.subn(piece, instead, queries[query].body, flags=re.DOTALL)
            if not found:
                raise AssertionError(f"{dialect}: {query} holds no {piece}")
            queries[query] = replace(queries[query], body=body)
