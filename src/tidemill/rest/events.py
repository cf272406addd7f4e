"""Following what happens, as server-sent events: one job to its end, or that anything has moved.

However many streams are open, one thread asks the store for all jobs that are followed, and one thread hears its wake-ups.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.job import Job
from tidemill.domain.states import ENDED
from tidemill.rest.call import Call
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument
from tidemill.rest.models import Document
from tidemill.rest.problems import Problem
from tidemill.rest.routes import Routes
from tidemill.rest.streams import Event, EventStream, Kinds, Slot

routes = Routes("events")

_HERE = secrets.token_hex(4)  # tells the numbers of this process from those of others
_numbers = itertools.count(1)


class ChangeDocument(Document):
    """The kinds of things that moved; look again at what you show of them."""

    kinds: list[str] = Field(examples=[["jobs", "schedules"]])


@routes.get("/api/jobs/{id}/events", role=Role.VIEWER, answer=JobDocument, stream=True)
async def follow_job(call: Call) -> Response:
    """The job each time it has moved, until it has ended.

    Events are named `job`, the last one `end` (or `gone` if it was deleted). Each has an id: with `Last-Event-ID` only what is
    new is told, and 204 means that there is nothing more to come.
    """
    facts = await call.facts()
    last = call.request.headers.get("last-event-id")
    if facts.state in ENDED and last == version(facts):
        return call.empty()
    slot = Slot()
    seen = last

    async def subscribe() -> Callable[[], None]:
        return await call.read(call.app._client.waiting(None).watch, facts.id, slot.put)

    def made(job: Job | None) -> Event | None:
        nonlocal seen
        if job is None or job.tenant != facts.tenant:
            return Event("gone", "gone", {"id": str(facts.id)}, last=True)
        now = version(job)
        if now == seen:
            return None
        seen = now
        ended = job.state in ENDED
        return Event(now, "end" if ended else "job", shown(call, job), last=ended)

    return EventStream(call, slot, subscribe, made, lambda: _still(call))


@routes.get("/api/events", role=Role.VIEWER, answer=ChangeDocument, stream=True)
async def follow_changes(call: Call) -> Response:
    """That something has moved: the kinds of things, at most twice a second, as events named `change`.

    It is a hint without contents, the same for every tenant. Who comes back with `Last-Event-ID` is told at once that something
    may have been missed.
    """
    slot = Kinds()
    if call.request.headers.get("last-event-id"):
        slot.put(frozenset({"jobs", "queues", "schedules", "settings", "tasks", "workers"}))

    async def subscribe() -> Callable[[], None]:
        return call.service.changes.subscribe(slot.put)

    def made(kinds: frozenset[str]) -> Event:
        return Event(f"{_HERE}-{next(_numbers)}", "change", {"kinds": sorted(kinds)})

    return EventStream(call, slot, subscribe, made, lambda: _still(call))


def version(job: Job) -> str:
    """What tells one look at a job from another, the same in every process."""
    said: tuple[Any, ...] = (
        job.state, job.token, job.attempt, job.run_at, job.started_at, job.finished_at, job.reason, job.cancel_reason,
        job.progress,
    )  # fmt: skip
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


async def _still(call: Call) -> bool:
    """Whether who listens may still do so: his key may have ended meanwhile."""
    try:
        return await call.service.guard.admit(call.route, call.request) == call.identity
    except Problem:
        return False
