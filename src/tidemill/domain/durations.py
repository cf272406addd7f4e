"""Durations as users give them: a ``timedelta``, seconds, or a text such as ``"10m"`` or ``"1h30m"``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from tidemill.domain.bounds import check_instant, check_span
from tidemill.errors import BadSettings, UsageError

Duration: TypeAlias = timedelta | float | str
"""A duration at the public edge: a ``timedelta``, a number of seconds, or a text such as ``"500ms"`` or ``"1h30m"``."""

EXPECTED = "give a timedelta, seconds, or text such as '10m'"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])")
_TEXT = re.compile(rf"(?:{_PART.pattern}\s*)+")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")
_LONGEST_TEXT = 40

E = TypeVar("E", bound=UsageError)


def parse_duration(value: object) -> timedelta | None:
    """Return the duration, or None if the value is none.

    >>> parse_duration("1h30m"), parse_duration(90), parse_duration("500ms"), parse_duration("10x")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=90), datetime.timedelta(microseconds=500000), None)
    """
    if isinstance(value, timedelta):
        return value
    seconds: float | None = None
    if isinstance(value, str):
        seconds = _seconds(value.strip().lower())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError):  # too long for the calendar, or not a number
        return None


def _seconds(text: str) -> float | None:
    if not text.isascii() or len(text) > _LONGEST_TEXT:
        return None
    if _SECONDS.fullmatch(text):
        return float(text)
    if not _TEXT.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def read_duration(name: str, value: object, /, *, error: type[E] | None = None, **fields: Any) -> timedelta:
    """Return the duration that a user gave for ``name``, or raise an error that says what to give instead."""
    found = parse_duration(value)
    if found is None:
        raise (error or BadSettings)(f"{name}: {value!r} is not a duration; {EXPECTED}", **fields)
    return found


def read_optional(name: str, value: object, /, **fields: Any) -> timedelta | None:
    """Return the duration, or None for None."""
    return None if value is None else read_duration(name, value, **fields)


def read_when(name: str, value: object) -> datetime | timedelta | None:
    """Return an aware datetime, or a duration from now; None for None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        span = parse_duration(value)
        if span is None:
            raise BadSettings(
                f"{name} is {value!r}; give an aware datetime, a timedelta, seconds, or text such as '10m'",
                option=name,
            )
        check_span(name, span)
        return span
    if value.tzinfo is None:
        raise BadSettings(
            f"{name} is {value.isoformat()}, which has no time zone; give an aware datetime", option=name
        )
    check_instant(name, value)
    return value


def set_durations(owner: object, place: str, **values: Any) -> None:
    """Replace fields of a frozen dataclass by their durations, in its ``__post_init__``. None stays."""
    for name, value in values.items():
        if value is not None:
            object.__setattr__(owner, name, read_duration(f"{place}: {name}", value))
