"""OpenAPI document of the API, and a self-contained HTML page of it."""

from __future__ import annotations

import html
import json
from typing import Any

from starlette.responses import HTMLResponse, Response

from tidemill.rest.api_request import ApiRequest
from tidemill.rest.routes import Routes

routes = Routes("about")

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b2733;background:#fff}
h1{font-size:1.6rem}h2{margin-top:2.5rem;text-transform:capitalize;border-bottom:1px solid #cfd8e0}
details{margin:.4rem 0;border:1px solid #dde4ea;border-radius:.4rem;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:14px/1.45 ui-monospace,monospace}pre{overflow:auto;background:#f4f7f9;padding:.6rem}
b{display:inline-block;min-width:4.2rem;color:#0b5c8a}table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#dbe4ec;background:#12181e}details{border-color:#2c3945}
pre{background:#1b242d}b{color:#6fc0ee}h2{border-color:#2c3945}a{color:#6fc0ee}}
"""


@routes.get("/api/openapi.json", role=None, answer=Any)
async def get_openapi(request: ApiRequest) -> Response:
    """This API as an OpenAPI 3.1 document."""
    document = request.service.openapi
    base = request.http.scope.get("root_path", "")
    return request.reply({**document, "servers": [{"url": base}]} if base else document)


@routes.get("/api/docs", role=None, answer=str, media="text/html")
async def get_docs(request: ApiRequest) -> Response:
    """Documentation of this API as an HTML page."""
    return HTMLResponse(page(request.service.openapi))


def page(document: dict[str, Any]) -> str:
    """Render every route with its inputs and outputs. The page loads no other resources and runs no scripts."""
    parts = []
    for tag in document["tags"]:
        parts.append(f"<h2>{html.escape(tag['name'])}</h2>")
        for path, verbs in document["paths"].items():
            parts += [
                _operation(verb, path, operation, document)
                for verb, operation in verbs.items()
                if tag["name"] in operation["tags"]
            ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tidemill API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        "<h1>Tidemill API</h1><p>Send the API key as <code>Authorization: Bearer</code>; errors are problem documents. "
        'For programs: <a href="openapi.json">openapi.json</a>.</p>' + "".join(parts) + "</body></html>"
    )


def _operation(verb: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    words = "".join(f"<p>{html.escape(part)}</p>" for part in operation["description"].split("\n\n"))
    rows = "".join(
        f"<tr><td><code>{html.escape(parameter['name'])}</code></td><td>{html.escape(parameter['in'])}</td>"
        f"<td>{html.escape(parameter.get('description', ''))}</td></tr>"
        for parameter in operation["parameters"]
    )
    shapes = ""
    for title, content in (
        ("Body", operation.get("requestBody", {}).get("content", {})),
        ("Answer", next(iter(operation["responses"].values())).get("content", {})),
    ):
        for media in content.values():
            text = json.dumps(_resolved(media["schema"], document), indent=2, ensure_ascii=False)
            shapes += f"<p>{title}</p><pre>{html.escape(text)}</pre>"
    return (
        f"<details><summary><b>{verb.upper()}</b> <code>{html.escape(path)}</code> "
        f"{html.escape(operation['summary'])}</summary>{words}<table>{rows}</table>{shapes}</details>"
    )


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    resolved: dict[str, Any] = document["components"]["schemas"].get(name, schema)
    return resolved
