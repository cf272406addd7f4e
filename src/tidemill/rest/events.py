"""Server-sent events: one job until it ends, or all kinds of changes.

Independent of the number of open streams, one thread reads all followed jobs from the store, and one thread receives
the store's wake-ups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument
from tidemill.rest.models import Document
from tidemill.rest.routes import Routes
from tidemill.web.change_stream import change_stream
from tidemill.web.problems import Problem
from tidemill.web.streams import EventStream, LatestValue, StreamEvent

routes = Routes("events")


class ChangeDocument(Document):
    """The kinds of resources that changed; reload those you show."""

    kinds: list[str] = Field(examples=[["jobs", "schedules"]])


@routes.get("/api/jobs/{id}/events", role=Role.VIEWER, answer=JobDocument, stream=True)
async def follow_job(request: ApiRequest) -> Response:
    """Stream a job's changes until it ends.

    Events are named `job`, the last one `end` (or `gone` if the job was deleted). Each has an id. With `Last-Event-ID`, only
    newer events are sent; 204 means that no more will follow.
    """
    first = await request.job_row()
    last = request.headers.get("last-event-id")
    if first.state in ENDED and last == version(first):
        return request.empty()
    slot = LatestValue()
    seen = last

    async def subscribe() -> Callable[[], None]:
        if first.archived_at is not None:
            slot.put(first)
            return lambda: None
        return await request.read(request.inspection.watch, first.id, slot.put)

    def made(job: JobRow | None) -> StreamEvent | None:
        nonlocal seen
        if job is None or job.tenant != first.tenant:
            return StreamEvent("gone", "gone", {"id": str(first.id)}, last=True)
        now = version(job)
        if now == seen:
            return None
        seen = now
        ended = job.state in ENDED
        return StreamEvent(now, "end" if ended else "job", shown(request, job), last=ended)

    return EventStream(request, slot, subscribe, made, lambda: _is_authorised(request))


@routes.get("/api/events", role=Role.VIEWER, answer=ChangeDocument, stream=True)
async def follow_changes(request: ApiRequest) -> Response:
    """Stream the kinds of resources that changed, at most twice a second, as events named `change`.

    Events contain no data and are the same for every tenant. A client that reconnects with `Last-Event-ID` receives an event
    immediately, because it may have missed changes.
    """
    return change_stream(request, lambda: _is_authorised(request))


def version(job: JobRow) -> str:
    """Return a fingerprint of a job's visible state, which is the same in every process."""
    visible: tuple[Any, ...] = (
        job.state, job.token, job.attempt, job.run_at, job.started_at, job.finished_at, job.reason, job.cancel_reason,
        job.progress,
    )  # fmt: skip
    return hashlib.sha256(repr(visible).encode()).hexdigest()[:16]


async def _is_authorised(request: ApiRequest) -> bool:
    """Whether the subscriber is still authorised; the key may have been revoked or expired."""
    try:
        return await request.service.guard.admit(request.operation, request.http) == request.identity
    except Problem:
        return False
