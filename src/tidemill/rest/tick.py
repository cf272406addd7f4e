"""Processing of due jobs within one request, for hosts that run on a timer."""

from __future__ import annotations

import threading

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document
from tidemill.rest.routes import Routes
from tidemill.web.problems import Problem

routes = Routes("workers")

_one = threading.Lock()


class TickBody(BodyModel):
    """Limits of one tick."""

    budget: float = Field(25.0, gt=0, le=300, description="Maximum duration in seconds.")


class TickDocument(Document):
    """Result of one tick."""

    processed: int
    errors: int


@routes.post(
    "/api/worker/tick",
    role=Role.ADMIN,
    body=TickBody,
    body_optional=True,
    answer=TickDocument,
    everywhere=True,
)
async def tick_worker(request: ApiRequest) -> Response:
    """Process due jobs in this request for at most `budget` seconds; one tick at a time per process."""
    return await _tick(request)


@routes.post(
    "/api/jobs/trigger",
    role=Role.ADMIN,
    body=TickBody,
    body_optional=True,
    answer=TickDocument,
    everywhere=True,
)
async def trigger_jobs(request: ApiRequest) -> Response:
    """The same as `POST /api/worker/tick`."""
    return await _tick(request)


async def _tick(request: ApiRequest) -> Response:
    if not _one.acquire(blocking=False):
        raise Problem(409, "tick_under_way", "a tick is already running in this process; wait for it to end")
    try:
        done = await request.act(request.app.tick, request.body.budget)
    finally:
        _one.release()
    return request.reply({"processed": done.processed, "errors": done.errors})
