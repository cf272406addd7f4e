"""Values and batches encoded as PostgreSQL's binary parameters.

The query's header defines the type of each value, so no type is inspected when a value is sent. A column of a batch is one
parameter. Its bytes are the array's header (dimensions, null flag, element type, length, lower bound) and then
length-prefixed elements; a length of −1 is NULL. This is about thirty times cheaper than psycopg's conversion of each
element. The store's own connections send the bytes directly; on a user's connection they pass through psycopg's cursor as
``Packed``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

Pack = Callable[[Any], bytes]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NULL = b"\xff\xff\xff\xff"
_HEADER = struct.Struct("!iiIii")
_EMPTY = struct.Struct("!iiI")
_INTERVAL = struct.Struct("!iqii")
_ONE_INT8 = struct.Struct("!q").pack
_ONE_INTERVAL = struct.Struct("!qii").pack
_JSONB = 3802
_FEW, _MANY = 4, 100


class Packed:
    """The bytes of one array."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj.data


def _alike(values: Sequence[Any]) -> bool:
    """Whether all values of a batch are equal, as in most columns; then the value is packed once and repeated."""
    return len(values) > _FEW and values[0] == values[-1] and values.count(values[0]) == len(values)


def _uuid(values: Sequence[Any]) -> bytes:
    if _alike(values):
        return _uuid(values[:1]) * len(values)
    return b"".join(
        [_NULL if value is None else b"\0\0\0\x10" + value.int.to_bytes(16, "big") for value in values]
    )


def _text(values: Sequence[Any]) -> bytes:
    if _alike(values):
        return _text(values[:1]) * len(values)
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            data = value.encode()
            parts.append(len(data).to_bytes(4, "big"))
            parts.append(data)
    return b"".join(parts)


def _fixed(code: str) -> Callable[[Sequence[Any]], bytes]:
    one = struct.Struct("!i" + code)
    size = one.size - 4
    # Most batches are full, so few lengths recur often: each of those is packed with one call.
    many = lru_cache(maxsize=8)(lambda length: struct.Struct("!" + ("i" + code) * length).pack)

    def pack(values: Sequence[Any]) -> bytes:
        if _alike(values):
            return (_NULL if values[0] is None else one.pack(size, values[0])) * len(values)
        if len(values) >= _MANY and None not in values:
            parts: list[Any] = [size] * (2 * len(values))
            parts[1::2] = values
            return many(len(values))(*parts)
        return b"".join([_NULL if value is None else one.pack(size, value) for value in values])

    return pack


def _timestamptz(values: Sequence[Any]) -> bytes:
    if _alike(values):
        return _timestamptz(values[:1]) * len(values)
    return _INT8([None if value is None else (value - _EPOCH) // _MICROSECOND for value in values])


def _interval(values: Sequence[Any]) -> bytes:
    if _alike(values):
        return _interval(values[:1]) * len(values)
    return b"".join(
        [_NULL if value is None else _INTERVAL.pack(16, value // _MICROSECOND, 0, 0) for value in values]
    )


_INT8 = _fixed("q")

_KINDS: dict[str, tuple[int, int, Callable[[Sequence[Any]], bytes]]] = {
    "uuid": (2950, 2951, _uuid),
    "text": (25, 1009, _text),
    "int2": (21, 1005, _fixed("h")),
    "int4": (23, 1007, _fixed("i")),
    "int8": (20, 1016, _INT8),
    "float8": (701, 1022, _fixed("d")),
    "bool": (16, 1000, _fixed("?")),
    "timestamptz": (1184, 1185, _timestamptz),
    "interval": (1186, 1187, _interval),
}

OIDS = {kind: (element, array_oid) for kind, (element, array_oid, _) in _KINDS.items()}
"""The type OIDs of a value and of its array."""

_CLASSES: dict[str, type[Packed]] = {}
DUMPERS: list[tuple[type[Packed], type[Dumper]]] = []
"""The dumpers to register with a cursor's adapters, one per kind of array."""

for _kind, (_, _oid, _pack) in _KINDS.items():
    _class = type(f"Packed_{_kind}", (Packed,), {"__slots__": ()})
    _CLASSES[_kind] = _class
    DUMPERS.append((_class, type(f"Dumper_{_kind}", (_PackedDumper,), {"oid": _oid})))


def array(kind: str, values: Sequence[object]) -> bytes:
    """A column of values as the bytes of one array."""
    element, _, encode = _KINDS[kind]
    if not values:
        return _EMPTY.pack(0, 0, element)
    return _HEADER.pack(1, 1, element, len(values), 1) + encode(values)


def pack(kind: str, values: Sequence[object]) -> Packed:
    """A column of values as one parameter for a psycopg cursor with the ``DUMPERS``."""
    return _CLASSES[kind](array(kind, values))


ARRAYS = {"uuids": "uuid", "texts": "text", "int2s": "int2", "int4s": "int4", "int8s": "int8"}
"""Kinds of single values that are arrays, and their element types."""


def _one_timestamptz(value: datetime) -> bytes:
    return _ONE_INT8((value - _EPOCH) // _MICROSECOND)


def _one_interval(value: timedelta) -> bytes:
    return _ONE_INTERVAL(value // _MICROSECOND, 0, 0)


_SINGLE: dict[str, Pack] = {
    "uuid": attrgetter("bytes"),
    "text": str.encode,
    "int2": struct.Struct("!h").pack,
    "int4": struct.Struct("!i").pack,
    "int8": _ONE_INT8,
    "float8": struct.Struct("!d").pack,
    "bool": struct.Struct("!?").pack,
    "timestamptz": _one_timestamptz,
    "interval": _one_interval,
}


def single(kind: str) -> tuple[int, Pack]:
    """The type OID of a parameter of this kind, and the function that packs its values."""
    if kind in ARRAYS:
        return column(ARRAYS[kind])
    return OIDS[kind][0], _SINGLE[kind]


def column(kind: str) -> tuple[int, Pack]:
    """The same for a column of a batch."""
    return OIDS[kind][1], partial(array, kind)


def given(kind: str) -> int:
    """The type OID of a result column."""
    return _JSONB if kind == "json" else OIDS[kind][0]
