"""Arguments and results of Celery tasks as JSON, with the types that Celery's own serializer keeps."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

_TYPE, _VALUE = "__type__", "__value__"
_WRITERS: tuple[tuple[type[Any], str, Callable[[Any], str]], ...] = (
    (datetime, "datetime", lambda value: value.isoformat()),
    (date, "date", lambda value: value.isoformat()),
    (time, "time", lambda value: value.isoformat()),
    (Decimal, "decimal", str),
    (UUID, "uuid", str),
    (bytes, "base64", lambda value: base64.b64encode(value).decode()),
)
_READERS: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "base64": base64.b64decode,
}


def to_json(value: Any) -> Any:
    """Return a value as plain JSON. Raises ``TypeError`` for a value that Celery cannot send as JSON either.

    >>> to_json((1, Decimal("1.5")))
    [1, {'__type__': 'decimal', '__value__': '1.5'}]
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(part) for part in value]
    for kind, name, write in _WRITERS:
        if isinstance(value, kind):
            return {_TYPE: name, _VALUE: write(value)}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def from_json(value: Any) -> Any:
    """Return the value that ``to_json`` was given; tuples and sets become lists.

    >>> from_json(to_json({"at": date(2026, 1, 1)}))
    {'at': datetime.date(2026, 1, 1)}
    """
    if isinstance(value, list):
        return [from_json(part) for part in value]
    if isinstance(value, dict):
        if value.keys() == {_TYPE, _VALUE} and value[_TYPE] in _READERS:
            return _READERS[value[_TYPE]](value[_VALUE])
        return {key: from_json(part) for key, part in value.items()}
    return value
