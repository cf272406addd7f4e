"""Parsers of user input: numbers, durations, instants and JSON.

Pure. A parser raises ``ValueError`` with a message for the user.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.domain.bounds import FIRST_YEAR, LAST_YEAR
from tidemill.domain.durations import parse_duration

_LONGEST = timedelta(days=3660)


_WHOLE = re.compile(r"[-−]?[0-9]{1,20}")


def read_number(text: str, least: int, most: int) -> int:
    """Parse an integer within these bounds.

    >>> read_number("−7", -10, 10)
    -7
    """
    number = int(text.replace("−", "-")) if _WHOLE.fullmatch(text) else None
    if number is None or not least <= number <= most:
        raise ValueError(f"give a whole number from {least:,} to {most:,}")
    return number


def read_span(text: str) -> timedelta:
    """Parse a duration: ``90`` seconds, ``30s``, ``5m`` or ``1h 30m``.

    >>> read_span("1h 30m").total_seconds(), read_span("90").total_seconds()
    (5400.0, 90.0)
    """
    span = parse_duration(text)
    if span is None:
        raise ValueError(f"{text[:40]!r} is not a duration; write 30s, 5m, 2h, 1d or 1h 30m")
    if span > _LONGEST:
        raise ValueError(f"{text[:40]!r} is longer than ten years")
    return span


def read_coming(text: str, now: datetime) -> datetime:
    """Parse an ISO instant, in UTC if it has no offset, or a duration from now.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    >>> str(read_coming("2h", noon)), str(read_coming("2026-04-01 06:00", noon))
    ('2026-03-01 14:00:00+00:00', '2026-04-01 06:00:00+00:00')
    """
    try:
        return now + read_span(text)
    except ValueError:
        try:
            return read_moment(text, now)
        except ValueError:
            raise ValueError(
                f"{text[:40]!r} is not a time; write 2026-03-01 06:00 (UTC), or 2h for in two hours"
            ) from None


def read_moment(text: str, now: datetime) -> datetime:
    """Parse an ISO instant, in UTC if it has no offset, or a duration before now.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    >>> str(read_moment("2h", noon)), str(read_moment("2026-02-01 06:00", noon))
    ('2026-03-01 10:00:00+00:00', '2026-02-01 06:00:00+00:00')
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return now - read_span(text)
        except ValueError:
            raise ValueError(
                f"{text[:40]!r} is not a moment; write 2026-03-01 06:00 (UTC), or 2h for two hours ago"
            ) from None
    if not FIRST_YEAR < moment.year < LAST_YEAR:
        raise ValueError(f"the year must be between {FIRST_YEAR} and {LAST_YEAR}")
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_json(text: str) -> Any:
    """Parse a JSON value."""
    try:
        return json.loads(text)
    except ValueError as error:
        where = (
            f", line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        )
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ValueError(f"this is not JSON: {reason}{where}") from None
    except RecursionError:
        raise ValueError("this is nested too deep") from None


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    >>> read_object('{"to": "ada"}')
    {'to': 'ada'}
    """
    value = read_json(text)
    if not isinstance(value, dict):
        raise ValueError('this is not a JSON object; write {"name": "value"}')
    return value
