"""Parameters of tasks and definitions as rows, for forms and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill.domain.masks import HIDDEN
from tidemill.domain.sealed_values import is_sealed
from tidemill.tasks.task import Declared


class ParameterRow(NamedTuple):
    """One parameter: what the task takes, and the value that a definition has for it."""

    name: str
    type: str  #: ``string``, ``integer``, …; several are joined by ``|``
    required: bool
    default: object
    secret: bool  #: sealed in the store, and never shown
    description: str | None
    is_set: bool = False  #: whether the definition has a value
    value: object = None  #: that value; ``***`` for a secret


def parameter_rows(declared: Declared, args: str | None = None) -> list[ParameterRow]:
    """The parameters of a task in their order, with the values of a definition's arguments."""
    schema = declared.arguments.schema()
    values: dict[str, Any] = {} if args is None else json.loads(args)
    return [
        ParameterRow(
            name,
            _type(field),
            name in schema.get("required", ()),
            field.get("default"),
            name in declared.arguments.secrets,
            field.get("description"),
            name in values,
            HIDDEN if is_sealed(values.get(name)) else values.get(name),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def _type(field: Mapping[str, Any]) -> str:
    """The type of a field, from its JSON schema.

    >>> _type({"anyOf": [{"type": "string"}, {"type": "null"}]}), _type({"$ref": "#/$defs/Point"}), _type({})
    ('string|null', 'Point', 'any')
    """
    if "type" in field:
        return str(field["type"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    return "|".join(_type(part) for part in field.get("anyOf", ())) or "any"
