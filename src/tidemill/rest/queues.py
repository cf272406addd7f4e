"""Queues: backlog, pause and resume."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import instant, pause_document
from tidemill.client.stats.loads import QueueStats
from tidemill.domain.access import Role
from tidemill.domain.bounds import check_queue
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import PauseKind
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import ReasonBody
from tidemill.rest.models import Document, Instant, Items
from tidemill.rest.routes import Routes
from tidemill.rest.tasks import PauseDocument

routes = Routes("queues")


class QueueDocument(Document):
    """A queue with its pending jobs, its oldest job, and whether it is paused."""

    name: str = Field(examples=["mail"])
    pending: int
    oldest_at: Instant | None
    paused: PauseDocument | None


class QueuePauseDocument(Document):
    """Whether a queue is paused."""

    name: str
    paused: PauseDocument | None


@routes.get("/api/queues", role=Role.VIEWER, answer=Items[QueueDocument])
async def list_queues(request: ApiRequest) -> Response:
    """List queues with pending jobs, paused queues and queues of tasks; at most 50, ordered by name."""
    own = {request.app.registry.get(name).options.queue for name in request.app.registry.names()}
    queues = await request.read(request.inspection.queue_stats, tenant=request.tenant, also=own)
    shown = [queue for queue in queues if request.tenant == ALL_TENANTS or queue.pending or queue.name in own]
    shown = [queue for queue in shown if request.permits("queues.read", queue=queue.name)]
    return request.page([_document(request, queue) for queue in shown])


@routes.post(
    "/api/queues/{name}/pause",
    role=Role.OPERATOR,
    body=ReasonBody,
    body_optional=True,
    answer=QueuePauseDocument,
    everywhere=True,
)
async def pause_queue(request: ApiRequest) -> Response:
    """Pause a queue: no more of its jobs start; running jobs continue."""
    name = request.path["name"]
    check_queue(name)
    await request.act(request.app.control.pause, PauseKind.QUEUE, name, reason=request.body.reason)
    return request.reply(await _state(request, name))


@routes.post("/api/queues/{name}/resume", role=Role.OPERATOR, answer=QueuePauseDocument, everywhere=True)
async def resume_queue(request: ApiRequest) -> Response:
    """Resume a queue."""
    name = request.path["name"]
    await request.act(request.app.control.resume, PauseKind.QUEUE, name)
    return request.reply(await _state(request, name))


async def _state(request: ApiRequest, name: str) -> dict[str, Any]:
    pauses = await request.read(request.app.control.pauses)
    paused = next((pause for pause in pauses if pause.kind is PauseKind.QUEUE and pause.name == name), None)
    return {"name": name, "paused": None if paused is None else pause_document(paused)}


def _document(request: ApiRequest, queue: QueueStats) -> dict[str, Any]:
    paused = None if queue.pause is None else pause_document(queue.pause)
    if paused is not None and request.identity.tenant != ALL_TENANTS:
        paused = {**paused, "reason": None, "paused_by": None}
    return {
        "name": queue.name,
        "pending": queue.pending,
        "oldest_at": instant(queue.oldest_at),
        "paused": paused,
    }
