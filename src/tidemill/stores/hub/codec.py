"""Encoding of the arguments and results of store verbs as JSON, by their annotations.

Nothing is pickled, so that a message can never become code. Both ends must have the same fields in the same order; the version of the
protocol changes with them (``stores.hub.protocol``).
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, Union
from uuid import UUID

from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import Rule
from tidemill.domain.records import AuditEntry
from tidemill.stores.base import StepResult

_MICROSECOND = timedelta(microseconds=1)

# Names that modules import for type checkers only.
_NAMES: dict[str, Any] = {
    "Additions": Additions,
    "AuditEntry": AuditEntry,
    "Claim": Claim,
    "Finish": Finish,
    "ClaimRequest": ClaimRequest,
    "Rule": Rule,
    "StepResult": StepResult,
}

_PLAIN = (str, int, float, bool, type(None))
_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_SETS = (set, frozenset, collections.abc.Set)
_MAPPINGS = (dict, collections.abc.Mapping)

Decoder = Callable[[Any], Any]


def encode(value: Any) -> Any:
    """The value as JSON data. A function becomes None: it is called by the end that has it."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    return _encoder(kind)(value)  # type: ignore[arg-type]  # a class can be hashed


_ATOMS = frozenset(_PLAIN)


@lru_cache(maxsize=1_000)
def _encoder(kind: type) -> Callable[[Any], Any]:
    """The encoder of a type other than those of JSON."""
    if issubclass(kind, UUID):
        return lambda value: value.hex
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, str):
        return str
    if issubclass(kind, datetime):
        return lambda value: value.isoformat()
    if issubclass(kind, timedelta):
        return lambda value: value // _MICROSECOND
    if is_dataclass(kind):
        names = [field.name for field in fields(kind) if field.init]
        return lambda value: [encode(getattr(value, name)) for name in names]
    if issubclass(kind, collections.abc.Mapping):
        return _encode_mapping
    if issubclass(kind, collections.abc.Iterable):
        return lambda value: [encode(item) for item in value]
    if issubclass(kind, collections.abc.Callable):  # type: ignore[arg-type]
        return lambda _: None
    raise TypeError(f"a {kind.__name__} cannot be sent to a hub")


def _encode_mapping(value: Mapping[Any, Any]) -> Any:
    if all(type(key) is str for key in value):
        return {key: encode(item) for key, item in value.items()}
    return [[encode(key), encode(item)] for key, item in value.items()]


@lru_cache(maxsize=1_000)
def decoder(annotation: Any) -> Decoder:
    """The function that decodes data of this annotation."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (Any, object):
        return _same
    if origin in (Union, types.UnionType):
        return _optional(annotation, args)
    if origin is not None:
        return _generic(annotation, origin, args)
    return _simple(annotation)


def _same(data: Any) -> Any:
    return data


def _simple(kind: Any) -> Decoder:
    if kind in _PLAIN or kind is None:
        return _same
    if kind is UUID:
        return UUID
    if kind is datetime:
        return datetime.fromisoformat
    if kind is timedelta:
        return lambda data: timedelta(microseconds=data)
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            return {member.value: member for member in kind}.__getitem__
        if is_dataclass(kind):
            names = [field.name for field in fields(kind) if field.init]
            return _record(kind, [_hints(kind)[name] for name in names])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _record(kind, [_hints(kind)[name] for name in kind._fields])
    raise TypeError(f"data of {kind!r} cannot be received from a hub")


def _record(kind: type, annotations: list[Any]) -> Decoder:
    """The decoder of a class with these fields. Those whose data is the value are left alone, which most are."""
    converted: list[tuple[int, Decoder]] = []
    # Looked up at the first use, because a class may contain itself.
    pending = list(enumerate(annotations))

    def decode(data: list[Any]) -> Any:
        while pending:
            place, annotation = pending.pop(0)
            read = decoder(annotation)
            if read is not _same:
                converted.append((place, read))
        values = list(data)
        if len(values) != len(annotations):
            raise ValueError(f"{kind.__name__} has {len(annotations)} fields, not {len(values)}")
        for place, read in converted:
            if values[place] is not None:
                values[place] = read(values[place])
        return kind(*values)

    return decode


def _optional(annotation: Any, args: tuple[Any, ...]) -> Decoder:
    others = [arg for arg in args if arg is not type(None)]
    if len(others) == 1:
        read = decoder(others[0])
        return _same if read is _same else lambda data: None if data is None else read(data)
    if all(decoder(arg) is _same for arg in others):
        return _same
    raise TypeError(f"data of {annotation!r} cannot be received from a hub")


def _generic(annotation: Any, origin: Any, args: tuple[Any, ...]) -> Decoder:
    if origin is collections.abc.Callable:
        return _same
    if origin in _MAPPINGS:
        return _mapping(decoder(args[0]), decoder(args[1]))
    if origin is tuple and args[-1] is not Ellipsis:
        parts = [decoder(arg) for arg in args]
        return lambda data: tuple(read(part) for read, part in zip(parts, data, strict=True))
    container = (
        tuple if origin is tuple else list if origin in _LISTS else frozenset if origin in _SETS else None
    )
    if container is None:
        raise TypeError(f"data of {annotation!r} cannot be received from a hub")
    return _items(decoder(args[0]), container)


def _items(read: Decoder, container: Callable[[Any], Any]) -> Decoder:
    return container if read is _same else lambda data: container([read(item) for item in data])


def _mapping(key: Decoder, value: Decoder) -> Decoder:
    def decode(data: Any) -> dict[Any, Any]:
        pairs = data.items() if isinstance(data, dict) else data
        return {key(name): value(item) for name, item in pairs}

    return decode


@lru_cache(maxsize=1_000)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, localns=_NAMES)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, evaluated."""
    return typing.get_type_hints(function, localns=_NAMES)
