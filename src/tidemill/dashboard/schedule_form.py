"""Conversion between schedule form fields and triggers, rules and options.

Pure. Error messages are mapped to their fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard import calendar_form
from tidemill.dashboard.argument_form import Argument, read_arguments, shown_values
from tidemill.dashboard.calendar_form import read_calendar, read_exclude, shown_days
from tidemill.dashboard.form_state import (
    FormError,
    FormState,
    complaints,
    read_json_field,
    read_span,
    read_tags,
    read_whole,
    shown_span,
)
from tidemill.domain.calendar import WEEKDAYS, Roll
from tidemill.domain.schedule_rules import (
    After,
    All,
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyBusinessDay,
    On,
    Once,
    Weekly,
)
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.cron import FIELDS as CRON_FIELDS
from tidemill.domain.zones import zone_of
from tidemill.errors import TidemillError
from tidemill.web.parsers import Fields

KINDS = {
    "cron": "Cron expression",
    "every": "Interval",
    "daily": "Every day",
    "weekly": "Days of the week",
    "monthly": "Day of the month",
    "monthly_business_day": "Business day of the month",
    "once": "Once",
    "manual": "Manual only",
    "after": "After other definitions",
    "on": "On an event",
}
"""Labels of the trigger kinds."""

WEEK = tuple(zip(WEEKDAYS, ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), strict=True))

_FIELDS = {
    "cron": dict.fromkeys(("expression", *CRON_FIELDS), "expression"),
    "every": {"interval": "interval", "seconds": "interval", "anchor": "anchor"},
    "daily": {"at": "daily_at"},
    "weekly": {"at": "weekly_at", "days": "weekly_days"},
    "monthly": {"at": "monthly_at", "day": "monthly_day"},
    "monthly_business_day": {"at": "business_at", "n": "business_n", "roll": "business_roll"},
    "once": {"at": "once_at"},
    "manual": {},
    "after": {
        "definitions": "after_definitions",
        "fresh": "after_fresh",
        "on": "after_on",
        "same": "after_same",
    },
    "on": {"event": "on_event", "match": "on_match", "where": "on_where", "args": "on_args"},
}
"""Form field of each trigger field, by trigger kind."""

_COMMON = {
    name: name
    for name in ("key", "task", "definition", "timezone", "misfire", "overlap", "scope", "calendar", "exclude", "args")
} | {
    "queue": "queue", "priority": "priority", "tags": "tags", "jitter": "jitter", "holidays": "calendar", "weekend": "calendar",
    "dates": "exclude", "weekdays": "exclude",
}  # fmt: skip

EMPTY: dict[str, Any] = {
    **calendar_form.EMPTY, "kind": "cron", "timezone": "UTC", "misfire": "once", "overlap": "skip", "enabled": "yes", "interval_unit": "minutes",
    "misfire_limit": "100", "business_roll": "previous", "after_on": "success", "after_fresh": "24h",
}  # fmt: skip
"""Values of a new form."""


def fields_of(kind: str | None) -> dict[str, str]:
    """Map the field names in an error to form fields."""
    return {"trigger": _trigger_field(kind), **_COMMON, **_FIELDS.get(kind or "", {})}


def _trigger_field(kind: str | None) -> str:
    return next(iter(_FIELDS.get(kind or "", {}).values()), "kind")


def read_rules(form: Fields, arguments: Sequence[Argument] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of ``app.schedules``, and error messages by field. ``arguments`` are those of the task."""
    rules: dict[str, Any] = {}
    errors: dict[str, str] = {}
    kind = form.get("kind")

    def take(name: str, read: Callable[[], Any]) -> None:
        try:
            rules[name] = read()
        except FormError as wrong:
            errors[wrong.field] = wrong.words
        except TidemillError as error:
            errors.update(complaints(error, fields_of(kind)))

    take("timezone", lambda: zone_of(form.get("timezone") or "UTC").key)
    take("trigger", lambda: _trigger(form, rules.get("timezone", "UTC")))
    text, wrong = read_arguments(form, arguments, json_field="args")
    errors.update(wrong)
    rules["args"] = json.loads(text)
    take("misfire", lambda: _misfire(form))
    rules["overlap"] = form.get("overlap") or "skip"
    take("calendar", lambda: read_calendar(form))
    take("exclude", lambda: read_exclude(form, rules.get("calendar")))
    take("queue", lambda: form.get("queue"))
    take("priority", lambda: read_whole(form, "priority", least=-100, most=100))
    take("jitter", lambda: read_span(form, "jitter"))
    rules["tags"] = read_tags(form)
    return rules, errors


def _trigger(form: Fields, timezone: str) -> Trigger:
    read = _READERS.get(form.get("kind") or "")
    if read is None:
        raise FormError("kind", "choose when it fires")
    return read(form, timezone)


def _cron(form: Fields, _: str) -> Trigger:
    return Cron(_needed(form, "expression", "write five or six fields, such as 0 2 * * *"))


def _every(form: Fields, timezone: str) -> Trigger:
    interval = read_span(form, "interval")
    if interval is None:
        raise FormError("interval", "enter a number and a unit")
    return Every(interval, _instant(form, "anchor", timezone))


def _daily(form: Fields, _: str) -> Trigger:
    return Daily(_needed(form, "daily_at", "write a time such as 06:00, or several with commas"))


def _weekly(form: Fields, _: str) -> Trigger:
    days = form.all("weekly_days")
    if not days:
        raise FormError("weekly_days", "choose at least one day")
    return Weekly(days, _needed(form, "weekly_at", "write a time such as 09:00"))


def _monthly(form: Fields, _: str) -> Trigger:
    return Monthly(_day(form), _needed(form, "monthly_at", "write a time such as 00:00"))


def _business(form: Fields, _: str) -> Trigger:
    n = read_whole(form, "business_n", least=-23, most=23)
    if n is None:
        raise FormError("business_n", "enter a number: 1 is the first, -1 the last")
    roll = cast(Roll, form.get("business_roll") or "previous")
    return MonthlyBusinessDay(n, _needed(form, "business_at", "write a time such as 07:00"), roll)


def _once(form: Fields, timezone: str) -> Trigger:
    at = _instant(form, "once_at", timezone)
    if at is None:
        raise FormError("once_at", "enter a date and time")
    return Once(at)


def _after(form: Fields, _: str) -> Trigger:
    text = _needed(form, "after_definitions", "write the key of a definition, or several with commas")
    ends: Any = form.get("after_on") or "success"
    period: Any = form.get("after_same")
    return After(
        *(key.strip() for key in text.split(",")), fresh=form.get("after_fresh"), on=ends, same=period
    )


def _on(form: Fields, _: str) -> Trigger:
    event = _needed(form, "on_event", "write the name of an event")
    where, args = (read_json_field(form, name) for name in ("on_where", "on_args"))
    return On(event, match=form.get("on_match"), where=where, args=args)


_READERS: dict[str, Callable[[Fields, str], Trigger]] = {
    "cron": _cron,
    "every": _every,
    "daily": _daily,
    "weekly": _weekly,
    "monthly": _monthly,
    "monthly_business_day": _business,
    "once": _once,
    "manual": lambda _form, _timezone: Manual(),
    "after": _after,
    "on": _on,
}


def _needed(form: Fields, field: str, words: str) -> str:
    text = form.get(field)
    if text is None:
        raise FormError(field, words)
    return text


def _day(form: Fields) -> int | str:
    text = _needed(form, "monthly_day", "give 1 to 31, or last")
    if text.lower() == "last":
        return "last"
    day = read_whole(form, "monthly_day", least=-31, most=31)
    assert day is not None
    return day


def _instant(form: Fields, field: str, timezone: str) -> datetime | None:
    """Parse a date and time. Without an offset, it is local time in the schedule's zone."""
    text = form.get(field)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise FormError(field, f"{text[:40]!r} is not a date and time; write 2026-11-16T09:30") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=zone_of(timezone))


def _misfire(form: Fields) -> Any:
    rule = form.get("misfire") or "once"
    if rule != "all":
        return rule
    limit = read_whole(form, "misfire_limit", least=1, most=100_000)
    return All(100 if limit is None else limit)


# From a schedule to form fields ------------------------------------------------------------------------------------------


def shown(schedule: Schedule, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the form values of an existing schedule."""
    row = schedule.row
    values: dict[str, Any] = {
        **EMPTY,
        "key": schedule.key,
        "task": schedule.task,
        "timezone": schedule.timezone,
        "overlap": schedule.overlap,
        "scope": schedule.scope.value,
        **_shown_arguments(schedule, arguments),
        **shown_days(row.calendar, row.exclude),
        **_shown_trigger(row.trigger, schedule.timezone),
    }
    if isinstance(row.misfire, Mapping):
        values |= {"misfire": "all", "misfire_limit": str(row.misfire.get("all", 100))}
    else:
        values["misfire"] = row.misfire
    options = schedule.options
    values |= {name: str(options[name]) for name in ("queue", "priority") if options.get(name) is not None}
    if isinstance(tags := options.get("tags"), list | tuple):
        values["tags"] = ", ".join(str(tag) for tag in tags)
    if isinstance(jitter := options.get("jitter"), int | float) and jitter:
        values |= shown_span(jitter, "jitter")
    return values


def _shown_arguments(schedule: Schedule, arguments: Sequence[Argument]) -> dict[str, str]:
    """Return the values of the fields of the arguments, or all of them as JSON if the fields cannot hold them."""
    if not schedule.args:
        return {}
    values = shown_values(arguments, schedule.args)
    if values is None:
        return {"args": json.dumps(schedule.args, indent=2, ensure_ascii=False)}
    return values


def _shown_trigger(data: Mapping[str, Any], timezone: str) -> dict[str, Any]:
    kind = str(data.get("kind"))
    match kind:
        case "cron":
            own: dict[str, Any] = {"expression": data.get("expression", "")}
        case "every":
            own = shown_span(float(data.get("seconds") or 60), "interval")
            own["anchor"] = _local(data.get("anchor"), timezone)
        case "daily":
            own = {"daily_at": data.get("at", "")}
        case "weekly":
            own = {"weekly_at": data.get("at", ""), "weekly_days": str(data.get("days", "")).split(",")}
        case "monthly":
            day = data.get("day", 1)
            own = {"monthly_at": data.get("at", ""), "monthly_day": "last" if day == -1 else str(day)}
        case "monthly_business_day":
            own = {"business_at": data.get("at", ""), "business_n": str(data.get("n", 1))}
            own["business_roll"] = data.get("roll", "previous")
        case "once":
            own = {"once_at": _local(data.get("at"), timezone)}
        case "after":
            fresh = data.get("fresh")
            own = {
                "after_definitions": ", ".join(data.get("definitions", ())),
                "after_fresh": "" if fresh is None else f"{fresh:g}s",
                "after_on": data.get("on", "success"),
                "after_same": data.get("same") or "",
            }
        case "on":
            own = {"on_event": data.get("event", ""), "on_match": data.get("match") or ""}
            own |= {
                f"on_{name}": json.dumps(data[name], ensure_ascii=False) if data.get(name) else ""
                for name in ("where", "args")
            }
        case _:
            own = {}
    return {"kind": kind if kind in KINDS else "cron", **own}


def _local(text: object, timezone: str) -> str:
    if not isinstance(text, str):
        return ""
    try:
        at = datetime.fromisoformat(text).astimezone(zone_of(timezone)).replace(tzinfo=None)
    except (ValueError, TidemillError):
        return ""
    return at.isoformat(timespec="minutes" if not at.second else "seconds")


def blank(values: Mapping[str, Any]) -> FormState:
    """Return a new form with these values."""
    return FormState({**EMPTY, **{name: value for name, value in values.items() if value is not None}})


def without_empty(rules: dict[str, Any], defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Drop empty options from the rules.

    ``defaults`` are the values that an existing schedule's options return to if their fields are emptied.
    """
    given = dict(rules)
    for name, empty in (("queue", None), ("priority", None), ("jitter", None), ("tags", [])):
        if given.get(name) != empty:
            continue
        if defaults is not None and name in defaults:
            given[name] = defaults[name]
        else:
            del given[name]
    return given


def resets(schedule: Schedule, queue: str, priority: int) -> dict[str, Any]:
    """Return the defaults of the options that this schedule sets."""
    plain: dict[str, Any] = {"queue": queue, "priority": priority, "jitter": timedelta(0), "tags": []}
    return {name: value for name, value in plain.items() if name in schedule.options}
