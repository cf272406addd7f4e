"""Form fields of business days and excluded days of a schedule.

Pure. Fields cover everything but a schedule whose excluded days have a calendar of their own; such rules stay JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, cast

from tidemill.dashboard.form_state import FormError, FormState, read_json_field
from tidemill.domain.calendar import WEEKDAYS, BusinessCalendar, Exclude, Roll
from tidemill.errors import BadSchedule
from tidemill.web.parsers import Fields

WEEKEND = ("sat", "sun")
SHOWN = "days_shown"
"""Hidden field that tells an unchecked weekend from a form without these fields."""

EMPTY: dict[str, Any] = {SHOWN: "yes", "weekend": list(WEEKEND), "excluded_roll": "none"}
"""Values of a new form."""

FIELDS = (
    "calendar", "exclude", "weekend", "holidays", "calendar_name", "excluded_dates", "excluded_weekdays", "excluded_roll",
)  # fmt: skip
"""Fields with errors that open this part of the form."""


def is_set(form: FormState) -> bool:
    """Whether the form has values other than the usual ones, or errors."""
    if any(name in form.errors for name in FIELDS):
        return True
    texts = ("calendar", "exclude", "holidays", "calendar_name", "excluded_dates", "excluded_business")
    return (
        any(form.value(name) for name in texts)
        or any(form.has("excluded_weekdays", day) for day in WEEKDAYS)
        or any(form.has("weekend", day) != (day in WEEKEND) for day in WEEKDAYS if form.value(SHOWN))
    )


def read_calendar(form: Fields) -> BusinessCalendar | None:
    """Return the business days; None for the usual ones."""
    if form.get("calendar") is not None:
        calendar: BusinessCalendar = _from_json(form, "calendar", BusinessCalendar.from_data)
        return calendar
    weekend = form.all("weekend") if form.get(SHOWN) else list(WEEKEND)
    holidays, name = _dates(form, "holidays"), form.get("calendar_name") or ""
    if set(weekend) == set(WEEKEND) and not holidays and not name:
        return None
    try:
        return BusinessCalendar(weekend=_known(weekend, "weekend"), holidays=holidays, name=name)
    except BadSchedule as error:
        raise FormError("weekend", error.message) from None


def read_exclude(form: Fields, calendar: BusinessCalendar | None) -> Exclude | None:
    """Return the excluded days; None without any."""
    if form.get("exclude") is not None:
        exclude: Exclude = _from_json(form, "exclude", Exclude.from_data)
        return exclude
    dates, weekdays = _dates(form, "excluded_dates"), form.all("excluded_weekdays")
    business = form.get("excluded_business") is not None
    if not dates and not weekdays and not business:
        return None
    roll = form.get("excluded_roll") or "none"
    try:
        return Exclude(
            dates=dates,
            weekdays=_known(weekdays, "excluded_weekdays"),
            calendar=(calendar or BusinessCalendar()) if business else None,
            roll=cast(Roll, roll),
        )
    except BadSchedule as error:
        field = "excluded_roll" if error.details.get("field") == "roll" else "excluded_weekdays"
        raise FormError(field, error.message) from None


def shown_days(calendar: Mapping[str, object] | None, exclude: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the form values of stored rules."""
    values: dict[str, Any] = dict(EMPTY)
    try:
        business = None if calendar is None else BusinessCalendar.from_data(calendar)
        excluded = None if exclude is None else Exclude.from_data(exclude)
    except (BadSchedule, TypeError, ValueError, KeyError, AttributeError):
        return values | {"calendar": _as_json(calendar), "exclude": _as_json(exclude)}
    own = None if excluded is None else excluded.calendar
    if own is not None and own != (business or BusinessCalendar()):
        return values | {"calendar": _as_json(calendar), "exclude": _as_json(exclude)}
    if business is not None:
        values |= {
            "weekend": [day for day in WEEKDAYS if day in business.weekend],
            "holidays": _lines(business.holidays),
            "calendar_name": business.name,
        }
    if excluded is not None:
        values |= {
            "excluded_dates": _lines(excluded.dates),
            "excluded_weekdays": [day for day in WEEKDAYS if day in excluded.weekdays],
            "excluded_business": "yes" if own is not None else "",
            "excluded_roll": excluded.roll,
        }
    return values


def _lines(dates: Any) -> str:
    return "\n".join(str(day) for day in sorted(dates))


def _as_json(data: Mapping[str, object] | None) -> str:
    if data is None:
        return ""
    return json.dumps({name: value for name, value in data.items() if name != "format"}, ensure_ascii=False)


def _known(days: list[str], field: str) -> str:
    if unknown := [day for day in days if day not in WEEKDAYS]:
        raise FormError(field, f"{unknown[0][:40]!r} is not a weekday")
    return ",".join(days)


def _dates(form: Fields, field: str) -> frozenset[date]:
    """Parse dates that are separated by commas, blanks or line breaks."""
    days = set()
    for word in re.split(r"[\s,;]+", form.get(field) or ""):
        if word:
            try:
                days.add(date.fromisoformat(word))
            except ValueError:
                raise FormError(field, f"{word[:40]!r} is not a date; write 2026-12-25") from None
    return frozenset(days)


def _from_json(form: Fields, field: str, read: Callable[[Mapping[str, Any]], Any]) -> Any:
    data = {"format": 1, **(read_json_field(form, field) or {})}
    if isinstance(data.get("calendar"), dict):
        data["calendar"] = {"format": 1, **data["calendar"]}
    try:
        return read(data)
    except BadSchedule as error:
        raise FormError(field, error.message) from None
    except (TypeError, ValueError, KeyError, AttributeError):
        raise FormError(field, "this cannot be read; see the example") from None
