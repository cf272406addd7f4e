"""Static files, read once, with versioned addresses."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

FOLDER = Path(__file__).parent / "static"
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class File(NamedTuple):
    """The content of one file, and how to send it."""

    content: bytes
    kind: str
    version: str


@lru_cache(maxsize=1)
def files() -> dict[str, File]:
    """Return the servable files by name. No other file in the folder or above it can be requested."""
    return {
        path.name: File(
            path.read_bytes(), KINDS[path.suffix], hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        )
        for path in sorted(FOLDER.iterdir())
        if path.suffix in KINDS
    }


class Files:
    """ASGI application that serves the static files. Browsers may cache a versioned address permanently."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        file = files().get(request.path_params["name"])
        if file is None or request.method not in ("GET", "HEAD"):
            await Response("there is no such file", 404, media_type="text/plain")(scope, receive, send)
            return
        kept = request.query_params.get("v") == file.version
        headers = {
            "cache-control": "public, max-age=31536000, immutable" if kept else "no-cache",
            "etag": f'"{file.version}"',
        }
        if request.headers.get("if-none-match") == headers["etag"]:
            await Response(None, 304, headers)(scope, receive, send)
            return
        await Response(file.content, 200, headers, file.kind)(scope, receive, send)
