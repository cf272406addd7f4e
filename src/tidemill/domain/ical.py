"""Reader of holidays in iCalendar text.

An event covers the days from its start until before its end, in its own time zone. Yearly events are expanded up to a last
year, except for occurrences that another event with the same UID replaces. Any other recurrence is refused, because a guess
could lose a holiday.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

from tidemill.errors import BadSchedule

_ONE_DAY = timedelta(days=1)
_LONGEST = 366
_DAY = 86_400
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})Z?)?")
_DURATION = re.compile(
    r"\+?P(?=\w)(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?"
)
_COUNT = re.compile(r"0*[1-9]\d{0,5}")
_UNITS = (7 * _DAY, _DAY, 3600, 60, 1)
_LINE = re.compile(r'((?:"[^"]*"|[^":])*):(.*)')  # a colon in quotes belongs to a parameter

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
            f"holidays: a {type(given).__name__} is not an iCalendar text; decode the content first",
            field="holidays",
        )
    if not date.min.year <= through <= date.max.year:
        raise BadSchedule(
            f"through: {through} is not a year; give one up to {date.max.year}",
            field="through",
            value=through,
        )
    lines = re.sub(r"\r?\n[ \t]", "", text.lstrip("\ufeff")).splitlines()
    if not any(line.strip().upper() == "BEGIN:VCALENDAR" for line in lines):
        raise BadSchedule("not an iCalendar text: it has no line BEGIN:VCALENDAR", field="holidays")
    events = list(_events(lines))
    replaced = _replaced_days(events)
    return frozenset(day for event in events for day in _days(event, replaced, through))


def _events(lines: list[str]) -> Iterator[Event]:
    event: Event | None = None
    depth: list[str] = []
    for line in lines:
        match = _LINE.fullmatch(line)
        head, value = (match[1], match[2]) if match else (line, "")
        name, _, parameters = head.upper().partition(";")
        name = name.strip()
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
            if name == "RECURRENCE-ID" and "RANGE=" in parameters:
                raise _unreadable(event, "it also changes all later occurrences; list the dates instead")
    if depth:
        raise BadSchedule(f"the iCalendar text ends inside {depth[-1]}; is it complete?", field="holidays")


def _replaced_days(events: list[Event]) -> dict[str, set[date]]:
    """The days of each series, by UID, that a separate event moves or cancels."""
    found: dict[str, set[date]] = {}
    for event in events:
        if "RECURRENCE-ID" in event and "UID" in event:
            day, _ = _moment(event, event["RECURRENCE-ID"][0])
            found.setdefault(event["UID"][0], set()).add(day)
    return found


def _days(event: Event, replaced: dict[str, set[date]], through: int) -> Iterator[date]:
    if event.get("STATUS", [""])[0].upper() == "CANCELLED":
        return
    if "DTSTART" not in event:
        raise _unreadable(event, "it has no DTSTART")
    first, second = _moment(event, event["DTSTART"][0])
    length = _length(event, first, second)
    left_out, added = set(_listed(event, "EXDATE")), _listed(event, "RDATE")
    if "RECURRENCE-ID" not in event and "UID" in event:
        left_out |= replaced.get(event["UID"][0], set())
    for start in (*_starts(event, first, through), *added):
        if start not in left_out:
            if (date.max - start).days < length - 1:
                raise _unreadable(event, f"it ends after the year {date.max.year}")
            yield from (start + offset * _ONE_DAY for offset in range(length))


def _listed(event: Event, name: str) -> list[date]:
    return [_moment(event, part)[0] for line in event.get(name, ()) for part in line.split(",")]


def _length(event: Event, first: date, second: int) -> int:
    """The number of days that an event covers, which begins at this second of its first day; at least one."""
    if "DTEND" in event:
        end, over = _moment(event, event["DTEND"][0])
        # An end at midnight, or a plain date, is exclusive.
        length = (end - first).days + (1 if over else 0)
    elif "DURATION" in event:
        match = _DURATION.fullmatch(event["DURATION"][0].upper())
        if match is None:
            raise _unreadable(event, f"its DURATION {event['DURATION'][0]!r} cannot be read")
        lasts = sum(int(number or 0) * unit for number, unit in zip(match.groups(), _UNITS, strict=True))
        length = -(-(second + lasts) // _DAY)
    else:
        length = 1
    if length < 0 or length > _LONGEST:
        raise _unreadable(event, f"it covers {length} days; the maximum is {_LONGEST}")
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
        or not all(_COUNT.fullmatch(rule.get(key, "1")) for key in ("INTERVAL", "COUNT"))
    ):
        raise _unreadable(event, f"its repetition {text!r} is not a plain yearly one; list the dates instead")
    last = _moment(event, rule["UNTIL"])[0] if "UNTIL" in rule else date(through, 12, 31)
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


def _moment(event: Event, text: str) -> tuple[date, int]:
    """A day, and the second within it; 0 for a plain date."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is not None:
            year, month, day, hour, minute, second = (int(number or 0) for number in match.groups())
            return date(year, month, day), hour * 3600 + minute * 60 + second
    except ValueError:
        pass
    raise _unreadable(event, f"{text!r} is not a date")


def _unreadable(event: Event, why: str) -> BadSchedule:
    name = event.get("SUMMARY", event.get("UID", ["without a name"]))[0]
    return BadSchedule(f"the iCalendar event {name!r} cannot be used: {why}", field="holidays", event=name)
