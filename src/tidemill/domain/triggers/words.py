"""Phrases for descriptions of triggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def joined(parts: Sequence[str], word: str = "and") -> str:
    """A list in prose.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def ordinal(number: int) -> str:
    """
    >>> ordinal(1), ordinal(12), ordinal(22)
    ('1st', '12th', '22nd')
    """
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as contiguous ranges.

    >>> runs([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def named(numbers: Iterable[int], names: Sequence[str], word: str = "and") -> str:
    """Numbers by name, with long ranges shortened: ``Monday to Friday and Sunday``."""
    parts: list[str] = []
    for first, last in runs(numbers):
        if last - first >= 2:
            parts.append(f"{names[first]} to {names[last]}")
        else:
            parts.extend(names[number] for number in range(first, last + 1))
    return joined(parts, word)


def clock_text(second: int) -> str:
    """A second of the day as ``HH:MM``, or ``HH:MM:SS`` if it has seconds."""
    text = f"{second // 3600:02d}:{second // 60 % 60:02d}"
    return f"{text}:{second % 60:02d}" if second % 60 else text


def span_text(span: timedelta) -> str:
    """A duration in its largest units.

    >>> span_text(timedelta(hours=36)), span_text(timedelta(minutes=1))
    ('1 day and 12 hours', 'minute')
    """
    parts = []
    seconds, micros = span.days * 86_400 + span.seconds, span.microseconds
    for name, size in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60)):
        if name == "week" and seconds % size:
            continue
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    if micros:
        parts.append(f"{seconds + micros / 1_000_000:g} seconds")
    elif seconds:
        parts.append(f"{seconds} second{'s' if seconds > 1 else ''}")
    return parts[0].removeprefix("1 ") if len(parts) == 1 else joined(parts)


def instant_text(when: datetime) -> str:
    """A UTC instant in readable form."""
    text = f"{when:%Y-%m-%d %H:%M}"
    if when.second or when.microsecond:
        text = when.replace(tzinfo=None).isoformat(" ")
    return f"{text} UTC"


def sentence(text: str) -> str:
    """The text with an initial capital."""
    return text[:1].upper() + text[1:]
