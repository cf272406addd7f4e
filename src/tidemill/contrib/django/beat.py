"""Import of the rows of django-celery-beat as schedules: ``manage.py tidemill import-beat``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tidemill.app import App
from tidemill.domain.schedule_rules import Cron, Every, Once
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSettings, ScheduleExists, TidemillError

_UNITS = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
    "microseconds": timedelta(microseconds=1),
}


class ImportedRow(NamedTuple):
    """What became of one row: ``added``, ``updated``, ``unchanged``, or ``refused`` with the reason."""

    name: str
    task: str
    key: str
    outcome: str
    note: str = ""


def import_beat(app: App, *, replace: bool = False, dry_run: bool = False) -> list[ImportedRow]:
    """Copy the periodic tasks of django-celery-beat into schedules of the app.

    A row whose task the app does not know, or whose schedule Tidemill would run at other times, is refused and named. A disabled
    row becomes a paused schedule. A schedule that exists is left alone, unless ``replace`` is set.
    """
    try:
        from django_celery_beat.models import PeriodicTask
    except (ImportError, RuntimeError):
        raise BadSettings(
            "django_celery_beat is not in INSTALLED_APPS; add it to import its rows", setting="INSTALLED_APPS"
        ) from None
    # The name of this row belongs to Celery's own clean-up of results.
    rows = PeriodicTask.objects.exclude(task="celery.backend_cleanup").order_by("name")
    return list(_imported(app, rows, replace=replace, dry_run=dry_run))


def _imported(app: App, rows: Any, *, replace: bool, dry_run: bool) -> Iterator[ImportedRow]:
    for row in rows:
        key = _key(row.name)
        try:
            trigger, timezone = _trigger(row)
            options = _options(row)
            args = _arguments(app, row)
            if dry_run:
                app.schedules.value(row.task, trigger, key, args=args, timezone=timezone, **options)
                outcome = "would be added"
            else:
                outcome = _put(app, row, key, trigger, timezone, args, options, replace=replace)
        except TidemillError as error:
            yield ImportedRow(row.name, row.task, key, "refused", str(error))
        else:
            yield ImportedRow(row.name, row.task, key, outcome)


def _put(
    app: App,
    row: Any,
    key: str,
    trigger: Trigger,
    timezone: str,
    args: dict[str, Any],
    options: Mapping[str, Any],
    *,
    replace: bool,
) -> str:
    rules: dict[str, Any] = {
        "args": args,
        "timezone": timezone,
        "misfire": "once",
        "overlap": "allow",
        **options,
    }
    try:
        app.schedules.add(row.task, trigger, key, enabled=row.enabled, **rules)
    except ScheduleExists:
        if not replace:
            return "unchanged"
        app.schedules.update(key, trigger=trigger, **rules)
        if row.enabled:
            app.schedules.resume(key)
        else:
            app.schedules.pause(key)
        return "updated"
    return "added"


def _trigger(row: Any) -> tuple[Trigger, str]:
    """The trigger of a row, and its time zone."""
    if row.crontab is not None:
        tab = row.crontab
        if tab.day_of_week != "*" and tab.day_of_month != "*":
            raise BadSettings(
                "its crontab has day_of_week and day_of_month: beat fires if both match, cron and Tidemill if either does"
            )
        fields = (tab.minute, tab.hour, tab.day_of_month, tab.month_of_year, tab.day_of_week)
        return Cron(" ".join(field.replace(" ", "") for field in fields)), str(tab.timezone)
    if row.interval is not None:
        span = _UNITS[row.interval.period] * row.interval.every
        anchor = row.last_run_at or row.start_time
        return Every(span, None if anchor is None else _aware(anchor)), "UTC"
    if row.clocked is not None:
        return Once(_aware(row.clocked.clocked_time)), "UTC"
    raise BadSettings("it has a solar schedule, which Tidemill does not have")


def _options(row: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if row.queue:
        options["queue"] = row.queue
    if row.priority is not None:
        options["priority"] = row.priority
    if row.expire_seconds:
        options["expires"] = timedelta(seconds=row.expire_seconds)
    if row.expires is not None:
        raise BadSettings("it has an end date (expires), which schedules do not have; remove it, or the row")
    return options


def _arguments(app: App, row: Any) -> dict[str, Any]:
    """The arguments by name. A task of the Celery shim takes them as beat stores them."""
    declared = app.registry.get(row.task)
    args, kwargs = json.loads(row.args or "[]"), json.loads(row.kwargs or "{}")
    if list(declared.arguments.signature.names)[:2] == ["args", "kwargs"]:
        return {"args": args, "kwargs": kwargs}
    values, wrong = declared.arguments.signature.bind(tuple(args), kwargs)
    if wrong:
        raise BadSettings("; ".join(f"{fault.field}: {fault.message}" for fault in wrong))
    return values


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _key(name: str) -> str:
    """A schedule's key for the name of a row, which may have any characters."""
    return "".join(letter if letter.isalnum() or letter in "-_.:" else "-" for letter in name)[:200].strip(
        "-"
    )
