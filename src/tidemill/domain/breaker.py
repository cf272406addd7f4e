"""Circuit breakers, which hold back jobs that depend on a failing service.

Closed: all jobs run. Too many failures within a window open the breaker: no job runs. After its rest period it is half
open and a few probes run. It closes if they succeed and opens again if one fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidemill.domain.durations import Duration, set_durations
from tidemill.errors import BadSettings

SLICES = 10
"""Number of slices of a window; counts expire one slice at a time."""


class BreakerPhase(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """The rule: open when the share ``failures`` of at least ``least`` jobs fails within ``window``; after ``rest`` run ``probes``.

    ``name`` identifies the dependency; tasks that use the same name share its breaker.

    >>> Breaker("payments-api", failures=0.25).name
    'payments-api'
    """

    name: str
    failures: float = 0.5
    least: int = 10
    window: timedelta = timedelta(seconds=60)
    rest: timedelta = timedelta(seconds=30)
    probes: int = 1

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            failures: float = 0.5,
            least: int = 10,
            window: Duration = ...,
            rest: Duration = ...,
            probes: int = 1,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Breaker", window=self.window, rest=self.rest)
        if not self.name or not self.name.isprintable() or len(self.name) > 200:
            raise BadSettings(
                f"{self.name!r} is not a valid breaker name; give 1 to 200 printable characters"
            )
        if not 0 < self.failures <= 1:
            raise BadSettings(f"failures is {self.failures}; give a share above 0, at most 1")
        if self.least < 1 or self.probes < 1:
            raise BadSettings("least and probes are at least 1")
        if self.window <= timedelta(0) or self.rest <= timedelta(0):
            raise BadSettings("window and rest are longer than zero")


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The recorded state of a dependency. ``slices`` are (begin, jobs, failures), the newest last."""

    phase: BreakerPhase = BreakerPhase.CLOSED
    opened_at: datetime | None = None
    rests_until_at: datetime | None = None
    slices: tuple[tuple[float, int, int], ...] = ()
    proven: int = 0  #: successful probes since the rest period

    @property
    def jobs(self) -> int:
        return sum(part[1] for part in self.slices)

    @property
    def failed(self) -> int:
        return sum(part[2] for part in self.slices)


def phase_at(state: str | None, now: datetime) -> BreakerPhase:
    """The phase at an instant: an open breaker is half open once its rest period is over."""
    standing = read(state)
    if (
        standing.phase is BreakerPhase.OPEN
        and standing.rests_until_at is not None
        and standing.rests_until_at <= now
    ):
        return BreakerPhase.HALF_OPEN
    return standing.phase


def reopens_at(state: str | None) -> datetime | None:
    """When the rest period of an open breaker ends."""
    standing = read(state)
    return standing.rests_until_at if standing.phase is BreakerPhase.OPEN else None


def after(
    breaker: Breaker, standing: BreakerState, succeeded: int, failed: int, now: datetime
) -> BreakerState:
    """The state after this number of jobs succeeded and failed."""
    if (
        standing.phase is BreakerPhase.OPEN
        and standing.rests_until_at is not None
        and now < standing.rests_until_at
    ):
        return standing  # jobs that were already running when it opened carry no new information
    if standing.phase is not BreakerPhase.CLOSED:
        if failed:
            return _opened(breaker, now)
        proven = standing.proven + succeeded
        if proven >= breaker.probes:
            return BreakerState()
        return BreakerState(BreakerPhase.HALF_OPEN, standing.opened_at, None, (), proven)
    counted = _counted(breaker, standing, succeeded, failed, now)
    if failed and counted.jobs >= breaker.least and counted.failed >= breaker.failures * counted.jobs:
        return _opened(breaker, now)
    return counted


def _opened(breaker: Breaker, now: datetime) -> BreakerState:
    return BreakerState(BreakerPhase.OPEN, now, now + breaker.rest)


def _counted(
    breaker: Breaker, standing: BreakerState, succeeded: int, failed: int, now: datetime
) -> BreakerState:
    size = breaker.window.total_seconds() / SLICES
    begin = now.timestamp() // size * size
    kept = [part for part in standing.slices if part[0] > begin - breaker.window.total_seconds()]
    if kept and kept[-1][0] >= begin:
        start, jobs, failures = kept[-1]
        kept[-1] = (start, jobs + succeeded + failed, failures + failed)
    else:
        kept.append((begin, succeeded + failed, failed))
    return BreakerState(slices=tuple(kept[-SLICES - 1 :]))


def read(state: str | None) -> BreakerState:
    """A state from its JSON text; the initial state for an empty text."""
    if not state:
        return BreakerState()
    data: dict[str, Any] = json.loads(state)
    return BreakerState(
        phase=BreakerPhase(data["phase"]),
        opened_at=_instant(data.get("opened_at")),
        rests_until_at=_instant(data.get("rests_until_at")),
        slices=tuple(
            (float(begin), int(jobs), int(failed)) for begin, jobs, failed in data.get("slices", ())
        ),
        proven=int(data.get("proven", 0)),
    )


def written(standing: BreakerState) -> str:
    """A state as JSON text."""
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
