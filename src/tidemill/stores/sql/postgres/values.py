"""Single values encoded as PostgreSQL's binary parameters.

The query's header defines the type of each value, so no type is inspected when a value is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tidemill.stores.sql.postgres.arrays import OIDS, array

Pack = Callable[[Any], bytes]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT8 = struct.Struct("!q").pack
_INTERVAL = struct.Struct("!qii").pack
_JSONB = 3802
ARRAYS = {"uuids": "uuid", "texts": "text", "int2s": "int2", "int4s": "int4", "int8s": "int8"}
"""Kinds of single values that are arrays, and their element types."""


def _timestamptz(value: datetime) -> bytes:
    return _INT8((value - _EPOCH) // _MICROSECOND)


def _interval(value: timedelta) -> bytes:
    return _INTERVAL(value // _MICROSECOND, 0, 0)


_SINGLE: dict[str, Pack] = {
    "uuid": lambda value: value.int.to_bytes(16, "big"),
    "text": str.encode,
    "int2": struct.Struct("!h").pack,
    "int4": struct.Struct("!i").pack,
    "int8": _INT8,
    "float8": struct.Struct("!d").pack,
    "bool": struct.Struct("!?").pack,
    "timestamptz": _timestamptz,
    "interval": _interval,
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
