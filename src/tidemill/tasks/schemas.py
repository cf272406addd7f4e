"""Traversal of pydantic-core schemas, independent of values and tasks."""

from __future__ import annotations

from typing import Any

_OPAQUE = ("default", "metadata")  # parts of a schema that are not schemas


def travelling(schema: Any) -> Any:
    """Return the schema without dataclass fields with ``init=False``, which the dataclass computes again on reading.

    The result is a copy, because parts of the original belong to the user's own classes.
    """
    if isinstance(schema, list):
        return [travelling(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: part if key in _OPAQUE else travelling(part) for key, part in schema.items()}
    if made.get("type") == "dataclass-field" and not made.get("init", True):
        made["serialization_exclude"] = True
    return made


def kinds(schema: Any, shared: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the types of all schemas within a schema."""
    found: set[str] = set()
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            found.add(schema["type"])
        found.update(*(kinds(part, shared) for key, part in schema.items() if key not in _OPAQUE))
    elif isinstance(schema, list | tuple):
        found.update(*(kinds(part, shared) for part in schema))
    if "definition-ref" in found:
        found = (found | shared) - {"definition-ref"}
    return frozenset(found)


def keys_are_texts(schema: Any) -> bool:
    """Whether all dictionaries in a schema have string keys."""
    if isinstance(schema, list | tuple):
        return all(keys_are_texts(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "dict" and schema.get("keys_schema", {}).get("type") != "str":
        return False
    return all(keys_are_texts(part) for key, part in schema.items() if key not in _OPAQUE)


def has_aliases(schema: Any) -> bool:
    """Whether a field in a schema has other names in JSON than its own, as one alias or several."""
    if isinstance(schema, list | tuple):
        return any(has_aliases(part) for part in schema)
    if not isinstance(schema, dict):
        return False
    if schema.get("validation_alias") is not None:
        return True
    return any(has_aliases(part) for key, part in schema.items() if key not in _OPAQUE)
