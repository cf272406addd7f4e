"""``docs/reference/http.md``: every route with its role, parameters and body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from tools.reference.api import CALL_OPTIONS
from tools.reference.internals import all_routes
from tools.reference.markdown import code, prose, table

HEAD = """# Routes

Every route of the HTTP API.
[HTTP API](../http.md) explains keys, paging, events and errors with examples; a server describes itself at `/api/openapi.json`.

The role is the least one that may call the route: `viewer`, `operator`, `admin` or `super_admin`.
"All tenants" marks routes that refuse keys of a single tenant.
Every route that needs a role also takes the query parameter `tenant`, which restricts a key of all tenants to one.
[Error codes](errors.md) lists what a problem document may contain.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    routes = all_routes()
    for tag in dict.fromkeys(route.tag for route in routes):
        parts.append(f"## {tag.capitalize()}\n")
        for route in routes:
            if route.tag == tag:
                parts += _route(route)
    return "\n".join(parts)


def _route(route: Any) -> Iterator[str]:
    yield f"### {route.method} {route.shown_path}\n"
    yield prose(route.words) + "\n"
    role = code(route.role.value) if route.role else "none, the route is public"
    facts = [f"Role: {role}{', all tenants' if route.everywhere else ''}."]
    facts.append(
        "Response: server-sent events." if route.stream else f"Response: {route.status}{_answer(route)}."
    )
    yield "\n".join(facts) + "\n"
    query = [row for row in fields(route.query) if row[0] != "`tenant`"]
    if query:
        yield "Query parameters:\n"
        yield table(("name", "type", "default", "meaning"), query) + "\n"
    if route.body is not None:
        yield f"Body{' (optional)' if route.body_optional else ''}:\n"
        texts = CALL_OPTIONS if route.creates else {}
        yield table(("name", "type", "default", "meaning"), fields(route.body, texts)) + "\n"


def _answer(route: Any) -> str:
    if route.media != "application/json":
        return f", `{route.media}`"
    return " without content" if route.answer is None else ""


def fields(model: type[BaseModel], texts: Mapping[str, str] | None = None) -> list[tuple[str, str, str, str]]:
    """The fields of a model: name, type, default and description."""
    schema = model.model_json_schema()
    known = texts or {}
    required = schema.get("required", ())
    return [
        (
            code(name),
            _type(part, schema),
            _default(name, part, required),
            part.get("description") or known.get(name, ""),
        )
        for name, part in schema.get("properties", {}).items()
    ]


def _default(name: str, part: dict[str, Any], required: Any) -> str:
    if name in required:
        return "required"
    value = part.get("default")
    return (
        "–"
        if value in (None, [], {})
        else code(str(value).lower() if isinstance(value, bool) else str(value))
    )


def _type(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """A short name for a JSON schema."""
    if "$ref" in part:
        return _type(schema["$defs"][part["$ref"].rpartition("/")[2]], schema)
    if "enum" in part:
        return " or ".join(code(str(value)) for value in part["enum"])
    if "const" in part:
        return code(str(part["const"]))
    if "anyOf" in part:
        kinds = [_type(choice, schema) for choice in part["anyOf"]]
        return " or ".join(dict.fromkeys(kinds))
    kind = part.get("type", "any value")
    if kind == "array":
        return f"list of {_type(part.get('items', {}), schema)}"
    names = {"date-time": "instant", "uuid": "id"}
    return names.get(part.get("format", ""), str(kind))
