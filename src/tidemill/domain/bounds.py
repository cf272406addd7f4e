"""How far instants, durations and counts may go, so that whatever is stored can be read again, by every store and every reader."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.errors import BadSettings

FIRST_YEAR, LAST_YEAR = 1900, 9000
"""The edges of the calendar have no UTC, or no place in a table."""

LONGEST = timedelta(days=36_525)
"""A hundred years. Whatever waits longer has been forgotten."""

MOST_ATTEMPTS = 10_000


def check_instant(name: str, at: datetime) -> None:
    """Refuse an instant that not every store can hold.

    >>> from datetime import UTC
    >>> check_instant("expires", datetime(2030, 1, 1, tzinfo=UTC))
    """
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise BadSettings(
            f"{name} is {at.isoformat()}; give a year between {FIRST_YEAR} and {LAST_YEAR}", option=name
        )


def check_span(name: str, span: timedelta) -> None:
    """Refuse a duration that leads beyond what can be held."""
    if not -LONGEST <= span <= LONGEST:
        raise BadSettings(f"{name} is {span}; a hundred years are the most", option=name)


def check_attempts(name: str, attempts: int) -> None:
    """Refuse a number of attempts that nobody means."""
    if not 1 <= attempts <= MOST_ATTEMPTS:
        least = "one attempt is the least" if attempts < 1 else f"{MOST_ATTEMPTS:,} are the most"
        raise BadSettings(f"{name}: max_attempts is {attempts}; {least}", max_attempts=attempts)
