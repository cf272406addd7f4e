"""Worker and lease pages, with lease release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from starlette.responses import Response

from tidemill.client.documents import current_duties
from tidemill.client.stats.loads import is_living, liveness
from tidemill.client.stats.reports import Report, WorkerPerformance
from tidemill.client.stats.snapshot import interval_of, last_tick
from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.ended_charts import LATELY, sparks
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.worker_tree import WorkerSlot, by_host
from tidemill.domain import alerts
from tidemill.domain.access import Role
from tidemill.domain.alerts import AlertInput, LeaderFact
from tidemill.domain.cluster import Lease, Worker, holder_of
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED
from tidemill.domain.stats import HeldRow
from tidemill.errors import LeaseNotFound, WorkerNotFound

pages = PageRoutes()

NAMED = 3
"""Number of held jobs that the list shows per worker."""

MOST_HELD = MOST_WORKERS = 1_000
MOST_GONE = 100

NEWEST = 200
"""Number of recently ended jobs that are searched for those of one worker."""


class DutyRow(NamedTuple):
    """Status of one duty, as the lease holder reports it."""

    name: str
    tick_at: datetime | None
    items: int | None
    errors: int
    took: float | None  #: seconds
    last_error: str | None


class LeaseRow(NamedTuple):
    """A lease, its holder, and why the holder seems stuck, if it does."""

    lease: Lease
    held: bool
    holder_name: str | None
    workers: list[Worker]  #: workers in the holder's process or below it
    tick_at: datetime | None
    stuck: str | None
    duties: list[DutyRow]


@pages.get("/workers", role=Role.VIEWER, everywhere=True)
async def workers(request: PageRequest) -> Response:
    """List the workers and the leases."""
    return request.render("workers.html", named=NAMED, **await request.read(_look, request))


@pages.get("/workers/{id}", role=Role.VIEWER, everywhere=True)
async def worker(request: PageRequest) -> Response:
    """Show one worker."""
    about = ("worker performance", request.tenant)
    did = await request.cached(
        about, request.app.stats.worker_performance, LATELY, tenant=request.tenant, limit=MOST_WORKERS
    )
    return request.render("worker.html", **await request.read(_look_at, request, request.id(), did))


@pages.get("/leases/release", role=Role.ADMIN, everywhere=True)
async def ask_release(request: PageRequest) -> Response:
    """Ask for confirmation before a lease is released."""
    name = request.query.get("name") or ""
    row = await request.read(_lease, request, name)
    holder = row.holder_name or row.lease.holder
    return ask(
        request,
        title=f"Release the lease {name}?",
        words=f"{holder} holds it in term {row.lease.term}. Another worker takes it over within seconds; if no other "
        "worker is eligible, this one acquires it again. No stored data changes, and no job is stopped."
        if row.held
        else "It is not held now.",
        action="/leases/release",
        fields={"name": name},
        button="Release it",
        back="/workers",
    )


@pages.post("/leases/release", role=Role.ADMIN, everywhere=True)
async def release(request: PageRequest) -> Response:
    """Release a lease, so that another process can acquire it."""
    name = request.form.get("name") or ""
    released = await request.act(request.app.control.release, name)
    words = f"The lease {name} was released." if released else f"The lease {name} was not held."
    return request.back("/workers", words, good=released)


# Queries ---------------------------------------------------------------------------------------------------------------


def _look(request: PageRequest) -> dict[str, Any]:
    at, workers = request.inspection.now(), request.inspection.workers()
    seats = _seats(request, workers, at)
    there = [seat for seat in seats if seat.living or seat.number]
    gone = [seat for seat in seats if not seat.living and not seat.number]
    return {
        "hosts": by_host(there),
        "seats": there,
        "paths": sparks(request, "worker"),
        "gone": gone[:MOST_GONE],
        "gone_number": len(gone),
        "slots": sum(seat.worker.concurrency for seat in there if seat.living),
        "held": sum(seat.number for seat in there),
        "leases": _leases(request, workers, at),
        "at": at,
    }


def _ended_at(job: JobRow) -> datetime:
    return job.finished_at or job.created_at


def _look_at(request: PageRequest, id: UUID, did: Report[WorkerPerformance]) -> dict[str, Any]:
    at, workers = request.inspection.now(), request.inspection.workers()
    matching = [worker for worker in workers if worker.id == id]
    if not matching:
        raise WorkerNotFound(f"there is no worker {id}; stopped workers are removed after a while", id=id)
    (seat,) = _seats(request, matching, at)
    ended = request.inspection.newest_jobs(tenant=request.tenant, states=ENDED, limit=NEWEST)
    acts: Any = []
    if request.identity.role.allows(Role.ADMIN):
        acts = request.app.audit.list(tenant=request.tenant, subject=f"worker:{id}", newest=True, limit=10)
    return {
        "seat": seat,
        "did": next((row for row in did.rows if row.worker == id), None),
        "lately": LATELY,
        "ended": sorted((job for job in ended if job.worker == id), key=_ended_at, reverse=True)[:20],
        "newest": NEWEST,
        "leases": [
            row
            for row in _leases(request, workers, at)
            if row.held and id in {worker.id for worker in row.workers}
        ],
        "acts": acts,
        "at": at,
    }


def living(request: PageRequest, id: UUID) -> WorkerSlot:
    """Return a living worker, or raise ``WorkerNotFound``."""
    at = request.inspection.now()
    matching = [
        worker for worker in request.inspection.workers() if worker.id == id and is_living(worker, at)
    ]
    if not matching:
        raise WorkerNotFound(f"no living worker has the id {id}", id=id)
    (seat,) = _seats(request, matching, at)
    return seat


def _seats(request: PageRequest, workers: Iterable[Worker], at: datetime) -> list[WorkerSlot]:
    counts = {holder.worker: holder for holder in request.inspection.holders(tenant=request.tenant)}
    held: dict[UUID, list[HeldRow]] = defaultdict(list)
    for row in request.inspection.held_jobs(tenant=request.tenant, limit=MOST_HELD, now=at):
        held[row.worker].append(row)
    seats = []
    for one in workers:
        count = counts.get(one.id)
        claimed, running = (count.claimed, count.running) if count else (0, 0)
        seats.append(WorkerSlot(one, liveness(one, at), claimed, running, held[one.id]))
    return seats


def _lease(request: PageRequest, name: str) -> LeaseRow:
    rows = _leases(request, request.inspection.workers(), request.inspection.now())
    row = next((candidate for candidate in rows if candidate.lease.name == name), None)
    if row is None:
        raise LeaseNotFound(f"there is no lease {name[:100]!r}", name=name)
    return row


def _leases(request: PageRequest, workers: Iterable[Worker], at: datetime) -> list[LeaseRow]:
    workers = list(workers)
    leases = request.inspection.leases()
    stuck = _stuck(request, leases, at)
    rows = []
    for lease in leases:
        held, holder = lease.held(at), holder_of(lease, workers)
        duties = [_duty(name, state) for name, state in current_duties(lease, at).items()]
        rows.append(
            LeaseRow(
                lease,
                held,
                None if holder is None else holder.name,
                [] if holder is None else [worker for worker in workers if worker.id in holder.workers],
                last_tick(lease) if duties else None,
                stuck.get(lease.name) if held else None,
                duties,
            )
        )
    return rows


def _stuck(request: PageRequest, leases: Iterable[Lease], at: datetime) -> dict[str | None, str]:
    """Find holders that are alive but make no progress, by the same rule as the alert."""
    limits, _ = alerts.read_thresholds(
        {setting.key: setting.value for setting in request.app.control.settings()}
    )
    leaders = tuple(
        LeaderFact(lease.name, lease.acquired_at, lease.beat_at, last_tick(lease), interval_of(lease))
        for lease in leases
        if not lease.is_of_app
        and lease.holder is not None
        and lease.acquired_at is not None
        and lease.beat_at is not None
    )
    raised = alerts.alerts(AlertInput(at, leaders=leaders), limits)
    return {alert.subject: alert.text for alert in raised if alert.code == "stuck_leader"}


def _duty(name: str, state: Any) -> DutyRow:
    try:
        tick_at = datetime.fromisoformat(str(state.get("last_tick")))
    except ValueError:
        tick_at = None
    items, errors, took, error = (state.get(field) for field in ("items", "errors", "took_ms", "last_error"))
    return DutyRow(
        name,
        tick_at if tick_at is not None and tick_at.tzinfo is not None else None,
        items if isinstance(items, int) else None,
        errors if isinstance(errors, int) else 0,
        took / 1000 if isinstance(took, int | float) else None,
        None if error is None else str(error),
    )
