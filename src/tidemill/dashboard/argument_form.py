"""Form fields for a task's arguments, generated from their JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidemill.domain.masks import looks_secret
from tidemill.web.parsers import Fields
from tidemill.web.text_parsers import read_json, read_object

PREFIX = "arg."
"""Prefix of the names of these fields."""

JSON_FIELD = "args_json"
"""Name of the field that takes all arguments as JSON instead."""

Schema = Mapping[str, Any]

_TEXTS = {"date": "date", "time": "time", "email": "email", "uri": "url"}
_EXAMPLES = {
    "date-time": "2026-11-16T09:30:00Z",
    "uuid": "01890a5d-ac96-774b-bcce-b302099a8057",
    "duration": "PT1H30M, or seconds",
    "binary": "base64",
}


class Argument(NamedTuple):
    """One argument and its form field."""

    name: str
    kind: str  #: text, whole, number, bool, choice or json
    type: str  #: type attribute of the input
    words: str  #: accepted type, in words
    required: bool
    nullable: bool
    default: str | None  #: as JSON; None if there is no default or JSON cannot represent it
    choices: tuple[tuple[str, str], ...]  #: JSON and label
    example: str
    description: str

    @property
    def field(self) -> str:
        return PREFIX + self.name


def arguments_of(schema: Schema) -> list[Argument]:
    """Return the arguments of a task in declaration order."""
    needed = set(schema.get("required", ()))
    return [
        _argument(name, field, schema, name in needed) for name, field in schema.get("properties", {}).items()
    ]


def takes_more(schema: Schema) -> bool:
    """Whether the task accepts arguments with any name."""
    return bool(schema.get("additionalProperties"))


def _argument(name: str, field: Schema, schema: Schema, required: bool) -> Argument:
    resolved = _resolved(field, schema)
    nullable = False
    options = [_resolved(option, schema) for option in resolved.get("anyOf", ())]
    if options:
        nullable = any(option.get("type") == "null" for option in options)
        rest = [option for option in options if option.get("type") != "null"]
        if len(rest) == 1:
            resolved = {**resolved, **rest[0]}
        elif {option.get("type") for option in rest} == {"number", "string"}:
            # A decimal: keep the string exactly as the user typed it.
            resolved = {**resolved, "type": "string"}
    kind, type = _kind(resolved, "anyOf" in resolved and "type" not in resolved)
    if kind == "text" and looks_secret(name):
        type = "password"
    return Argument(
        name,
        kind,
        type,
        words_of(field, schema),
        required,
        nullable,
        json.dumps(field["default"], ensure_ascii=False) if "default" in field else None,
        _choices(resolved, kind),
        _EXAMPLES.get(str(resolved.get("format")), ""),
        str(resolved.get("description") or ""),
    )


def _resolved(field: Schema, schema: Schema) -> dict[str, Any]:
    """Resolve references in a schema, at most ten levels deep in case they are circular."""
    resolved = dict(field)
    for _ in range(10):
        if "$ref" in resolved:
            name = str(resolved.pop("$ref")).rpartition("/")[2]
            resolved = {**schema.get("$defs", {}).get(name, {}), **resolved}
        elif len(resolved.get("allOf", ())) == 1:
            (only,) = resolved.pop("allOf")
            resolved = {**only, **resolved}
        else:
            break
    return resolved


def _kind(field: Schema, mixed: bool) -> tuple[str, str]:
    if "enum" in field or "const" in field:
        return "choice", "text"
    if mixed:
        return "json", "text"
    match field.get("type"):
        case "string":
            return "text", _TEXTS.get(str(field.get("format")), "text")
        case "integer":
            return "whole", "number"
        case "number":
            return "number", "text"
        case "boolean":
            return "bool", "text"
        case _:
            return "json", "text"


def _choices(field: Schema, kind: str) -> tuple[tuple[str, str], ...]:
    if kind == "bool":
        return (("true", "yes"), ("false", "no"))
    if kind != "choice":
        return ()
    values = field["enum"] if "enum" in field else [field["const"]]
    return tuple(
        (json.dumps(value), str(value) if isinstance(value, str) else json.dumps(value)) for value in values
    )


def words_of(field: Schema, schema: Schema, depth: int = 0) -> str:
    """Describe in a few words what a schema accepts.

    >>> words_of({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {}), words_of({"type": "array", "items": {"type": "string"}}, {})
    ('integer or null', 'list of string')
    """
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        inner = schema.get("$defs", {}).get(name, {})
        return words_of(inner, schema, depth + 1) if "enum" in inner and depth < 5 else name
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(words_of(option, schema, depth + 1) for option in field["anyOf"]))
    if "enum" in field:
        return "one of " + ", ".join(str(value) for value in field["enum"][:10])
    if "const" in field:
        return f"just {field['const']}"
    kind = str(field.get("type", "anything"))
    if kind == "array" and isinstance(field.get("items"), Mapping) and depth < 5:
        return f"list of {words_of(field['items'], schema, depth + 1)}"
    if kind == "array":
        return "list"
    return f"{kind} ({field['format']})" if "format" in field else kind


def shown_values(arguments: Sequence[Argument], args: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the values of the fields for these arguments; None if the fields cannot hold them.

    An empty field leaves an argument out, so fields hold neither an empty text nor every null.
    """
    fields = {argument.name: argument for argument in arguments}
    values: dict[str, str] = {}
    for name, value in args.items():
        argument = fields.get(name)
        if argument is None:
            return None
        if value is None and argument.required and argument.nullable:
            continue
        if argument.kind != "text":
            values[argument.field] = json.dumps(value, ensure_ascii=False)
        elif isinstance(value, str) and value.strip() == value != "" and "\n" not in value:
            values[argument.field] = value
        else:
            return None
    return values


def read_arguments(
    form: Fields, arguments: Sequence[Argument], *, json_field: str = JSON_FIELD
) -> tuple[str, dict[str, str]]:
    """Return the arguments as JSON text, and error messages by field. ``json_field`` overrides the other fields.

    Empty fields are omitted, so that the task's own defaults apply.
    """
    errors: dict[str, str] = {}
    text = form.get(json_field)
    if text is not None:
        try:
            read_object(text)
        except ValueError as error:
            return "{}", {json_field: str(error)}
        return text, {}
    values: dict[str, Any] = {}
    for argument in arguments:
        typed = form.get(argument.field)
        if typed is None:
            if argument.required and argument.nullable:
                values[argument.name] = None
            continue
        try:
            values[argument.name] = _read(argument, typed)
        except ValueError as error:
            errors[argument.field] = str(error)
    return json.dumps(values, ensure_ascii=False), errors


def _read(argument: Argument, typed: str) -> Any:
    match argument.kind:
        case "text":
            return typed
        case "whole":
            return _number(typed, "give a whole number", integer=True)
        case "number":
            return _number(typed, "give a number", integer=False)
        case _:
            return read_json(typed)


def _number(typed: str, words: str, *, integer: bool) -> int | float:
    try:
        value = read_json(typed.replace("−", "-"))
    except ValueError:
        value = None
    wanted: Any = int if integer else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise ValueError(f"{typed[:40]!r} is not valid: {words}")
    number: int | float = value
    return number
