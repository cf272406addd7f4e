"""Template filters that format numbers, durations, instants and JSON.

The templates escape the results, except those that are ``Markup``.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from tidemill.domain.large_values import size_words

NONE = "–"

SHORT = 10.0
"""Periods of fewer seconds have milliseconds at their ends."""


def number(value: float | None) -> str:
    """Format a number with thousands separators.

    >>> number(1234567), number(None), number(102.43), number(2.5), number(0.25), number(0.005)
    ('1,234,567', '–', '102', '2.5', '0.25', '0.005')
    """
    if value is None:
        return NONE
    if isinstance(value, int):
        return f"{value:,}"
    if 0 < abs(value) < 1:
        return f"{value:.2g}"
    # More decimals than the value is known to would be false.
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")


def short_number(value: float | None) -> str:
    """Format a number in a few characters.

    >>> short_number(950), short_number(12_345), short_number(3_400_000)
    ('950', '12.3k', '3.4M')
    """
    if value is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            return (f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}".removesuffix(".0")) + letter
    return number(value)


def span(value: timedelta | float | None) -> str:
    """Format a duration in its two largest units.

    >>> span(timedelta(milliseconds=12)), span(timedelta(seconds=75)), span(timedelta(hours=26)), span(None)
    ('12 ms', '1 min 15 s', '1 d 2 h', '–')
    >>> span(timedelta(microseconds=300)), span(0.9994), span(0.9996), span(9.96), span(59.6)
    ('<1 ms', '999 ms', '1 s', '10 s', '1 min')
    """
    if value is None:
        return NONE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 0:
        return f"−{span(-seconds)}"
    if 0 < seconds < 0.0005:
        return "<1 ms"
    if (milliseconds := round(seconds * 1000)) < 1000:
        return f"{milliseconds} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    parts: list[str] = []
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def memory(count: int | None) -> str:
    """Format a number of bytes of memory, which may be unknown.

    >>> memory(3 * 2**20), memory(3 * 2**29), memory(None)
    ('3 MiB', '1.5 GiB', '–')
    """
    if count is None:
        return "–"
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def cpu(share: float | None) -> str:
    """Format CPU use as a percentage of one core, which may exceed 100.

    >>> cpu(0.004), cpu(1.25), cpu(None)
    ('<1 %', '125 %', '–')
    """
    if share is None:
        return "–"
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def percent(value: float | None) -> str:
    """Format a fraction as a percentage.

    >>> percent(0.1234), percent(1.0), percent(None)
    ('12.3 %', '100 %', '–')
    """
    if value is None:
        return NONE
    return f"{value * 100:.1f}".rstrip("0").rstrip(".") + " %"


def whole_percent(value: float | None) -> str:
    """Format a share of work done, of which no decimals are known.

    >>> whole_percent(2 / 3), whole_percent(0.999), whole_percent(1.0), whole_percent(None)
    ('67 %', '99 %', '100 %', '–')
    """
    if value is None:
        return NONE
    # 100 % means done.
    return f"{min(round(value * 100), 99) if value < 1 else 100} %"


def instant(value: datetime | str | None) -> Markup | str:
    """Format an instant. The script converts it to the reader's time zone and shows UTC in the tooltip."""
    return _time(value, "at")


def ago(value: datetime | str | None, now: datetime) -> Markup | str:
    """Format an instant relative to now. The script keeps it up to date."""
    if value is None:
        return NONE
    at = _read(value)
    apart = now - at
    words = (
        f"in {span(-apart)}"
        if apart < timedelta(0)
        else f"{span(apart)} ago"
        if apart >= timedelta(seconds=1)
        else "now"
    )
    return _time(at, "ago", words)


def age(value: datetime | str | None, now: datetime, name: str) -> Markup | str:
    """Format how long ago an instant is, or how far ahead, in one unit. ``name`` says what happened then."""
    if value is None:
        return NONE
    at = _read(value)
    seconds = (now - at).total_seconds()
    unit = next(((size, mark) for size, mark in _UNITS if abs(seconds) >= size), (1, "s"))
    words = f"{abs(seconds) / unit[0]:.0f} {unit[1]}" if abs(seconds) >= 1 else "now"
    text = f"in {words}" if seconds <= -1 else words
    return Markup('<time datetime="{}" data-time="age" title="{} {:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(
        at.isoformat(), name, at, text
    )


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def clock(value: datetime | str | None) -> Markup | str:
    """Format an instant as a time of day with milliseconds, for a line of a log."""
    return NONE if value is None else _time(value, "clock", f"{_read(value):%H:%M:%S.%f}"[:-3])


def within(value: datetime | str | None, length: timedelta | float) -> Markup | str:
    """Format an end of a period; if the period is short, with milliseconds.

    >>> within("2026-01-01T06:00:00.25+00:00", 0.5).striptags()
    '2026-01-01 06:00:00.250 UTC'
    >>> within("2026-01-01T06:00:00.25+00:00", 60).striptags()
    '2026-01-01 06:00:00 UTC'
    """
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if value is None or seconds >= SHORT:
        return instant(value)
    at = _read(value)
    return _time(at, "clock", f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} UTC")


def moment(value: datetime | str | None) -> Markup | str:
    """Format an instant in a few characters, for the axis of a chart."""
    return NONE if value is None else _time(value, "short", f"{_read(value):%H:%M}")


def _time(value: datetime | str | None, kind: str, words: str | None = None) -> Markup | str:
    if value is None:
        return NONE
    at = _read(value)
    utc = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" data-time="{}" title="{}">{}</time>').format(
        at.isoformat(), kind, utc, words or utc
    )


def _read(value: datetime | str) -> datetime:
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def as_json(value: Any) -> str:
    """Format plain data as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def on_one_line(value: Any, most: int = 120) -> str:
    """Format plain data in one short line.

    >>> on_one_line({"a": [1, 2]}), on_one_line({"a": "x" * 50}, 12)
    ('{"a": [1, 2]}', '{"a": "xxxx…')
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, most)


def shorten(text: str | None, most: int = 120) -> str:
    """Shorten a long text."""
    text = " ".join((text or "").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def without_module(reason: str) -> str:
    """Return a reason with the class of its error without the module.

    >>> without_module("shop.errors.CardRefused: expired")
    'CardRefused: expired'
    """
    return _MODULE.sub("", reason)


def words(name: Any) -> str:
    """Replace the underscores of an identifier by spaces.

    >>> words("dead_lettered")
    'dead lettered'
    """
    return str(getattr(name, "value", name)).replace("_", " ")


_MODULE = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")

FILTERS: dict[str, Any] = {
    "number": number,
    "short_number": short_number,
    "size": size_words,
    "memory": memory,
    "cpu": cpu,
    "span": span,
    "percent": percent,
    "whole_percent": whole_percent,
    "instant": instant,
    "ago": ago,
    "age": age,
    "clock": clock,
    "within": within,
    "moment": moment,
    "as_json": as_json,
    "on_one_line": on_one_line,
    "shorten": shorten,
    "without_module": without_module,
    "words": words,
}
