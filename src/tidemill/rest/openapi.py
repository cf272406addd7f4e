"""OpenAPI 3.1 document, generated from the declared routes and models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tidemill.rest.models import ProblemDocument
from tidemill.rest.routes import Operation

_REF = "#/components/schemas/{model}"
_NAMED = re.compile(r"\{(\w+)\}")

_WORDS = {
    400: "The request cannot be read.",
    401: "Missing, unknown, expired or revoked API key.",
    403: "The key lacks the required permission.",
    404: "Not found in this tenant.",
    409: "The current status does not allow the action, or a concurrent change was made.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is not JSON.",
    422: "The request is invalid.",
    429: "Too many requests; see Retry-After.",
    431: "The headers are too large.",
    503: "The store is temporarily unavailable.",
}

_HEADERS = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": "Requests of one tenant with the same key return the same job.",
        "example": "order-4711",
    },
    {
        "name": "Prefer",
        "in": "header",
        "schema": {"type": "string"},
        "description": "`respond-async` changes the status from 201 to 202.",
    },
    {
        "name": "x-correlation-id",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:/+=@-]{1,64}$"},
        "description": "Used as the job's correlation id unless the body specifies one, and returned in every response. "
        "This route refuses an invalid value; other routes ignore it and generate an id.",
    },
    {
        "name": "traceparent",
        "in": "header",
        "schema": {"type": "string"},
        "description": "W3C trace context. The job keeps it and `tracestate` in its headers, and shows its trace id.",
        "example": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    },
]


def openapi(acts: Sequence[Operation], prefix: str) -> dict[str, Any]:
    """Build the document."""
    names, schemas = _schemas(acts)
    paths: dict[str, dict[str, Any]] = {}
    for act in acts:
        paths.setdefault(prefix + act.path, {})[act.method.lower()] = _operation(act, names, schemas)
    queries = {names[act.query] for act in acts}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": "1",
            "description": "Create, follow and manage background jobs.",
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(act.tag for act in acts)],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in sorted(schemas.items()) if name not in queries},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key: `tm_<id>.<secret>`."}
            },
        },
    }


def _schemas(acts: Iterable[Operation]) -> tuple[dict[Any, str], dict[str, Any]]:
    """Return the name of each model, and the schemas by name."""
    models: dict[Any, None] = {ProblemDocument: None}
    for act in acts:
        models |= dict.fromkeys(model for model in (act.query, act.body, act.answer) if _is_model(model))
    found, defs = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF, title="Tidemill"
    )
    names = {model: reference["$ref"].rpartition("/")[2] for (model, _), reference in found.items()}
    return names, defs.get("$defs", {})


def _is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _operation(act: Operation, names: dict[Any, str], schemas: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": act.name,
        "tags": [act.tag],
        "summary": act.summary,
        "description": f"{act.words}\n\n{_who(act)}",
        "parameters": [*_path(act), *_query(schemas[names[act.query]])],
        "responses": _responses(act, names),
    }
    if act.creates:
        made["parameters"] += _HEADERS
    if act.role is None:
        made["security"] = []
    if act.body is not None:
        schema = {"$ref": _REF.format(model=names[act.body])}
        made["requestBody"] = {
            "required": not act.body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    return made


def _who(act: Operation) -> str:
    if act.role is None:
        return "Public."
    keys = " with a key of all tenants" if act.everywhere else ""
    return f"Required role: `{act.role.value}`{keys}."


def _path(act: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "example": "01890a5d-ac96-774b-bcce-b302099a8057" if name == "id" else "nightly",
        }
        for name in _NAMED.findall(act.path)
    ]


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    needed = set(schema.get("required", ()))
    found = []
    for name, told in schema.get("properties", {}).items():
        facts = {key: value for key, value in told.items() if key != "title"}
        words = facts.pop("description", None)
        parameter = {"name": name, "in": "query", "required": name in needed, "schema": facts}
        found.append(parameter if words is None else {**parameter, "description": words})
    return found


def _responses(act: Operation, names: dict[Any, str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if act.answer is not None:
        schema: dict[str, Any] = (
            {"$ref": _REF.format(model=names[act.answer])} if act.answer in names else {"type": "string"}
        )
        content = {"content": {"text/event-stream" if act.stream else act.media: {"schema": schema}}}
    found = {str(act.status): {"description": "Done." if act.mutates else "Found.", **content}}
    if act.creates:
        found["200"] = {"description": "The job already exists.", **content}
        found["202"] = {"description": "The same as 201, for `Prefer: respond-async`.", **content}
    for status in _problems(act):
        found[str(status)] = {
            "description": _WORDS[status],
            "content": {
                "application/problem+json": {"schema": {"$ref": _REF.format(model=names[ProblemDocument])}}
            },
        }
    return found


def _problems(act: Operation) -> list[int]:
    found = [414, 422, 431, 503]
    if act.role is not None:
        found += [401, 403, 429]
    if "{" in act.path or act.body is not None:
        found.append(404)
    if act.mutates:
        found.append(409)
    if act.body is not None:
        found += [413, 415]
    return sorted(found)
