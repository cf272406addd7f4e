"""Fast path of the codec for plain types.

It names no faults, reads no aliases and makes no additional check. Everything it refuses or does not support takes the
codec's normal path, which reports the faults, so both paths give the same results. Supported schemas are listed by
shape: a constraint, an alias or a custom serialiser is not on the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KINDS = {"typed-dict-field", "nullable", "none", "str", "int", "bool", "list", "dict"}
_PARTS = {"type", "schema", "keys_schema", "values_schema", "items_schema", "required", "metadata"}

Read = Callable[[str], dict[str, Any]]
Write = Callable[[Any], bytes]


def is_plain_shape(schema: Any) -> bool:
    """Whether a schema consists of plain types only, without anything that changes how they are read or written."""
    if not isinstance(schema, dict) or schema.get("type") not in _KINDS or not schema.keys() <= _PARTS:
        return False
    if schema["type"] == "dict" and schema.get("keys_schema") != {"type": "str"}:
        return False
    inner = [part for name, part in schema.items() if name.endswith("schema")]
    return all(map(is_plain_shape, inner))


def short_reader(fields: dict[str, Any], validate_json: Callable[..., Any]) -> Read | None:
    """Return a reader for these fields, or None if they are not plain. The fields' own config makes it strict."""
    if "extras_schema" in fields or not all(map(is_plain_shape, fields["fields"].values())):
        return None
    return validate_json


def short_writer(field: Any, config: Any) -> Write | None:
    """Return a validating writer for a value without its field name, or None if its type is not plain."""
    from pydantic_core import SchemaSerializer, SchemaValidator

    if not is_plain_shape(field):
        return None
    bare = field["schema"]
    strict: Any = {**config, "strict": True}
    check, write = SchemaValidator(bare, strict).validate_python, SchemaSerializer(bare, strict).to_json

    def checked(value: Any) -> bytes:
        check(value)
        return write(value, warnings=False)  # a validated value cannot fail in the serialiser

    return checked
