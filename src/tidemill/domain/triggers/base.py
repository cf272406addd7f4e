"""The interface of triggers: next and last fire, count of fires, description.

A trigger is a frozen value. It has no zone and no calendar: these belong to the schedule and are arguments, so a change of
either never changes the trigger. All instants are aware UTC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Excludable, Exclude, as_exclude, check_calendar
from tidemill.domain.triggers.timeline import Timeline
from tidemill.domain.zones import EPOCH, zone_of
from tidemill.errors import BadSchedule, UsageError

FORMAT = 1
_MICROSECOND = timedelta(microseconds=1)
_KINDS: dict[str, type[Trigger]] = {}


class Trigger(ABC):
    """When a schedule fires. ``calendar`` defines business days; ``exclude`` removes days from any trigger."""

    __slots__ = ()

    kind: ClassVar[str] = ""
    present: ClassVar[Callable[[], datetime] | None] = None
    """The clock of ``preview``. The domain reads no clock, so its owner sets this attribute."""

    def __init_subclass__(cls, kind: str = "") -> None:
        # A dataclass with slots is created twice; the second class is the one in use and replaces the first.
        cls.kind = kind or cls.kind
        if cls.kind:
            _KINDS[cls.kind] = cls

    def next_after(
        self,
        after: datetime,
        timezone: str | ZoneInfo = "UTC",
        calendar: BusinessCalendar | None = None,
        exclude: Excludable | None = None,
    ) -> datetime | None:
        """The first fire strictly after an instant; None if there is none within ten years."""
        return _instant(self._fires(timezone, calendar, exclude).after(_micros(after, "after")))

    def last_at_or_before(
        self,
        when: datetime,
        timezone: str | ZoneInfo = "UTC",
        calendar: BusinessCalendar | None = None,
        exclude: Excludable | None = None,
    ) -> datetime | None:
        """The last fire that is not after an instant; None if there is none within ten years."""
        return _instant(self._fires(timezone, calendar, exclude).upto(_micros(when, "when")))

    def between(
        self,
        after: datetime,
        until: datetime,
        timezone: str | ZoneInfo = "UTC",
        calendar: BusinessCalendar | None = None,
        exclude: Excludable | None = None,
        *,
        limit: int | None = None,
        newest: int | None = None,
    ) -> list[datetime]:
        """The fires after the first instant, up to and including the second, in order.

        ``limit`` keeps the first ones, ``newest`` the last ones; either way only those are computed.
        """
        if limit is not None and newest is not None:
            raise UsageError("between: give limit (the first fires) or newest (the last ones), not both")
        fires = self._fires(timezone, calendar, exclude)
        start, end = _micros(after, "after"), _micros(until, "until")
        found: list[int] = []
        if newest is not None:
            at = fires.upto(end)
            while at is not None and at > start and len(found) < newest:
                found.append(at)
                at = fires.upto(at - 1)
            found.reverse()
        else:
            at = fires.after(start)
            while at is not None and at <= end and (limit is None or len(found) < limit):
                found.append(at)
                at = fires.after(at)
        return [EPOCH + tick * _MICROSECOND for tick in found]

    def count_between(
        self,
        after: datetime,
        until: datetime,
        timezone: str | ZoneInfo = "UTC",
        calendar: BusinessCalendar | None = None,
        exclude: Excludable | None = None,
    ) -> int:
        """The number of fires after the first instant, up to and including the second, without enumerating them."""
        fires = self._fires(timezone, calendar, exclude)
        return fires.count(_micros(after, "after"), _micros(until, "until"))

    def preview(
        self,
        n: int,
        after: datetime | None = None,
        timezone: str | ZoneInfo = "UTC",
        calendar: BusinessCalendar | None = None,
        exclude: Excludable | None = None,
    ) -> list[datetime]:
        """The next ``n`` fires in local time of ``timezone``; ``after=None`` means now."""
        zone = zone_of(timezone)
        if after is None:
            tell = type(self).present
            if tell is None:
                raise UsageError("preview: no clock is available here; give after=")
            after = tell()
        fires = self._fires(zone, calendar, exclude)
        found: list[datetime] = []
        at = fires.after(_micros(after, "after"))
        while at is not None and len(found) < n:
            found.append(_shown(at, zone))
            at = fires.after(at)
        return found

    @abstractmethod
    def explain(self) -> str:
        """The rule in plain English."""

    @abstractmethod
    def fields(self) -> dict[str, object]:
        """The trigger's fields as plain data."""

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Trigger:
        """A trigger from these fields."""

    @abstractmethod
    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        """The fires in one zone and under one calendar."""

    def to_data(self) -> dict[str, object]:
        """The trigger as plain data that JSON can hold; ``trigger_from_data`` reads it."""
        return {"format": FORMAT, "kind": self.kind, **self.fields()}

    def _fires(
        self, timezone: str | ZoneInfo, calendar: BusinessCalendar | None, exclude: Excludable | None
    ) -> Timeline:
        check_calendar(calendar)
        return self.timeline(zone_of(timezone), calendar, as_exclude(exclude))


def trigger_from_data(data: Mapping[str, object]) -> Trigger:
    """The trigger that ``to_data`` wrote, validated like a new one."""
    given: object = data
    if not isinstance(given, Mapping):
        raise BadSchedule(f"trigger: {given!r} is not a stored trigger", field="trigger", value=given)
    if data.get("format") != FORMAT:
        raise BadSchedule(
            f"trigger: format {data.get('format')!r} cannot be read by this version, which knows format {FORMAT}",
            field="format",
        )
    kind = _KINDS.get(str(data.get("kind")))
    if kind is None:
        known = ", ".join(sorted(_KINDS))
        raise BadSchedule(
            f"trigger: unknown kind {data.get('kind')!r}; expected one of {known}",
            field="kind",
            value=data.get("kind"),
        )
    try:
        return kind.from_fields(data)
    except KeyError as missing:
        raise BadSchedule(
            f"trigger: a {data['kind']} trigger needs {missing}", field=str(missing.args[0])
        ) from None


def _not_an_instant(given: object, field: str) -> BadSchedule:
    advice = "give an aware datetime, or text such as 2026-11-16T09:30:00+01:00"
    return BadSchedule(f"{field}: {given!r} is not a date and time; {advice}", field=field, value=given)


def instant_of(given: object, field: str) -> datetime:
    """An aware instant, in UTC; text is read as ISO 8601."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise _not_an_instant(given, field) from None
    if not isinstance(given, datetime):
        raise _not_an_instant(given, field)
    if given.utcoffset() is None:
        raise BadSchedule(
            f"{field}: {given.isoformat()} has no time zone; give an aware datetime", field=field, value=given
        )
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise BadSchedule(f"{field}: {given.isoformat()} is out of range", field=field, value=given) from None


def _micros(when: datetime, field: str) -> int:
    if when.utcoffset() is None:
        raise UsageError(f"{field}: {when.isoformat()} has no time zone; give an aware datetime")
    return (when - EPOCH) // _MICROSECOND


def _shown(micros: int, zone: ZoneInfo) -> datetime:
    when = EPOCH + micros * _MICROSECOND
    try:
        return when.astimezone(zone)
    except OverflowError:
        raise BadSchedule(
            f"timezone: {when.isoformat()} is beyond the calendar in {zone.key}; use UTC",
            field="timezone",
            value=zone.key,
        ) from None


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + micros * _MICROSECOND
