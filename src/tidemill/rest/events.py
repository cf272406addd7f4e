"""Server-sent events: one job until it ends, or all kinds of changes.

Independent of the number of open streams, one thread reads all followed jobs from the store, and one thread receives
the store's wake-ups.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.client.core import client_of
from tidemill.domain.access import Role
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument
from tidemill.rest.models import Document
from tidemill.rest.problems import Problem
from tidemill.rest.routes import Routes
from tidemill.rest.streams import EventStream, LatestKinds, LatestValue, StreamEvent

routes = Routes("events")

# Distinguishes the event ids of this process from those of others.
_HERE = secrets.token_hex(4)
_numbers = itertools.count(1)


class ChangeDocument(Document):
    """The kinds of resources that changed; reload those you show."""

    kinds: list[str] = Field(examples=[["jobs", "schedules"]])


@routes.get("/api/jobs/{id}/events", role=Role.VIEWER, answer=JobDocument, stream=True)
async def follow_job(call: ApiRequest) -> Response:
    """Stream a job's changes until it ends.

    Events are named `job`, the last one `end` (or `gone` if the job was deleted). Each has an id. With `Last-Event-ID`, only
    newer events are sent; 204 means that no more will follow.
    """
    facts = await call.facts()
    last = call.request.headers.get("last-event-id")
    if facts.state in ENDED and last == version(facts):
        return call.empty()
    slot = LatestValue()
    seen = last

    async def subscribe() -> Callable[[], None]:
        if facts.archived_at is not None:
            slot.put(facts)
            return lambda: None
        return await call.read(client_of(call.app).waiting(None).watch, facts.id, slot.put)

    def made(job: JobRow | None) -> StreamEvent | None:
        nonlocal seen
        if job is None or job.tenant != facts.tenant:
            return StreamEvent("gone", "gone", {"id": str(facts.id)}, last=True)
        now = version(job)
        if now == seen:
            return None
        seen = now
        ended = job.state in ENDED
        return StreamEvent(now, "end" if ended else "job", shown(call, job), last=ended)

    return EventStream(call, slot, subscribe, made, lambda: _still(call))


@routes.get("/api/events", role=Role.VIEWER, answer=ChangeDocument, stream=True)
async def follow_changes(call: ApiRequest) -> Response:
    """Stream the kinds of resources that changed, at most twice a second, as events named `change`.

    Events contain no data and are the same for every tenant. A client that reconnects with `Last-Event-ID` receives an event
    immediately, because it may have missed changes.
    """
    slot = LatestKinds()
    if call.request.headers.get("last-event-id"):
        slot.put(frozenset({"jobs", "queues", "schedules", "settings", "tasks", "workers"}))

    async def subscribe() -> Callable[[], None]:
        return call.service.changes.subscribe(slot.put)

    def made(kinds: frozenset[str]) -> StreamEvent:
        return StreamEvent(f"{_HERE}-{next(_numbers)}", "change", {"kinds": sorted(kinds)})

    return EventStream(call, slot, subscribe, made, lambda: _still(call))


def version(job: JobRow) -> str:
    """Return a fingerprint of a job's visible state, which is the same in every process."""
    said: tuple[Any, ...] = (
        job.state, job.token, job.attempt, job.run_at, job.started_at, job.finished_at, job.reason, job.cancel_reason,
        job.progress,
    )  # fmt: skip
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


async def _still(call: ApiRequest) -> bool:
    """Whether the subscriber is still authorised; the key may have been revoked or expired."""
    try:
        return await call.service.guard.admit(call.route, call.request) == call.identity
    except Problem:
        return False
