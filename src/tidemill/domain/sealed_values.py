"""Sealed values in stored texts: where they are, and which key sealed them.

A sealed value is ``{"$sealed": "KEY:…"}``, or ``{"$sealed": "KEY@OWNER:…"}`` if it belongs to a definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tidemill.domain.steps import PREFIX as STEP
from tidemill.domain.steps import recorded_value

SEALED = "$sealed"

RESULT_FIELD = "result()"
"""Field of a job's result. It cannot be the name of an argument."""

SealedPlace = Literal["jobs", "checkpoints", "definitions", "definition_versions"]
PLACES: tuple[SealedPlace, ...] = ("jobs", "checkpoints", "definitions", "definition_versions")


class SealedRow(NamedTuple):
    """A stored row that was looked at. Its texts are None where they contain no sealed value."""

    place: SealedPlace
    id: UUID
    name: str  #: of a checkpoint, or the number of a version
    part: str  #: the table of a job
    queue: str
    args: str | None = None
    result: str | None = None

    @property
    def cursor(self) -> tuple[UUID, str]:
        """The position of the row in its place."""
        return self.id, self.name


class SealChange(NamedTuple):
    """Another text for one column of a row, if it still has the old one."""

    row: SealedRow
    column: Literal["args", "result"]
    old: str
    new: str


class SealedValue(NamedTuple):
    """A sealed value: its text, the job or definition that it belongs to, and its field."""

    text: str
    owner: UUID
    field: str

    @property
    def key(self) -> str:
        """The name of the key that sealed it."""
        return key_of(self.text)


def is_sealed(value: object) -> bool:
    """Whether a plain value is a sealed one."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(SEALED), str)


def key_of(sealed: str) -> str:
    """The name of the key that sealed a text.

    >>> key_of("k1:AAAA"), key_of("k2@0190f5fe9a5c7000a1b2c3d4e5f60718:AAAA")
    ('k1', 'k2')
    """
    return sealed.partition(":")[0].partition("@")[0]


def owner_of(sealed: str) -> UUID | None:
    """The definition that a sealed text belongs to; None for a text of a job.

    >>> owner_of("k1:AAAA") is None
    True
    """
    owner = sealed.partition(":")[0].partition("@")[2]
    try:
        return UUID(owner) if owner else None
    except ValueError:
        return None


def sealed_values(row: SealedRow, column: str, text: str) -> Iterator[SealedValue]:
    """The sealed values in a text of a row."""
    try:
        yield from _values(row, column, text)
    except ValueError:  # not JSON: a large value, or a text of a user
        return


def _values(row: SealedRow, column: str, text: str) -> Iterator[SealedValue]:
    if row.place == "checkpoints":
        if row.name.startswith(STEP) and (value := recorded_value(text)) is not None:
            yield from _whole(json.loads(value), row.id, row.name)
    elif column == "result":
        yield from _whole(json.loads(text), row.id, RESULT_FIELD)
    else:
        data = json.loads(text)
        if row.place == "definition_versions":
            args = data.get("args", {})
            data = json.loads(args) if isinstance(args, str) else args
        yield from _fields(data, row.id)


def _whole(value: Any, owner: UUID, field: str) -> Iterator[SealedValue]:
    if is_sealed(value):
        yield SealedValue(value[SEALED], owner_of(value[SEALED]) or owner, field)


def _fields(data: Any, owner: UUID) -> Iterator[SealedValue]:
    for name, value in data.items() if isinstance(data, dict) else ():
        yield from _whole(value, owner, name)
