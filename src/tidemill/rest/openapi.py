"""OpenAPI 3.1 document, generated from the declared routes and models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tidemill.rest.models import ProblemDocument
from tidemill.rest.routes import ApiOperation

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


def openapi(operations: Sequence[ApiOperation], prefix: str) -> dict[str, Any]:
    """Build the document."""
    names, schemas = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(prefix + operation.shown_path, {})[operation.method.lower()] = _operation(
            operation, names, schemas
        )
    queries = {names[operation.query] for operation in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": "1",
            "description": "Create, follow and manage background jobs.",
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in sorted(schemas.items()) if name not in queries},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key: `tm_<id>.<secret>`."}
            },
        },
    }


def _schemas(operations: Iterable[ApiOperation]) -> tuple[dict[Any, str], dict[str, Any]]:
    """Return the name of each model, and the schemas by name."""
    models: dict[Any, None] = {ProblemDocument: None}
    for operation in operations:
        models |= dict.fromkeys(
            model
            for model in (operation.query, operation.body, operation.answer, *operation.events)
            if _is_model(model)
        )
    references, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF, title="Tidemill"
    )
    names = {model: reference["$ref"].rpartition("/")[2] for (model, _), reference in references.items()}
    return names, definitions.get("$defs", {})


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _operation(operation: ApiOperation, names: dict[Any, str], schemas: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.words}\n\n{_who(operation)}",
        "parameters": [*_path(operation), *_query(schemas[names[operation.query]])],
        "responses": _responses(operation, names),
    }
    if operation.creates:
        document["parameters"] += _HEADERS
    if operation.role is None:
        document["security"] = []
    if operation.body is not None:
        schema = {"$ref": _REF.format(model=names[operation.body])}
        document["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    return document


def _who(operation: ApiOperation) -> str:
    if operation.role is None:
        return "Public."
    keys = " with a key of all tenants" if operation.everywhere else ""
    return f"Required role: `{operation.role.value}`{keys}."


def _path(operation: ApiOperation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "example": "01890a5d-ac96-774b-bcce-b302099a8057" if name == "id" else "nightly",
        }
        for name in _NAMED.findall(operation.shown_path)
    ]


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    needed = set(schema.get("required", ()))
    parameters = []
    for name, field in schema.get("properties", {}).items():
        field_schema = {key: value for key, value in field.items() if key != "title"}
        description = field_schema.pop("description", None)
        parameter = {"name": name, "in": "query", "required": name in needed, "schema": field_schema}
        parameters.append(parameter if description is None else {**parameter, "description": description})
    return parameters


def _responses(operation: ApiOperation, names: dict[Any, str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        schema: dict[str, Any] = {"type": "string"}
        if operation.answer in names:
            schema = {"$ref": _REF.format(model=names[operation.answer])}
        elif operation.answer is Any:
            schema = {}  # any JSON
        if operation.stream:
            content = {"content": {"text/event-stream": {"schema": _event(schema, operation, names)}}}
        else:
            content = {"content": {operation.media: {"schema": schema}}}
    responses = {
        str(operation.status): {"description": "Done." if operation.mutates else "Found.", **content}
    }
    if operation.creates:
        responses["200"] = {"description": "The job already exists.", **content}
        responses["202"] = {"description": "The same as 201, for `Prefer: respond-async`.", **content}
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(model=names[ProblemDocument])}}}
    for status in _problems(operation):
        responses[str(status)] = {"description": _WORDS[status], "content": problem}
    for status, words in operation.also.items():
        given = {"content": problem} if status >= 400 else content if status != 204 else {}
        responses[str(status)] = {"description": words, **given}
    return dict(sorted(responses.items()))


def _event(schema: dict[str, Any], operation: ApiOperation, names: dict[Any, str]) -> dict[str, Any]:
    """The schema of one event of a stream, which OpenAPI 3.1 describes as the schema of the response."""
    further = [{"$ref": _REF.format(model=names[model])} for model in operation.events]
    return {
        "type": "object",
        "description": "One event. The stream does not end before the job, if it follows one.",
        "properties": {
            "id": {"type": "string"},
            "event": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": [schema, *further]} if further else schema,
            },
        },
    }


_NAMED_IN_QUERY = frozenset({"/api/limits", "/api/access/explain"})
"""Routes whose query names an object that may not exist."""


def _problems(operation: ApiOperation) -> list[int]:
    statuses = [414, 422, 431, 503]
    if operation.role is not None:
        statuses += [401, 403, 429]
    if "{" in operation.path or operation.body is not None or operation.path in _NAMED_IN_QUERY:
        statuses.append(404)
    if operation.mutates:
        statuses.append(409)
    if operation.body is not None:
        statuses += [413, 415]
    return sorted(statuses)
