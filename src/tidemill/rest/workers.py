"""Workers and leases: list workers and leases; drain, pause and scale a worker; release a lease."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from tidemill.rest.models import MOST, BodyModel, Document, Instant, Items, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("workers")


class WorkersQuery(QueryModel):
    """Filter of workers."""

    all: bool = False


class WorkerSlots(Document):
    """The slots of a worker by kind."""

    concurrency: int
    threads: int
    children: int


class SupervisorDocument(Document):
    """The process that supervises runners."""

    id: UUID
    name: str
    pid: int
    processes: int
    memory: int | None
    cpu: float | None


class ScaleBody(BodyModel):
    """The numbers to change. Numbers that are not given stay."""

    processes: int | None = Field(None, ge=1, description="Runner processes of the worker's supervisor.")
    concurrency: int | None = Field(None, ge=1, description="Coroutines that each runner runs at a time.")
    threads: int | None = Field(None, ge=1, description="Functions that each runner runs at a time.")
    children: int | None = Field(
        None, ge=1, description="Jobs that each runner runs in child processes at a time."
    )


class ScaleDocument(Document):
    """The numbers that a supervisor was asked for."""

    processes: int
    slots: WorkerSlots


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
    paused: bool = Field(description="Whether an operator paused it: it runs its jobs and claims no others.")
    memory: int | None = Field(
        description="Resident memory of its process in bytes, where the system reports it."
    )
    cpu: float | None = Field(
        description="CPU use of its process since the previous heartbeat; 1.0 is one core."
    )
    slots: WorkerSlots | None = Field(description="Its slots by kind, since its first heartbeat.")
    place: int | None = Field(description="Its place among the runners of its supervisor.")
    supervisor: SupervisorDocument | None = Field(
        description="The process that supervises it; null for a worker inside another program."
    )


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
    return await _ask(request, request.app.control.drain)


@routes.post(
    "/api/workers/{id}/pause", role=Role.OPERATOR, answer=WorkerDocument, everywhere=True, status=202
)
async def pause_worker(request: ApiRequest) -> Response:
    """Ask a worker to claim no jobs until it is resumed. Its running jobs continue."""
    return await _ask(request, request.app.control.pause_worker)


@routes.post(
    "/api/workers/{id}/resume", role=Role.OPERATOR, answer=WorkerDocument, everywhere=True, status=202
)
async def resume_worker(request: ApiRequest) -> Response:
    """Let a paused worker claim jobs again."""
    return await _ask(request, request.app.control.resume_worker)


@routes.post(
    "/api/workers/{id}/scale",
    role=Role.ADMIN,
    body=ScaleBody,
    answer=ScaleDocument,
    everywhere=True,
    status=202,
)
async def scale_worker(request: ApiRequest) -> Response:
    """Change the number of processes of a worker's supervisor, or the slots of each. It does so with its next heartbeat."""
    id = request.id()
    await _living(request, id)
    scale = await request.act(partial(request.app.control.scale_worker, id, **request.body.model_dump()))
    return request.reply({"processes": scale.processes, "slots": scale.slots._asdict()})


async def _ask(request: ApiRequest, act: Callable[[UUID], bool]) -> Response:
    id = request.id()
    await _living(request, id)
    await request.act(act, id)
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
