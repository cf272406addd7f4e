"""Triggers without a calendar: at an interval, once, or only manually."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.triggers.base import Trigger, instant_of
from tidemill.domain.triggers.timeline import MICRO, Timeline, TimelineSteps
from tidemill.domain.triggers.words import instant_text, sentence, span_text
from tidemill.domain.zones import DAY, EARLIEST, EPOCH, LATEST, date_of, day_of, reached, wall_at
from tidemill.errors import BadSchedule

_SHORTEST = timedelta(seconds=1)
_LONGEST = timedelta(days=5 * 366)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Every(Trigger, kind="every"):
    """At ``anchor``, and every ``interval`` of real time after it, regardless of zones and daylight saving.

    Without an anchor the intervals count from 1970-01-01 UTC, so that restarts and edits do not shift them:
    ``Every("6h")`` fires at 00:00, 06:00, 12:00 and 18:00 UTC. Excluded days are skipped, never rolled.
    """

    interval: timedelta
    anchor: datetime | None = None

    if TYPE_CHECKING:

        def __init__(self, interval: Duration, anchor: datetime | None = None) -> None: ...

    def __post_init__(self) -> None:
        span = read_duration(
            "interval", self.interval, error=BadSchedule, field="interval", value=self.interval
        )
        object.__setattr__(self, "interval", span)
        if not _SHORTEST <= self.interval <= _LONGEST:
            raise BadSchedule(
                f"interval: {self.interval} is not between one second and five years",
                field="interval",
                value=self.interval,
            )
        if self.anchor is not None:
            object.__setattr__(self, "anchor", instant_of(self.anchor, "anchor"))

    def explain(self) -> str:
        text = f"every {span_text(self.interval)}"
        return sentence(text if self.anchor is None else f"{text} from {instant_text(self.anchor)} on")

    def fields(self) -> dict[str, object]:
        seconds = self.interval.total_seconds()
        anchor = self.anchor.isoformat() if self.anchor is not None else None
        return {"seconds": int(seconds) if seconds.is_integer() else seconds, "anchor": anchor}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Every:
        seconds, anchor = fields["seconds"], fields.get("anchor")
        if (
            not isinstance(seconds, int | float)
            or seconds is True
            or not abs(seconds) <= _LONGEST.total_seconds() * 2
        ):
            raise BadSchedule(f"seconds: {seconds!r} is not an interval", field="seconds", value=seconds)
        return cls(timedelta(seconds=seconds), None if anchor is None else instant_of(anchor, "anchor"))

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        if exclude is not None and exclude.roll != "none":
            raise BadSchedule(
                "exclude: an interval has no time of day to keep when it is rolled; exclude with roll='none'",
                field="exclude",
            )
        first = (self.anchor - EPOCH) // _MICROSECOND if self.anchor is not None else 0
        return TimelineSteps(first, self.interval // _MICROSECOND, zone, exclude)


class Moment:
    """The fires of a trigger that fires at one instant at most."""

    __slots__ = ("_at",)

    def __init__(self, at: int | None) -> None:
        self._at = at

    def after(self, instant: int) -> int | None:
        return self._at if self._at is not None and self._at > instant else None

    def upto(self, instant: int) -> int | None:
        return self._at if self._at is not None and self._at <= instant else None

    def count(self, after: int, until: int) -> int:
        return 1 if self._at is not None and after < self._at <= until else 0


@dataclass(frozen=True, slots=True)
class Once(Trigger, kind="once"):
    """At one instant only."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", instant_of(self.at, "at"))

    def explain(self) -> str:
        return f"Once, at {instant_text(self.at)}"

    def fields(self) -> dict[str, object]:
        return {"at": self.at.isoformat()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Once:
        return cls(instant_of(fields["at"], "at"))

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        at = (self.at - EPOCH) // _MICROSECOND
        # Outside this range no zone defines the local day.
        if exclude is None or not EARLIEST * MICRO <= at <= LATEST * MICRO:
            return Moment(at)
        wall = wall_at(zone, at // MICRO)
        day = date_of(wall // DAY)
        moved = exclude.moved(day)
        if moved is None or moved == day:
            return Moment(None if moved is None else at)
        return Moment(reached(zone, day_of(moved) * DAY + wall % DAY) * MICRO + at % MICRO)


@dataclass(frozen=True, slots=True)
class Manual(Trigger, kind="manual"):
    """Only when triggered manually."""

    def explain(self) -> str:
        return "Only when triggered manually"

    def fields(self) -> dict[str, object]:
        return {}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Manual:  # noqa: ARG003 - there are none to read
        return cls()

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        return Moment(None)
