"""Liveness and readiness checks.

They are public, so they reveal nothing else.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from starlette.responses import Response

from tidemill.errors import TidemillError
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import Document
from tidemill.rest.routes import Routes

routes = Routes("health")

FRESH = 1.0
"""Seconds for which one check of the store answers all requests."""


class LiveDocument(Document):
    """Liveness of the process."""

    status: Literal["ok"]


class StoreDocument(Document):
    """Whether the store responds and has the required schema; ``code`` is the error code otherwise."""

    status: Literal["ok", "unavailable"]
    code: str | None


class ReadyDocument(Document):
    """Whether requests can be served."""

    status: Literal["ok", "unavailable"]
    store: StoreDocument


class HealthDocument(Document):
    """Liveness and readiness."""

    status: Literal["ok", "unavailable"]
    live: LiveDocument
    ready: ReadyDocument


@routes.get("/livez", role=None, answer=LiveDocument)
async def live(request: ApiRequest) -> Response:
    """Check that the process responds, without using the store."""
    return request.reply({"status": "ok"})


@routes.get("/readyz", role=None, answer=ReadyDocument)
async def ready(request: ApiRequest) -> Response:
    """Check that the store responds and has the right schema; 503 otherwise."""
    readiness = await _ready(request)
    return request.reply(readiness, 200 if readiness["status"] == "ok" else 503)


@routes.get("/healthz", role=None, answer=HealthDocument)
async def health(request: ApiRequest) -> Response:
    """Liveness and readiness in one document; 503 if not ready."""
    readiness = await _ready(request)
    document = {"status": readiness["status"], "live": {"status": "ok"}, "ready": readiness}
    return request.reply(document, 200 if readiness["status"] == "ok" else 503)


async def _ready(request: ApiRequest) -> dict[str, Any]:
    if request.service.stopping.is_set:
        return _document("stopping")
    checked = request.service.checked
    if checked is not None and time.monotonic() - checked[0] < FRESH:
        return _document(checked[1])
    code = None
    try:
        await request.read(request.inspection.check)
    except TidemillError as error:
        code = error.code
    request.service.checked = (time.monotonic(), code)
    return _document(code)


def _document(code: str | None) -> dict[str, Any]:
    status = "ok" if code is None else "unavailable"
    return {"status": status, "store": {"status": status, "code": code}}
