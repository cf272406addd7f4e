"""Parsers of option values and task arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from tidemill.domain.bounds import LONGEST
from tidemill.domain.durations import parse_duration
from tidemill.errors import BadArguments


def read_instant(text: str) -> datetime | None:
    """Parse an ISO instant, in UTC if it has no offset; return None if it is invalid.

    >>> read_instant("2026-03-01 06:00").isoformat()
    '2026-03-01T06:00:00+00:00'
    """
    try:
        at = datetime.fromisoformat(text.strip())
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    # The first and last instants of the calendar overflow in UTC.
    except (ValueError, OverflowError):
        return None


def duration(text: str) -> timedelta:
    """Option type of a duration."""
    length = parse_duration(text)
    if length is None:
        raise click.BadParameter(f"{text!r} is not a duration; write 30s, 5m, 2h, 1d or 1h30m")
    return _bearable(length, text)


def instant(text: str) -> datetime:
    """Option type of an instant."""
    at = read_instant(text)
    if at is None:
        raise click.BadParameter(f"{text!r} is not a timestamp; write 2026-03-01T06:00Z")
    return at


def moment(text: str) -> datetime | timedelta:
    """Option type of an instant, or of a duration before now."""
    ago = parse_duration(text)
    if ago is not None:
        return _bearable(ago, text)
    at = read_instant(text)
    if at is None:
        raise click.BadParameter(
            f"{text!r} is not a timestamp; write 2026-03-01T06:00Z, or 2h for two hours ago"
        )
    return at


def _bearable(length: timedelta, text: str) -> timedelta:
    """Refuse a duration that would overflow the calendar when added to the current time."""
    if length > LONGEST:
        raise click.BadParameter(f"{text!r} is too long; the longest duration is a hundred years")
    return length


def metadata(text: str) -> tuple[str, str]:
    """Option type of a key and a value."""
    return _pair(text, "=", "customer=acme")


def argument(text: str) -> tuple[str, str]:
    """Parse a ``NAME=VALUE`` option about an argument of a task."""
    return _pair(text, "=", "account=42")


def reference(text: str) -> tuple[str, str]:
    """Option type of a kind and an id."""
    return _pair(text, ":", "user:42")


def _pair(text: str, sign: str, example: str) -> tuple[str, str]:
    before, separator, after = text.partition(sign)
    if not separator or not before:
        raise click.BadParameter(f"{text!r} is not a pair; write {example}")
    return before, after


def json_or_text(text: str) -> object:
    """Parse a value as JSON if possible, else return the text itself."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def read_arguments(given: str | None, words: Iterable[str], schema: Mapping[str, Any]) -> str:
    """Return a task's arguments as JSON text, from ``--args`` and from ``key=value`` words that override it.

    A value of a string parameter is used as is. Any other is parsed as JSON if possible.

    >>> read_arguments('{"to": "ann"}', ["size=3", "name=007"], {"properties": {"name": {"type": "string"}}})
    '{"to": "ann", "size": 3, "name": "007"}'
    """
    try:
        values = json.loads(given) if given else {}
    except ValueError as error:
        raise BadArguments(f"--args is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise BadArguments('--args is not a JSON object; write --args \'{"name": "value"}\'')
    properties = schema.get("properties", {})
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name:
            raise BadArguments(f"{word!r} is not an argument; write name=value, or use --args")
        plain = properties.get(name, {}).get("type") == "string"
        values[name] = text if plain else json_or_text(text)
    return json.dumps(values)


def pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """Read the values of a repeated option as NAME=VALUE.

    >>> pairs("--tenant-role", ["acme=admin"])
    {'acme': 'admin'}
    """
    read: dict[str, str] = {}
    for word in words:
        name, is_pair, value = word.rpartition("=")
        if not is_pair or not name or not value:
            raise click.UsageError(f"{option} is {word!r}; give NAME=VALUE")
        read[name] = value
    return read
