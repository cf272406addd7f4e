"""Bounds of instants, durations, counts and texts that every store can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from tidemill.errors import BadSettings, PayloadTooLarge

FIRST_YEAR, LAST_YEAR = 1900, 9000
"""Instants near the edges of the calendar cannot be converted to UTC, or do not fit into a table."""

LONGEST = timedelta(days=36_525)
"""A hundred years."""

MOST_ATTEMPTS = 10_000

LONGEST_KEY = 300
"""Characters of an indexed text: an index entry of PostgreSQL holds 2,704 bytes, and two such texts must fit."""

LONGEST_TEXT = 2_000
"""Characters of a reason, a comment or a description."""

MOST_METADATA = 16 * 1024
"""Bytes of a job's metadata as JSON."""

MOST_HEADERS = 4 * 1024
"""Bytes of a job's headers, names and values together."""

MOST_TAGS, LONGEST_TAG = 50, 256
"""Tags of a job, and characters of each."""

MOST_CHECKPOINT = 256 * 1024
"""Bytes of a checkpoint's value."""


def check_instant(name: str, at: datetime) -> None:
    """Refuse an instant that some store cannot hold.

    >>> from datetime import UTC
    >>> check_instant("expires", datetime(2030, 1, 1, tzinfo=UTC))
    """
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise BadSettings(
            f"{name} is {at.isoformat()}; give a year between {FIRST_YEAR} and {LAST_YEAR}", option=name
        )


def check_span(name: str, span: timedelta) -> None:
    """Refuse a duration that leads to an instant out of bounds."""
    if not -LONGEST <= span <= LONGEST:
        raise BadSettings(f"{name} is {span}; the longest duration is a hundred years", option=name)


def check_attempts(name: str, attempts: int) -> None:
    """Refuse a number of attempts out of bounds."""
    if not 1 <= attempts <= MOST_ATTEMPTS:
        least = "one attempt is the least" if attempts < 1 else f"{MOST_ATTEMPTS:,} are the most"
        raise BadSettings(f"{name}: max_attempts is {attempts}; {least}", max_attempts=attempts)


def check_text(name: str, text: object, longest: int | None = LONGEST_TEXT) -> None:
    """Refuse a value that is not a text every store can hold; None passes.

    >>> check_text("reason", "Zoë asked for it")
    """
    if text is not None and not isinstance(text, str):
        raise BadSettings(f"{name} is {text!r}; give a text", option=name)
    if text is not None and longest is not None and len(text) > longest:
        raise _too_large(name, "has", len(text), "characters", longest)
    if text is not None and (flaw := text_flaw(text)):
        raise BadSettings(f"{name} is {text!r}, which has {flaw}; leave it out", option=name)


def check_size(name: str, text: str, most: int) -> None:
    """Refuse a text of more than ``most`` bytes."""
    if (size := len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) > most:
        raise _too_large(name, "takes", size, "bytes", most)


def check_tags(name: str, tags: Sequence[str]) -> None:
    """Refuse too many tags, and tags that are too long or cannot be stored."""
    if len(tags) > MOST_TAGS:
        raise _too_large(name, "are", len(tags), "texts", MOST_TAGS)
    for tag in tags:
        check_text(name, tag, LONGEST_TAG)


def _too_large(name: str, verb: str, size: int, unit: str, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{name} {verb} {size:,} {unit}, the limit is {limit:,}; store the data elsewhere and pass a reference",
        option=name,
        size=size,
        limit=limit,
    )


def check_key(name: str, text: str) -> None:
    """Refuse an indexed text that some store or index cannot hold.

    >>> check_key("reference", "user")
    """
    check_text(name, text, longest=None)
    if len(text) > LONGEST_KEY:
        raise BadSettings(f"{name} has {len(text):,} characters; {LONGEST_KEY} are the most", option=name)


def check_metadata(data: object) -> None:
    """Refuse metadata that is not plain data, or takes too many bytes.

    >>> check_metadata({"rows": [1, 2.5, None]})
    """
    if flaw := data_flaw(data):
        raise BadSettings(f"metadata is not plain data: {flaw}", option="metadata")
    check_size("metadata", json.dumps(data, ensure_ascii=False), MOST_METADATA)


def check_headers(headers: object) -> None:
    """Refuse headers that are not texts by name, or take too many bytes.

    >>> check_headers({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
    """
    if not isinstance(headers, Mapping) or not all(
        isinstance(text, str) for pair in headers.items() for text in pair
    ):
        raise BadSettings(f"headers is {headers!r}; give a dictionary of texts", option="headers")
    if "" in headers:
        raise BadSettings("headers has an empty name; give every header a name", option="headers")
    for name, value in headers.items():
        check_text(f"header {name!r}", name, longest=None)
        check_text(f"header {name!r}", value, longest=None)
    check_size("headers", "".join(text for pair in headers.items() for text in pair), MOST_HEADERS)


def text_flaw(text: str) -> str | None:
    """Why some store cannot hold a text: PostgreSQL stores no NUL, and a lone surrogate has no encoding.

    >>> text_flaw("a"), text_flaw("\\0"), text_flaw("\\ud800")
    (None, 'a NUL in it', 'a lone surrogate in it, which is not a character')
    """
    if "\0" in text:
        return "a NUL in it"
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return "a lone surrogate in it, which is not a character"
    return None


def data_flaw(data: object) -> str | None:
    """Why some store cannot hold this data: it is not JSON, or contains a text that cannot be stored."""
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
            for value in data:
                yield from _texts(value)
        case dict():
            for key, value in data.items():
                yield from _texts(key)
                yield from _texts(value)


def span_words(span: timedelta) -> str:
    """A duration in the largest unit that divides it evenly.

    >>> span_words(timedelta(hours=1)), span_words(timedelta(minutes=90)), span_words(timedelta(milliseconds=2500))
    ('1 hour', '90 minutes', '2.5 seconds')
    """
    seconds = span.total_seconds()
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            number = int(seconds // size)
            return f"{number} {name}{'' if number == 1 else 's'}"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"


def check_name(what: str, name: object) -> None:
    """Check a name: 1 to 200 printable characters. ``*`` stands for all names and is refused."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 200
        or not name.isprintable()
        or name.strip() != name
        or name == "*"
    ):
        raise BadSettings(
            f"{name!r} is not a {what}'s name; give 1 to 200 printable characters, no blanks at its ends, and not '*'"
        )


def check_queue(name: str) -> None:
    """Check the name of a queue. Names that begin with ``@`` are reserved for the queues of nodes."""
    check_name("queue", name)
    if name.startswith("@"):
        raise BadSettings(f"{name!r} is not a queue's name here: those that begin with '@' are nodes' own")
