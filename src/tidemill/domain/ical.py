"""Dates out of the text of an iCalendar file: the form in which holidays are published.

Only whole days are of interest here: each event covers the days from its start to before its end. Events that repeat
every year are written out up to a last year; any other repetition is refused, because guessing would lose a holiday.
This room reads text that somebody else has fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

from tidemill.errors import BadSchedule

_ONE_DAY = timedelta(days=1)
_LONGEST = 366
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{6})Z?)?")
_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T.*)?")

Event = dict[str, list[str]]


def read_ical(text: str, *, through: int = 2100) -> frozenset[date]:
    """The days covered by the events of an iCalendar text; yearly events are written out through that year.

    >>> sorted(read_ical('''BEGIN:VCALENDAR
    ... BEGIN:VEVENT
    ... DTSTART;VALUE=DATE:20261225
    ... DTEND;VALUE=DATE:20261227
    ... END:VEVENT
    ... END:VCALENDAR'''))
    [datetime.date(2026, 12, 25), datetime.date(2026, 12, 26)]
    """
    given: object = text
    if not isinstance(given, str):
        raise BadSchedule(
            f"holidays: a {type(given).__name__} is no iCalendar text; decode what was read", field="holidays"
        )
    lines = re.sub(r"\r?\n[ \t]", "", text.lstrip("\ufeff")).splitlines()
    if not any(line.strip().upper() == "BEGIN:VCALENDAR" for line in lines):
        raise BadSchedule("this is no iCalendar text: it has no line BEGIN:VCALENDAR", field="holidays")
    return frozenset(day for event in _events(lines) for day in _days(event, through))


def _events(lines: list[str]) -> Iterator[Event]:
    event: Event | None = None
    depth: list[str] = []
    for line in lines:
        head, _, value = line.partition(":")
        name = head.partition(";")[0].strip().upper()
        if name == "BEGIN":
            depth.append(value.strip().upper())
            if depth[-1] == "VEVENT":
                event = {}
        elif name == "END":
            if depth and depth.pop() == "VEVENT" and event is not None:
                yield event
                event = None
        elif event is not None and depth and depth[-1] == "VEVENT":
            event.setdefault(name, []).append(value.strip())
    if depth:
        raise BadSchedule(f"the iCalendar text ends inside {depth[-1]}; is it complete?", field="holidays")


def _days(event: Event, through: int) -> Iterator[date]:
    if event.get("STATUS", [""])[0].upper() == "CANCELLED":
        return
    if "DTSTART" not in event:
        raise _unreadable(event, "it has no DTSTART")
    first = _date(event, event["DTSTART"][0])
    length = _length(event, first)
    left_out = {_date(event, each) for line in event.get("EXDATE", ()) for each in line.split(",")}
    added = [_date(event, each) for line in event.get("RDATE", ()) for each in line.split(",")]
    for start in (*_starts(event, first, through), *added):
        if start not in left_out:
            yield from (start + offset * _ONE_DAY for offset in range(length))


def _length(event: Event, first: date) -> int:
    """How many days an event covers; one that ends within its first day covers that day."""
    if "DTEND" in event:
        text = event["DTEND"][0]
        end = _date(event, text)
        match = _DATE.fullmatch(text)
        # An end at midnight, or a plain date, is the first moment that is not covered.
        over = match is not None and match[4] is not None and match[4] != "000000"
        length = (end - first).days + (1 if over else 0)
    elif "DURATION" in event:
        match = _DURATION.fullmatch(event["DURATION"][0].upper())
        if match is None:
            raise _unreadable(event, f"its DURATION {event['DURATION'][0]!r} cannot be read")
        length = int(match[1] or 0) * 7 + int(match[2] or 0)
    else:
        length = 1
    if length < 0 or length > _LONGEST:
        raise _unreadable(event, f"it covers {length} days; at most {_LONGEST} are believed")
    return max(length, 1)


def _starts(event: Event, first: date, through: int) -> Iterator[date]:
    if "RRULE" not in event:
        yield first
        return
    text = event["RRULE"][0].upper()
    rule = {key: value for key, _, value in (part.partition("=") for part in text.split(";") if part)}
    same = {"BYMONTH": str(first.month), "BYMONTHDAY": str(first.day)}
    if (
        len(event["RRULE"]) > 1
        or rule.get("FREQ") != "YEARLY"
        or any(
            key not in ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST") and rule[key] != same.get(key)
            for key in rule
        )
        or not all(
            rule.get(key, "1").isdecimal() and int(rule.get(key, "1")) > 0 for key in ("INTERVAL", "COUNT")
        )
    ):
        raise _unreadable(event, f"its repetition {text!r} is not a plain yearly one; list the dates instead")
    last = _date(event, rule["UNTIL"]) if "UNTIL" in rule else date(through, 12, 31)
    count = int(rule["COUNT"]) if "COUNT" in rule else None
    for year in range(first.year, min(last.year, through) + 1, int(rule.get("INTERVAL", "1"))):
        if count == 0:
            return
        # 29 February repeats in leap years only.
        if (first.month, first.day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400)):
            continue
        day = first.replace(year=year)
        if day <= last:
            yield day
            count = count - 1 if count is not None else None


def _date(event: Event, text: str) -> date:
    match = _DATE.fullmatch(text.strip())
    try:
        if match is not None:
            return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        pass
    raise _unreadable(event, f"{text!r} is not a date")


def _unreadable(event: Event, why: str) -> BadSchedule:
    name = event.get("SUMMARY", event.get("UID", ["without a name"]))[0]
    return BadSchedule(f"the iCalendar event {name!r} cannot be used: {why}", field="holidays", event=name)
