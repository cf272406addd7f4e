"""How a store is doing, in a handful of bounded questions. Reads only, and asks nothing that grows with the number of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.limit_states import LimitState, limit_states, waiting_lanes
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.ledger import Pause, PauseKind
from tidemill.domain.states import ENDED, HELD, LIVE, JobState
from tidemill.stores.base import Store

MOST_QUEUES = 50
"""Queues that are counted one by one."""

SAMPLE = 200
"""Pending jobs that are looked at to learn which tasks wait."""

MOST_TASKS = 20
"""Tasks that are counted one by one."""

MOST_HELD = 1000
"""Held jobs that are looked at to see how busy the workers are."""

WINDOWS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

_PENDING = frozenset({JobState.PENDING})
_FAILED = ENDED - {JobState.COMPLETED, JobState.CANCELLED}


class QueueStats(NamedTuple):
    """What waits in a queue, since when, and whether it is paused."""

    name: str
    pending: int
    oldest_at: datetime | None
    pause: Pause | None


class Recent(NamedTuple):
    """What became of the jobs that were enqueued within a window."""

    enqueued: int
    completed: int
    failed: int


class Crew(NamedTuple):
    """Workers by how they are."""

    alive: int
    late: int
    gone: int
    draining: int
    slots: int  #: of those alive or late


@dataclass(frozen=True, slots=True)
class Stats:
    """One look at a store."""

    at: datetime
    counts: dict[JobState, int]
    queues: list[QueueStats]
    tasks: dict[str, int]  #: pending jobs by task
    oldest_pending_at: datetime | None
    recent: dict[str, Recent]  #: by window; empty where it was not asked for
    crew: Crew
    pauses: list[Pause]
    limits: list[LimitState]


def gather(store: Store, now: datetime, *, tenant: str = ALL_TENANTS, ended: bool = True) -> Stats:
    """One look. ``ended=False`` leaves the history alone, which is what a screen that looks every second wants."""
    states = frozenset() if ended else LIVE
    counts = store.count(JobFilter(tenant, states=states))
    pauses = store.pauses()
    first = store.jobs(JobFilter(tenant, states=_PENDING), sort=Sort.OLDEST, limit=1).items
    return Stats(
        at=now,
        counts=counts,
        queues=queue_stats(store, tenant=tenant, pauses=pauses),
        tasks=waiting_tasks(store, tenant=tenant) if counts.get(JobState.PENDING) else {},
        oldest_pending_at=first[0].run_at if first else None,
        recent={name: _recent(store, tenant, now - window) for name, window in WINDOWS.items()}
        if ended
        else {},
        crew=crew_of(store.workers(), now),
        pauses=pauses,
        limits=limit_states(store, now),
    )


def queue_stats(
    store: Store,
    *,
    tenant: str = ALL_TENANTS,
    pauses: Sequence[Pause] | None = None,
    also: Iterable[str] = (),
) -> list[QueueStats]:
    """The queues in which something waits, those that are paused, and ``also`` those named here; by name."""
    paused = {
        pause.name: pause
        for pause in (store.pauses() if pauses is None else pauses)
        if pause.kind is PauseKind.QUEUE
    }
    waiting = {lane.queue for lane in waiting_lanes(store) if tenant in (ALL_TENANTS, lane.tenant)}
    found = []
    for name in sorted(waiting | set(paused) | set(also))[:MOST_QUEUES]:
        pending, oldest_at = 0, None
        if name in waiting:
            where = JobFilter(tenant, states=_PENDING, queues=frozenset({name}))
            pending = sum(store.count(where).values())
            first = store.jobs(where, sort=Sort.OLDEST, limit=1).items
            oldest_at = first[0].run_at if first else None
        found.append(QueueStats(name, pending, oldest_at, paused.get(name)))
    return found


def waiting_tasks(store: Store, *, tenant: str = ALL_TENANTS) -> dict[str, int]:
    """Pending jobs by task, the most first: the tasks among the oldest of them, counted."""
    page = store.jobs(JobFilter(tenant, states=_PENDING), sort=Sort.OLDEST, limit=SAMPLE)
    seen = Counter(job.task for job in page.items)
    if page.next is None:
        return dict(seen.most_common())
    counted = Counter(
        {
            task: sum(store.count(JobFilter(tenant, states=_PENDING, tasks=frozenset({task}))).values())
            for task, _ in seen.most_common(MOST_TASKS)
        }
    )
    return dict(counted.most_common())


def _recent(store: Store, tenant: str, since: datetime) -> Recent:
    counts = store.count(JobFilter(tenant, created_after=since))
    return Recent(
        enqueued=sum(counts.values()),
        completed=counts.get(JobState.COMPLETED, 0),
        failed=sum(counts.get(state, 0) for state in _FAILED),
    )


def liveness(worker: Worker, now: datetime) -> str:
    """``alive``, ``late`` when half of its lease has passed without a heartbeat, ``gone`` when the lease is over."""
    if worker.state is WorkerState.STOPPED or worker.expires_at is None or worker.expires_at <= now:
        return "gone"
    if worker.beat_at is None or now - worker.beat_at <= (worker.expires_at - worker.beat_at) / 2:
        return "alive"
    return "late"


def held_by_worker(store: Store) -> Counter[UUID]:
    """How many jobs each worker holds, among the oldest thousand that are held."""
    page = store.jobs(JobFilter(ALL_TENANTS, states=HELD), sort=Sort.OLDEST, limit=MOST_HELD)
    return Counter(job.worker for job in page.items if job.worker is not None)


def crew_of(workers: Iterable[Worker], now: datetime) -> Crew:
    """Workers counted by how they are."""
    known = [(worker, liveness(worker, now)) for worker in workers]
    living = [worker for worker, how in known if how != "gone"]
    return Crew(
        alive=sum(how == "alive" for _, how in known),
        late=sum(how == "late" for _, how in known),
        gone=sum(how == "gone" for _, how in known),
        draining=sum(worker.state is WorkerState.DRAINING for worker in living),
        slots=sum(worker.concurrency for worker in living),
    )
