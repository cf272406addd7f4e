"""References from the arguments of one node to the results of others.

A stored reference is the object ``{"$ref": [id, path…]}``, or ``{"$refs": [id, path…]}`` for the list of results of a group. A user's
own key of that name gets one more ``$``. Only the arguments of jobs with references are written like this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from tidemill.domain.conditions import Condition, as_condition
from tidemill.errors import UsageError

_RESERVED = re.compile(r"\$+refs?")
_SHOWN = 60

INPUTS = "inputs"
"""The option of a job with references: the ids of the jobs and groups whose results its arguments or its condition need."""

WHEN = "when"
"""The option of a job with a condition: its ``test`` and its ``text``."""


class StoredReference(NamedTuple):
    """A reference as the arguments of a job contain it."""

    id: UUID
    path: tuple[str | int, ...] = ()
    many: bool = False  #: the list of results of a group's members, in the order of their positions

    def data(self) -> dict[str, list[str | int]]:
        """The reference as JSON."""
        return {"$refs" if self.many else "$ref": [str(self.id), *self.path]}


class MissingPath(LookupError):
    """A result has no value at the path of a reference."""


class Reference:
    """The future result of a node. Attributes, items and comparisons of it are data, evaluated when a job begins."""

    __slots__ = ("_tidemill_name", "_tidemill_stored")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, stored: StoredReference, name: str) -> None:
        self._tidemill_stored = stored
        self._tidemill_name = name

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._at(name, f"{self._tidemill_name}.{name}")

    def __getitem__(self, key: str | int) -> Reference:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise UsageError(
                f"{key!r} cannot be looked up in a result; give the key of an object or the index of a list"
            )
        return self._at(key, f"{self._tidemill_name}[{key!r}]")

    def _at(self, key: str | int, name: str) -> Reference:
        stored = self._tidemill_stored
        return Reference(stored._replace(path=(*stored.path, key)), name)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def is_in(self, choices: Collection[object]) -> Condition:
        """The condition that the result is one of these values."""
        return self._compared("in", list(choices))

    def __and__(self, other: object) -> Condition:
        return as_condition(self) & other

    def __or__(self, other: object) -> Condition:
        return as_condition(self) | other

    def __invert__(self) -> Condition:
        return ~as_condition(self)

    def __tidemill_condition__(self) -> Condition:
        stored = self._tidemill_stored
        return Condition(["true", stored.data()], self._tidemill_name, {stored.id})

    def _compared(self, word: str, other: object) -> Condition:
        needs = {self._tidemill_stored.id}
        if isinstance(other, Reference):
            needs.add(other._tidemill_stored.id)
        shown = other._tidemill_name if isinstance(other, Reference) else _shown(other)
        operand, _ = encode(other)
        return Condition(
            [word, self._tidemill_stored.data(), operand], f"{self._tidemill_name} {word} {shown}", needs
        )

    def __bool__(self) -> NoReturn:
        raise UsageError(
            f"{self._tidemill_name} is not known before the flow runs; give it to a node as an argument, or to .when(…)"
        )

    def __iter__(self) -> NoReturn:
        raise UsageError(
            f"{self._tidemill_name} is not known before the flow runs; use flow.map(task, item=each(…)) for each item"
        )

    def __repr__(self) -> str:
        return f"<{self._tidemill_name} of the flow>"


def stored_of(reference: Reference) -> StoredReference:
    """The data of a reference."""
    return reference._tidemill_stored


def name_of(reference: Reference) -> str:
    """The reference as people read it: ``parse.result.errors``."""
    return reference._tidemill_name


def references_in(value: object) -> Iterator[Reference]:
    """The references inside lists, tuples and dictionaries."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references_in(item)


def has_references(value: object) -> bool:
    """Whether there is a reference inside a value."""
    return next((True for _ in references_in(value)), False)


def encode(value: object) -> tuple[Any, list[StoredReference]]:
    """A value as JSON with its references as data, and these references."""
    found: list[StoredReference] = []

    def written(part: object) -> Any:
        if isinstance(part, Reference):
            found.append(stored_of(part))
            return stored_of(part).data()
        if isinstance(part, Mapping):
            return {_escaped(key): written(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return [written(item) for item in part]
        if part is None or isinstance(part, str | int | float):
            return part
        raise UsageError(
            f"{_shown(part)} next to the result of a node is not plain JSON; give texts, numbers, lists and dictionaries"
        )

    return written(value), found


def _escaped(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"{key!r} cannot be the key of a JSON object; give a text")
    return f"${key}" if _RESERVED.fullmatch(key) else key


def decode(value: Any, read: Callable[[StoredReference], Any]) -> Any:
    """A stored value with each reference replaced by what ``read`` returns for it.

    >>> id = UUID(int=1)
    >>> decode({"rows": {"$ref": [str(id), "n"]}, "$$ref": 2}, lambda reference: reference.path)
    {'rows': ('n',), '$ref': 2}
    """
    if isinstance(value, dict):
        found = read_stored(value)
        if found is not None:
            return read(found)
        return {
            key[1:] if _RESERVED.fullmatch(key) else key: decode(item, read) for key, item in value.items()
        }
    if isinstance(value, list):
        return [decode(item, read) for item in value]
    return value


def read_stored(value: Any) -> StoredReference | None:
    """The reference that a JSON value stands for, if it is one."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((key, parts),) = value.items()
    if key not in ("$ref", "$refs") or not isinstance(parts, list) or not parts:
        return None
    return StoredReference(UUID(parts[0]), tuple(parts[1:]), key == "$refs")


def stored_references(value: Any) -> list[StoredReference]:
    """The references in a stored value."""
    found: list[StoredReference] = []
    decode(value, found.append)
    return found


def look_up(value: Any, path: tuple[str | int, ...]) -> Any:
    """The part of a result at a path.

    >>> look_up({"rows": [{"id": 7}]}, ("rows", 0, "id"))
    7
    """
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            raise MissingPath(f"it has no {part!r}: {_shown(value)}") from None
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
