"""Who works here, asking one to finish, and who does the duties."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from tidemill.client.documents import lease_document, worker_document
from tidemill.client.stats import held_by_worker, liveness
from tidemill.domain.access import Role
from tidemill.domain.cluster import Worker
from tidemill.errors import WorkerNotFound
from tidemill.rest.call import Call
from tidemill.rest.models import MOST, Document, Instant, Items, Query
from tidemill.rest.routes import Routes

routes = Routes("workers")


class WorkersQuery(Query):
    """Which workers."""

    all: bool = False


class WorkerDocument(Document):
    """One worker process and what it holds."""

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
    """One lease, its holder, and the duties done under it."""

    name: str
    holder: UUID | None
    term: int
    held: bool
    acquired_at: Instant | None
    beat_at: Instant | None
    expires_at: Instant | None
    duties: dict[str, Any]


@routes.get(
    "/api/workers", role=Role.VIEWER, query=WorkersQuery, answer=Items[WorkerDocument], everywhere=True
)
async def list_workers(call: Call) -> Response:
    """The workers that are written down, the newest first; with `all=true` also those that are gone and hold nothing."""
    known, held = await call.read(lambda: (call.app.store.workers(), held_by_worker(call.app.store)))
    now = call.now()
    found = [
        worker for worker in known if call.query.all or liveness(worker, now) != "gone" or held.get(worker.id)
    ]
    return call.page([worker_document(worker, now, held.get(worker.id, 0)) for worker in found[:MOST]])


@routes.post("/api/workers/{id}/drain", role=Role.ADMIN, answer=WorkerDocument, everywhere=True, status=202)
async def drain_worker(call: Call) -> Response:
    """Ask a worker to finish what it holds and claim nothing more."""
    id = call.id()
    await _living(call, id)
    await call.act(call.app.control.drain, id)
    worker = await _living(call, id)
    held = await call.read(held_by_worker, call.app.store)
    return call.reply(worker_document(worker, call.now(), held.get(id, 0)))


@routes.get("/api/leases", role=Role.VIEWER, answer=Items[LeaseDocument], everywhere=True)
async def list_leases(call: Call) -> Response:
    """Every lease with its holder, and the duties done under it."""
    found = await call.read(call.app.store.leases)
    return call.page([lease_document(lease, call.now()) for lease in found[:MOST]])


async def _living(call: Call, id: UUID) -> Worker:
    for worker in await call.read(call.app.store.workers):
        if worker.id == id and liveness(worker, call.now()) != "gone":
            return worker
    raise WorkerNotFound(f"no living worker has the id {id}", id=id)
