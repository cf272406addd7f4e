"""Annotations known to be JSON-serialisable without importing the validator."""

from __future__ import annotations

import collections
import collections.abc
import types
import typing
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Annotated, Any
from uuid import UUID

_PLAIN: frozenset[Any] = frozenset(
    {
        Any, object, None, type(None), Ellipsis, str, int, float, bool, bytes, list, dict, tuple, set, frozenset,
        date, datetime, time, timedelta, Decimal, UUID, Path, PurePath, collections.deque, collections.defaultdict,
        collections.OrderedDict, collections.Counter, collections.abc.Sequence, collections.abc.Mapping,
        collections.abc.MutableMapping, collections.abc.MutableSequence, collections.abc.Set,
    }
)  # fmt: skip


def surely_travels(annotation: Any, above: tuple[Any, ...] = ()) -> bool:
    """Whether values of this type can certainly be validated and written as JSON.

    False means that only the validator can decide. A name that cannot be resolved yet counts as certain; the first use
    decides.
    """
    if _is_plain(annotation) or isinstance(annotation, str | typing.ForwardRef | typing.TypeVar):
        return True
    if any(annotation is ancestor for ancestor in above):
        return True
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return True
    if origin is Annotated:
        return surely_travels(typing.get_args(annotation)[0], above)
    if origin in (typing.Union, types.UnionType) or (origin is not None and _is_plain(origin)):
        return _all_travel(typing.get_args(annotation), above)
    return isinstance(annotation, type) and _class_travels(annotation, (*above, annotation))


def _class_travels(kind: type, above: tuple[Any, ...]) -> bool:
    if hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__"):
        return True
    if issubclass(kind, Enum):
        return True
    if is_dataclass(kind):
        hints = _hints(kind)
        return _all_travel([hints.get(field.name) for field in fields(kind) if field.init], above)
    if typing.is_typeddict(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return _all_travel(_hints(kind).values(), above)
    return False


def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a class's fields; empty while a name is not defined yet."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return {}


def _all_travel(annotations: Iterable[Any], above: tuple[Any, ...]) -> bool:
    return all(surely_travels(annotation, above) for annotation in annotations)


def _is_plain(annotation: Any) -> bool:
    try:
        return annotation in _PLAIN
    except TypeError:  # not hashable
        return False
