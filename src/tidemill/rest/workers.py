"""Workers and leases: list workers and leases, drain a worker, release a lease."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import lease_document, worker_document
from tidemill.client.stats.loads import is_living
from tidemill.domain.access import Role
from tidemill.domain.cluster import Worker
from tidemill.errors import WorkerNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import MOST, Document, Instant, Items, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("workers")


class WorkersQuery(QueryModel):
    """Filter of workers."""

    all: bool = False


class WorkerDocument(Document):
    """One worker process."""

    id: UUID
    name: str | None
    host: str | None
    pid: int | None
    node: str | None
    version: str | None
    queues: list[str]
    tasks: list[str]
    concurrency: int
    state: str
    liveness: str
    held: int
    started_at: Instant | None
    beat_at: Instant | None
    expires_at: Instant | None
    beats: int


class LeaseDocument(Document):
    """One lease with its holder and duties."""

    name: str
    holder: UUID | None
    holder_name: str | None = Field(description="Host and process id of the process that holds it.")
    holder_workers: list[UUID] = Field(description="The workers of that process.")
    term: int
    held: bool
    health: str = Field(
        description="`ok`, `late`, `expired`, `free`, or `unused` in other coordination modes."
    )
    coordination: str = Field(
        description="How the workers share the duties; unless `lease`, there is no holder."
    )
    acquired_at: Instant | None
    beat_at: Instant | None
    expires_at: Instant | None
    duties: dict[str, Any]


class ReleaseDocument(Document):
    """Whether a lease had a holder that lost it."""

    name: str
    released: bool


@routes.get(
    "/api/workers", role=Role.VIEWER, query=WorkersQuery, answer=Items[WorkerDocument], everywhere=True
)
async def list_workers(request: ApiRequest) -> Response:
    """List workers, newest first; with `all=true` including dead workers that hold no jobs."""
    workers, held = await request.read(
        lambda: (request.inspection.workers(), request.inspection.held_by_worker())
    )
    now = request.now()
    shown = [
        worker for worker in workers if request.query.all or is_living(worker, now) or held.get(worker.id)
    ]
    return request.page([worker_document(worker, now, held.get(worker.id, 0)) for worker in shown[:MOST]])


@routes.post("/api/workers/{id}/drain", role=Role.ADMIN, answer=WorkerDocument, everywhere=True, status=202)
async def drain_worker(request: ApiRequest) -> Response:
    """Ask a worker to finish its jobs and claim no more."""
    id = request.id()
    await _living(request, id)
    await request.act(request.app.control.drain, id)
    worker = await _living(request, id)
    held = await request.read(request.inspection.held_by_worker)
    return request.reply(worker_document(worker, request.now(), held.get(id, 0)))


@routes.get("/api/leases", role=Role.VIEWER, answer=Items[LeaseDocument], everywhere=True)
async def list_leases(request: ApiRequest) -> Response:
    """List the leases with their holders and duties."""
    leases, workers = await request.read(lambda: (request.inspection.leases(), request.inspection.workers()))
    return request.page([lease_document(lease, request.now(), workers) for lease in leases[:MOST]])


@routes.post("/api/leases/{name}/release", role=Role.ADMIN, answer=ReleaseDocument, everywhere=True)
async def release_lease(request: ApiRequest) -> Response:
    """Release a lease so that another worker can acquire it. Its holder notices with the next heartbeat."""
    name = request.path["name"]
    released = await request.act(request.app.control.release, name)
    return request.reply({"name": name, "released": released})


async def _living(request: ApiRequest, id: UUID) -> Worker:
    for worker in await request.read(request.inspection.workers):
        if worker.id == id and is_living(worker, request.now()):
            return worker
    raise WorkerNotFound(f"no live worker has the id {id}", id=id)
