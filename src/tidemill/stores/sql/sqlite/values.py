"""Conversion between Python's and SQLite's values, column by column.

A batch has many rows and few columns. Ids are 16 bytes, instants microseconds since 1970 UTC, durations microseconds, booleans 0 or
1. The query's header defines the type of a column. Only plain ``str``, ``int``, ``float`` and ``bytearray`` are passed: for anything
else, such as ``bytes`` or a subclass like ``StrEnum``, SQLite's module searches for an adapter, which takes longer than all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.ids import uuid_of
from tidemill.stores.sql.driver import Row

Encode = Callable[[Sequence[Any]], Sequence[Any]]
Decode = Callable[[Iterable[Any]], Iterable[Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def microseconds(instant: datetime) -> int:
    """An instant in its stored form."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(stored: int) -> datetime:
    """A stored instant; one beyond the calendar becomes the calendar's end."""
    try:
        return _EPOCH + timedelta(0, 0, stored)
    except OverflowError:
        return _LAST if stored > 0 else _FIRST


class _Memo(dict[Any, Any]):
    """A cache within one result, because its rows often share instants and workers."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__({None: None})
        self._make = make

    def __missing__(self, stored: Any) -> Any:
        made = self[stored] = self._make(stored)
        return made


def _uuids_out(column: Iterable[Any]) -> Iterable[Any]:
    # Not cached: nearly all of them are ids of different jobs.
    number, make = int.from_bytes, uuid_of
    return [None if data is None else make(number(data, "big")) for data in column]


def _remembered(make: Callable[[Any], Any]) -> Decode:
    return lambda column: map(_Memo(make).__getitem__, column)


def _bytes(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else bytearray(value.int.to_bytes(16, "big")) for value in column]


def _plain(column: Sequence[Any]) -> Sequence[Any]:
    return [value if value is None or value.__class__ is str else str.__str__(value) for value in column]


def _microseconds(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else (value - _EPOCH) // _MICROSECOND for value in column]


def _span(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else value // _MICROSECOND for value in column]


def _whole(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else int(value) for value in column]


def _same(column: Sequence[Any]) -> Sequence[Any]:
    return column


def _texts(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else json.dumps([str(word) for word in value]) for value in column]


def _uuids(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else json.dumps([id.hex for id in value]) for value in column]


def _numbers(column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else json.dumps(list(value)) for value in column]


ENCODE: dict[str, Encode] = {
    "uuid": _bytes,
    "text": _plain,
    "timestamptz": _microseconds,
    "interval": _span,
    "bool": _whole,
    "int2": _same,
    "int4": _same,
    "int8": _same,
    "float8": _same,
    "texts": _texts,
    "uuids": _uuids,
    "int8s": _numbers,
}
"""Encoders of columns by type."""

DECODE: dict[str, Decode] = {
    "uuid": _uuids_out,
    "timestamptz": _remembered(instant),
    "interval": _remembered(lambda stored: timedelta(0, 0, stored)),
    "bool": lambda column: map(bool, column),
    "json": _remembered(json.loads),
}
"""Decoders of columns, for the types that need conversion."""


def encoded(encode: Encode, column: Sequence[Any]) -> Sequence[Any]:
    """A column in its stored form. A value that all rows share, such as their worker, is encoded once."""
    # ``count`` compares identities first, and columns of different values are excluded before it.
    if len(column) > 1 and column[0] is column[-1] and column.count(column[0]) == len(column):
        return list(encode(column[:1])) * len(column)
    return encode(column)


def decoder(kinds: Sequence[str]) -> Callable[[list[Row]], list[Row]]:
    """A function that decodes rows with these types."""
    changed = [(place, DECODE[kind]) for place, kind in enumerate(kinds) if kind in DECODE]

    def decode(rows: list[Row]) -> list[Row]:
        columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
        for place, change in changed:
            columns[place] = change(columns[place])
        return list(zip(*columns, strict=True))

    return decode if changed else lambda rows: rows
