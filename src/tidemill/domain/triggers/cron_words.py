"""Descriptions of cron expressions in plain English."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemill.domain.triggers.words import MONTH_NAMES, clock_text, joined, named, ordinal, sentence

_FEW = 6
_MONTHS = tuple(name[:3].upper() for name in MONTH_NAMES)
_WEEK = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAYS = tuple(name[:3].upper() for name in _WEEK)
_STEP = re.compile(r"(\*|\w+(?:-\w+)?)/(\d+)")

Clock = tuple[Sequence[int], Sequence[int], Sequence[int]]


def cron_words(clock: Clock, days: Sequence[str], *, both_days: bool) -> str:
    """The description of the hours, minutes and seconds, and of the fields for day of month, month and day of week."""
    time, is_list = _time_words(*clock)
    date = _date_words(*days, both_days=both_days)
    if date:
        return sentence(f"{time} {date}")
    return sentence(f"{time} every day" if is_list else time)


def _time_words(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> tuple[str, bool]:
    """The words, and whether they name times of a day (so that "every day" may follow)."""
    often = _often(hours, minutes, seconds)
    if often:
        return often, False
    if len(hours) * len(minutes) * len(seconds) <= _FEW:
        times = [h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds]
        return "at " + joined([clock_text(time) for time in times]), True
    if tuple(seconds) == (0,):
        hourly = _pace("hour", hours, 24) if tuple(minutes) == (0,) else ""
        return (hourly, False) if hourly else (_minute_words(hours, minutes), True)
    of_minute = "every minute" if len(minutes) == 60 else _numbers("minute", minutes)
    of_hour = "every hour" if len(hours) == 24 else _numbers("hour", hours)
    second = _pace("second", seconds, 60)
    return f"{second or 'at ' + _numbers('second', seconds)} of {of_minute} of {of_hour}", True


def _often(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    """The description of a constant pace around the clock; empty for any other times."""
    if len(hours) < 24:
        return ""
    if len(minutes) == 60:
        if tuple(seconds) == (0,):
            return "every minute"
        return _pace("second", seconds, 60) or f"at {_numbers('second', seconds)} of every minute"
    if tuple(seconds) == (0,):
        if tuple(minutes) == (0,):
            return "every hour"
        return _pace("minute", minutes, 60) or f"at {_numbers('minute', minutes)} of every hour"
    return ""


def _minute_words(hours: Sequence[int], minutes: Sequence[int]) -> str:
    minute = _pace("minute", minutes, 60)
    if minute and list(hours) == list(range(hours[0], hours[-1] + 1)):
        return f"{minute} from {clock_text(hours[0] * 3600)} to {clock_text(hours[-1] * 3600 + minutes[-1] * 60)}"
    if tuple(minutes) == (0,):
        return f"on the hour at {_numbers('hour', hours)}"
    return f"{minute or 'at ' + _numbers('minute', minutes)} of {_numbers('hour', hours)}"


def _pace(unit: str, values: Sequence[int], size: int) -> str:
    """``every 5 minutes`` where the values divide the whole evenly."""
    if len(values) == size:
        return f"every {unit}"
    step = values[1] - values[0] if len(values) > 1 else 0
    if step and size % step == 0 and list(values) == list(range(0, size, step)):
        return f"every {step} {unit}s"
    return ""


def _numbers(unit: str, values: Sequence[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {named(values, [str(n) for n in range(60)])}"


def _date_words(month_days: str, months: str, weekdays: str, *, both_days: bool) -> str:
    in_months = "" if months.startswith("*") and "/" not in months else _month_words(months)
    by_month = "" if month_days == "*" else _month_day_words(month_days)
    both = bool(by_month) and both_days
    by_week = "" if weekdays == "*" else _weekday_words(weekdays, "or" if both else "and")
    of = f" of {in_months}" if in_months else " of the month"
    if by_month and by_week:
        if both:
            return f"on {by_month}{of} if it is {by_week}"
        return f"on {by_month}{of} or on {by_week}{f' in {in_months}' if in_months else ''}"
    if by_month:
        return f"on {by_month}{of}"
    if by_week:
        return f"on {by_week}{f' in {in_months}' if in_months else ''}"
    return f"every day in {in_months}" if in_months else ""


def _month_words(field: str) -> str:
    return named(_values(field, _MONTHS, 1, 12), ("", *MONTH_NAMES))


def _month_day_words(field: str) -> str:
    parts: list[str] = []
    for term in field.split(","):
        if term.startswith("LW"):
            parts.append("the last weekday")
        elif term.startswith("L"):
            parts.append("the last day")
        elif term.endswith("W"):
            parts.append(f"the weekday nearest the {ordinal(int(term[:-1]))}")
        else:
            parts.append(_stretch(term))
    return joined(parts)


def _stretch(term: str) -> str:
    values = _values(term, (), 1, 31)
    if len(values) == 31:
        return "every day"
    if len(values) > 2 and "/" not in term:
        return f"the {ordinal(values[0])} to the {ordinal(values[-1])}"
    if len(values) > _FEW:
        last = f" to the {ordinal(values[-1])}" if "-" in term else ""
        return f"every {ordinal(values[1] - values[0])} day from the {ordinal(values[0])}{last}"
    return joined([f"the {ordinal(day)}" for day in values])


def _weekday_words(field: str, word: str) -> str:
    plain: set[int] = set()
    special: list[str] = []
    for term in field.split(","):
        name, mark, which = term.partition("#")
        if mark:
            special.append(f"the {ordinal(int(which))} {_WEEK[_value(name, _WEEKDAYS)]} of the month")
        elif term.endswith("L"):
            special.append(f"the last {_WEEK[int(term[:-1])]} of the month")
        else:
            # The week begins on Monday, so that "5-7" reads "Friday to Sunday".
            plain.update((day or 7) for day in _values(term, _WEEKDAYS, 0, 7))
    if len(plain) == 7:
        return "any day of the week"  # "a weekday" would mean Monday to Friday, as in LW
    parts = [named(sorted(plain), _WEEK, word)] if plain else []
    return joined([*parts, *special], word)


def _value(text: str, names: Sequence[str]) -> int:
    return names.index(text) + (1 if len(names) == 12 else 0) if text in names else int(text)


def _values(field: str, names: Sequence[str], least: int, most: int) -> list[int]:
    """The sorted numbers of a field without special characters; the field is already validated."""
    found: set[int] = set()
    for term in field.split(","):
        match = _STEP.fullmatch(term)
        body, step = (match[1], int(match[2])) if match else (term, 1)
        first, dash, last = body.partition("-")
        if first == "*":
            low, high = least, most
        else:
            low = _value(first, names)
            high = _value(last, names) if dash else (most if match else low)
        found.update(range(low, high + 1, step))
    return sorted(found)
