"""How far instants, durations, counts and texts may go, so that what is stored can be read again, by every store and reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.errors import BadSettings

FIRST_YEAR, LAST_YEAR = 1900, 9000
"""The edges of the calendar have no UTC, or no place in a table."""

LONGEST = timedelta(days=36_525)
"""A hundred years. Whatever waits longer has been forgotten."""

MOST_ATTEMPTS = 10_000

LONGEST_KEY = 300
"""Characters of a text that is looked for by an index: PostgreSQL's take 2,704 bytes, and two of these have to fit."""


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


def check_text(name: str, text: object) -> None:
    """Refuse what is no text that every store can hold; None is none, and may be.

    >>> check_text("reason", "Zoë asked for it")
    """
    if text is not None and not isinstance(text, str):
        raise BadSettings(f"{name} is {text!r}; give a text", option=name)
    if text is not None and (flaw := text_flaw(text)):
        raise BadSettings(f"{name} is {text!r}, which has {flaw}; leave it out", option=name)


def check_key(name: str, text: str) -> None:
    """Refuse a text that is looked for and that not every store can hold, or not every index.

    >>> check_key("reference", "user")
    """
    check_text(name, text)
    if len(text) > LONGEST_KEY:
        raise BadSettings(f"{name} has {len(text):,} characters; {LONGEST_KEY} are the most", option=name)


def check_data(name: str, data: object) -> None:
    """Refuse what is no plain data that every store can hold.

    >>> check_data("metadata", {"rows": [1, 2.5, None]})
    """
    if flaw := data_flaw(data):
        raise BadSettings(f"{name} is not plain data: {flaw}", option=name)


def text_flaw(text: str) -> str | None:
    """What keeps a text out of some stores, in words: a NUL has no place in a table, half a surrogate pair no encoding.

    >>> text_flaw("a"), text_flaw("\\0"), text_flaw("\\ud800")
    (None, 'a NUL in it', 'a lone surrogate in it, which is no character')
    """
    if "\0" in text:
        return "a NUL in it"
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return "a lone surrogate in it, which is no character"
    return None


def data_flaw(data: object) -> str | None:
    """What keeps data out of some stores, in words: all that JSON does not know, and texts that cannot be held."""
    try:
        written = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return next((f"{text!r} has {flaw}" for text in _texts(written) if (flaw := text_flaw(text))), None)


def _texts(data: object) -> Iterator[str]:
    match data:
        case str():
            yield data
        case list():
            for each in data:
                yield from _texts(each)
        case dict():
            for key, value in data.items():
                yield from _texts(key)
                yield from _texts(value)
