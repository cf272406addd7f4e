"""The short way of values whose types are plain: no names for faults, no aliases, no second look.

Whatever it refuses, or does not know, goes the codec's long way, which says what is wrong; so it decides nothing that the codec
would decide otherwise. What it knows is listed by shape: a constraint, an alias or a serialiser of the user's is not on the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KINDS = {"typed-dict-field", "nullable", "none", "str", "int", "bool", "list", "dict"}
_PARTS = {"type", "schema", "keys_schema", "values_schema", "items_schema", "required", "metadata"}

Read = Callable[[str], dict[str, Any]]
Write = Callable[[Any], bytes]


def is_plain_shape(schema: Any) -> bool:
    """Whether a schema is made of plain types alone, without anything that changes how they are read or written."""
    if not isinstance(schema, dict) or schema.get("type") not in _KINDS or not schema.keys() <= _PARTS:
        return False
    if schema["type"] == "dict" and schema.get("keys_schema") != {"type": "str"}:
        return False
    inner = [part for name, part in schema.items() if name.endswith("schema")]
    return all(map(is_plain_shape, inner))


def short_reader(fields: dict[str, Any], validate_json: Callable[..., Any]) -> Read | None:
    """Reads JSON as these fields, strictly because their own config says so; None if they are not plain."""
    if "extras_schema" in fields or not all(map(is_plain_shape, fields["fields"].values())):
        return None
    return validate_json


def short_writer(field: Any, config: Any) -> Write | None:
    """Checks and writes one value without the name it is stored under; None if it is not plain."""
    from pydantic_core import SchemaSerializer, SchemaValidator

    if not is_plain_shape(field):
        return None
    bare = field["schema"]
    strict: Any = {**config, "strict": True}
    check, write = SchemaValidator(bare, strict).validate_python, SchemaSerializer(bare, strict).to_json

    def checked(value: Any) -> bytes:
        check(value)
        return write(value, warnings=False)  # what passed the check cannot surprise the serialiser

    return checked
