"""JSON responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response


def encode(document: Any) -> bytes:
    """Encode a document as JSON. Lone surrogates, which UTF-8 cannot represent, are escaped."""
    try:
        return to_json(document)
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(document, separators=(",", ":"), default=str).encode()


class JsonResponse(Response):
    """An encoded document.

    It writes its headers itself, because they are known to be ASCII in lower case. Starlette's constructor takes five
    calls for them.
    """

    media_type = "application/json"

    def __init__(self, content: bytes, status: int, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.body, self.background = status, content, None
        self.raw_headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", b"application/json"),
        ]
        if headers:
            for name, value in headers.items():
                self.raw_headers.append((name.encode("latin-1"), value.encode("latin-1")))
