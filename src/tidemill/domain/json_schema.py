"""Validation of JSON values by the JSON schemas that pydantic generates.

A process that takes an answer for a job has the schema, and not the class. It checks what such a schema says about types, fields,
bounds and choices; formats are left to the class itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "must be at least {}"),
    "maximum": (lambda value, bound: value <= bound, "must be at most {}"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "must be greater than {}"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "must be less than {}"),
}
_SIZES: dict[str, tuple[Callable[[int, int], bool], str]] = {
    "minLength": (lambda size, bound: size >= bound, "needs at least {} characters"),
    "maxLength": (lambda size, bound: size <= bound, "may have at most {} characters"),
    "minItems": (lambda size, bound: size >= bound, "needs at least {} items"),
    "maxItems": (lambda size, bound: size <= bound, "may have at most {} items"),
}
_DEEPEST = 50


def schema_problems(schema: Schema, value: object) -> list[str]:
    """The problems of a value; empty if it fits.

    >>> schema_problems({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": "x"})
    ['n: expected integer']
    >>> schema_problems({"type": "object", "required": ["n"]}, {})
    ['n: is missing']
    """
    return list(_problems(schema, value, "", schema, 0))


def _problems(schema: Schema, value: Any, path: str, root: Schema, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
        yield from _problems(target, value, path, root, depth + 1)
    for part in schema.get("allOf", ()):
        yield from _problems(part, value, path, root, depth + 1)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options and not any(not list(_problems(part, value, path, root, depth + 1)) for part in options):
        yield _at(path, "fits none of the allowed types")
    yield from _own_problems(schema, value, path)
    if isinstance(value, dict):
        yield from _field_problems(schema, value, path, root, depth)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for place, item in enumerate(value):
            yield from _problems(schema["items"], item, f"{path}[{place}]", root, depth + 1)


def _own_problems(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """The problems of the value itself, without its fields and items."""
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if names and not any(_TYPES.get(name, lambda _: True)(value) for name in names):
        yield _at(path, f"expected {' or '.join(names)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield _at(path, f"expected one of {', '.join(map(str, schema['enum']))}")
    if "const" in schema and value != schema["const"]:
        yield _at(path, f"expected {schema['const']}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (
            _at(path, text.format(schema[name]))
            for name, (fits, text) in _BOUNDS.items()
            if name in schema and not fits(value, schema[name])
        )
    if isinstance(value, str | list):
        yield from (
            _at(path, text.format(schema[name]))
            for name, (holds, text) in _SIZES.items()
            if name in schema
            and name.endswith("Length") == isinstance(value, str)
            and not holds(len(value), schema[name])
        )
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield _at(path, f"does not match {schema['pattern']}")


def _field_problems(
    schema: Schema, value: Mapping[str, Any], path: str, root: Schema, depth: int
) -> Iterator[str]:
    fields = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield _at(_join(path, name), "is missing")
    for name, item in value.items():
        if name in fields:
            yield from _problems(fields[name], item, _join(path, name), root, depth + 1)
        elif schema.get("additionalProperties") is False:
            yield _at(_join(path, name), "is not a field")
        elif isinstance(schema.get("additionalProperties"), Mapping):
            yield from _problems(schema["additionalProperties"], item, _join(path, name), root, depth + 1)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str, problem: str) -> str:
    return f"{path}: {problem}" if path else problem
