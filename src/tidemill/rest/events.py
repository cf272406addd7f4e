"""Server-sent events: one job until it ends, or all kinds of changes.

Independent of the number of open streams, one thread reads all followed jobs from the store, and one thread receives
the store's wake-ups.
"""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument
from tidemill.rest.models import Document, Instant, Items, QueryModel
from tidemill.rest.routes import Routes
from tidemill.tasks.events import Event
from tidemill.web.change_stream import change_stream
from tidemill.web.problems import Problem
from tidemill.web.streams import EventStream, LatestValue, StreamEvent

routes = Routes("events")

MOST_UNSENT = 1_000
"""Events that one stream keeps for a slow reader."""


class ChangeDocument(Document):
    """The kinds of resources that changed; reload those you show."""

    kinds: list[str] = Field(examples=[["jobs", "schedules"]])


class GoneDocument(Document):
    """A job that was deleted."""

    id: UUID


@routes.get(
    "/api/jobs/{id}/events",
    role=Role.VIEWER,
    answer=JobDocument,
    stream=True,
    events=(GoneDocument,),
    also={204: "The job has ended, and no more events will follow."},
)
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

    return EventStream(request, slot, subscribe, made, lambda: is_authorised(request))


@routes.get("/api/events", role=Role.VIEWER, answer=ChangeDocument, stream=True)
async def follow_changes(request: ApiRequest) -> Response:
    """Stream the kinds of resources that changed, at most twice a second, as events named `change`.

    Events contain no data and are the same for every tenant. A client that reconnects with `Last-Event-ID` receives an event
    immediately, because it may have missed changes.
    """
    return change_stream(request, lambda: is_authorised(request))


class HappenedQuery(QueryModel):
    """Filter of events."""

    on: str = Field(
        "job.*", max_length=100, description="A pattern of event names, like a file name pattern."
    )


class HappenedDocument(Document):
    """One event of a job or an alert."""

    name: str = Field(examples=["job.finished"])
    at: Instant
    job_id: UUID | None
    task: str | None
    tenant: str | None
    status: str | None
    data: dict[str, Any]


class HappenedEvents(LatestValue):
    """Events that a stream has not sent yet; a reader that is too slow misses the oldest."""

    def merged(self, before: Any, after: Any) -> Any:
        return [*before, *after][-MOST_UNSENT:]


@routes.get(
    "/api/events/jobs", role=Role.VIEWER, query=HappenedQuery, answer=Items[HappenedDocument], stream=True
)
async def follow_events(request: ApiRequest) -> Response:
    """Stream the events of jobs and alerts of all processes, from now on, as events named `events`.

    Each contains the events since the previous one. A tenant receives the events of its own jobs.
    """
    slot, pattern, tenant = HappenedEvents(), request.query.on, request.tenant

    def put(event: Event) -> None:
        if tenant in (ALL_TENANTS, event.tenant) and fnmatch.fnmatchcase(event.name, pattern):
            slot.put([event])

    async def subscribe() -> Callable[[], None]:
        close = await request.read(request.app.subscriptions.watch, put)
        # Ending the last watcher waits for its thread, which must not block the event loop.
        return lambda: threading.Thread(target=close, name="tidemill-end-watch", daemon=True).start()

    def made(events: list[Event]) -> StreamEvent:
        documents = [_happened(request, event) for event in events]
        return StreamEvent(str(events[-1].seq), "events", {"items": documents, "next": None})

    return EventStream(request, slot, subscribe, made, lambda: is_authorised(request))


def _happened(request: ApiRequest, event: Event) -> dict[str, Any]:
    return {
        "name": event.name,
        "at": event.at.isoformat(),
        "job_id": None if event.job_id is None else str(event.job_id),
        "task": event.task,
        "tenant": event.tenant,
        "status": event.state,
        "data": request.payload(dict(event.data)),
    }


def version(job: JobRow) -> str:
    """Return a fingerprint of a job's visible state, which is the same in every process."""
    visible: tuple[Any, ...] = (
        job.state, job.token, job.attempt, job.run_at, job.started_at, job.finished_at, job.reason, job.cancel_reason,
        job.progress,
    )  # fmt: skip
    return hashlib.sha256(repr(visible).encode()).hexdigest()[:16]


async def is_authorised(request: ApiRequest) -> bool:
    """Whether the subscriber is still authorised; the key may have been revoked or expired."""
    try:
        return await request.service.guard.admit(request.operation, request.http) == request.identity
    except Problem:
        return False
