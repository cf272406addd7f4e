"""Celery's schedules as triggers: ``crontab``, intervals and ``schedule``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tidemill.contrib.celery.exceptions import ImproperlyConfigured
from tidemill.domain.schedule_rules import Cron, Every
from tidemill.domain.triggers.base import Trigger

CronField = int | str | Iterable[int]


class CeleryCrontab:
    """A schedule like a line of crontab: ``crontab(minute=30, hour="*/3", day_of_week="mon-fri")``."""

    def __init__(
        self,
        minute: CronField = "*",
        hour: CronField = "*",
        day_of_week: CronField = "*",
        day_of_month: CronField = "*",
        month_of_year: CronField = "*",
        **unsupported: Any,
    ) -> None:
        if unsupported:
            raise ImproperlyConfigured(f"crontab: {sorted(unsupported)[0]} is not supported")
        self.minute, self.hour = _field(minute), _field(hour)
        self.day_of_week, self.day_of_month = _field(day_of_week), _field(day_of_month)
        self.month_of_year = _field(month_of_year)
        if self.day_of_week != "*" and self.day_of_month != "*":
            raise ImproperlyConfigured(
                "crontab with day_of_week and day_of_month: Celery fires if both match, cron and Tidemill if either does;"
                " schedule the task daily and check the day in it"
            )

    def trigger(self) -> Trigger:
        """Return the trigger of Tidemill."""
        fields = (self.minute, self.hour, self.day_of_month, self.month_of_year, self.day_of_week)
        return Cron(" ".join(fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CeleryCrontab) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"<crontab: {self.trigger()}>"


class CelerySchedule:
    """A schedule with a fixed interval: ``schedule(run_every=30)``."""

    def __init__(self, run_every: float | timedelta, **unsupported: Any) -> None:
        if {name for name, value in unsupported.items() if value}:
            raise ImproperlyConfigured(f"schedule: {sorted(unsupported)[0]} is not supported")
        self.run_every = run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)

    def trigger(self) -> Trigger:
        """Return the trigger of Tidemill."""
        return Every(self.run_every)


crontab, schedule = CeleryCrontab, CelerySchedule


def trigger_of(given: Any) -> Trigger:
    """Return the trigger of an entry of ``beat_schedule``."""
    if isinstance(given, CeleryCrontab | CelerySchedule):
        return given.trigger()
    if isinstance(given, timedelta | int | float) and not isinstance(given, bool):
        return CelerySchedule(given).trigger()
    if isinstance(given, Trigger):
        return given
    raise ImproperlyConfigured(
        f"beat_schedule: {given!r} is not supported; give a crontab, a timedelta or a number of seconds"
    )


def _field(value: CronField) -> str:
    if isinstance(value, int | str):
        return str(value).replace(" ", "")
    return ",".join(map(str, sorted(value)))
