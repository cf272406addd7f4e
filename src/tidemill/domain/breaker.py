"""Circuit breakers: when jobs that depend on something broken are held back, and when they are tried again. Pure.

Closed: all go. Too many failures within a window open it: none go. When its rest is over it is half open: a few probes go;
if they succeed it closes, if one fails it opens again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from tidemill.errors import BadSettings

SLICES = 10
"""Parts of a window that are counted and forgotten as a whole."""


class Phase(StrEnum):
    """How a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """When to open: ``failures`` of at least ``least`` jobs within ``window``; rest for ``rest``, then send ``probes``.

    ``name`` is what the jobs depend on; tasks that name the same one share its breaker.

    >>> Breaker("payments-api", failures=0.25).name
    'payments-api'
    """

    name: str
    failures: float = 0.5
    least: int = 10
    window: timedelta = timedelta(seconds=60)
    rest: timedelta = timedelta(seconds=30)
    probes: int = 1

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or len(self.name) > 200:
            raise BadSettings(f"{self.name!r} is no breaker's name; give 1 to 200 printable characters")
        if not 0 < self.failures <= 1:
            raise BadSettings(f"failures is {self.failures}; give a share above 0, at most 1")
        if self.least < 1 or self.probes < 1:
            raise BadSettings("least and probes are at least 1")
        if self.window <= timedelta(0) or self.rest <= timedelta(0):
            raise BadSettings("window and rest are longer than zero")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the thing depended upon. ``slices`` are (begin, jobs, failures), the newest last."""

    phase: Phase = Phase.CLOSED
    opened_at: datetime | None = None
    rests_until_at: datetime | None = None
    slices: tuple[tuple[float, int, int], ...] = ()
    proven: int = 0  #: probes that succeeded since it rested

    @property
    def jobs(self) -> int:
        return sum(part[1] for part in self.slices)

    @property
    def failed(self) -> int:
        return sum(part[2] for part in self.slices)


def phase_at(state: str | None, now: datetime) -> Phase:
    """How it stands at an instant: an open one is half open when it has rested."""
    standing = read(state)
    if (
        standing.phase is Phase.OPEN
        and standing.rests_until_at is not None
        and standing.rests_until_at <= now
    ):
        return Phase.HALF_OPEN
    return standing.phase


def reopens_at(state: str | None) -> datetime | None:
    """When an open one has rested."""
    standing = read(state)
    return standing.rests_until_at if standing.phase is Phase.OPEN else None


def after(breaker: Breaker, standing: Standing, succeeded: int, failed: int, now: datetime) -> Standing:
    """How it stands after so many jobs have ended well and badly."""
    if standing.phase is Phase.OPEN and standing.rests_until_at is not None and now < standing.rests_until_at:
        return standing  # what was under way when it opened tells nothing new
    if standing.phase is not Phase.CLOSED:
        if failed:
            return _opened(breaker, now)
        proven = standing.proven + succeeded
        if proven >= breaker.probes:
            return Standing()
        return Standing(Phase.HALF_OPEN, standing.opened_at, None, (), proven)
    counted = _counted(breaker, standing, succeeded, failed, now)
    if failed and counted.jobs >= breaker.least and counted.failed >= breaker.failures * counted.jobs:
        return _opened(breaker, now)
    return counted


def _opened(breaker: Breaker, now: datetime) -> Standing:
    return Standing(Phase.OPEN, now, now + breaker.rest)


def _counted(breaker: Breaker, standing: Standing, succeeded: int, failed: int, now: datetime) -> Standing:
    size = breaker.window.total_seconds() / SLICES
    begin = now.timestamp() // size * size
    kept = [part for part in standing.slices if part[0] > begin - breaker.window.total_seconds()]
    if kept and kept[-1][0] >= begin:
        start, jobs, failures = kept[-1]
        kept[-1] = (start, jobs + succeeded + failed, failures + failed)
    else:
        kept.append((begin, succeeded + failed, failed))
    return Standing(slices=tuple(kept[-SLICES - 1 :]))


def read(state: str | None) -> Standing:
    """A standing from its text; nothing is known of one that has none."""
    if not state:
        return Standing()
    data: dict[str, Any] = json.loads(state)
    return Standing(
        phase=Phase(data["phase"]),
        opened_at=_instant(data.get("opened_at")),
        rests_until_at=_instant(data.get("rests_until_at")),
        slices=tuple(
            (float(begin), int(jobs), int(failed)) for begin, jobs, failed in data.get("slices", ())
        ),
        proven=int(data.get("proven", 0)),
    )


def written(standing: Standing) -> str:
    """A standing as text."""
    data = {
        "phase": standing.phase.value,
        "opened_at": _text(standing.opened_at),
        "rests_until_at": _text(standing.rests_until_at),
        "slices": [list(part) for part in standing.slices],
        "proven": standing.proven,
    }
    return json.dumps({key: value for key, value in data.items() if value}, separators=(",", ":"))


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat()
