"""Statistics of a store from a bounded number of reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.limits.states import LimitState, limit_states, waiting_lanes
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.states import ENDED, HELD, LIVE, JobState
from tidemill.stores.base import Store

MOST_QUEUES = 50
"""Maximum number of queues that are counted individually."""

SAMPLE = 200
"""Number of pending jobs that are sampled to find the waiting tasks."""

MOST_TASKS = 20
"""Maximum number of tasks that are counted individually."""

MOST_HELD = 1000
"""Maximum number of held jobs that are read to measure how busy the workers are."""

WINDOWS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

_PENDING = frozenset({JobState.PENDING})
_FAILED = ENDED - {JobState.COMPLETED, JobState.CANCELLED}


class QueueStats(NamedTuple):
    """Pending jobs of a queue, the due time of the oldest, and the pause if the queue is paused."""

    name: str
    pending: int
    oldest_at: datetime | None
    pause: Pause | None


class RecentCounts(NamedTuple):
    """Outcomes of the jobs that were enqueued within a window."""

    enqueued: int
    completed: int
    failed: int


class WorkerCounts(NamedTuple):
    """Number of workers by liveness."""

    alive: int
    late: int
    gone: int  #: crashed, or its lease expired
    stopped: int  #: shut down cleanly
    draining: int
    slots: int  #: of the workers that are alive or late


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a store at one instant."""

    at: datetime
    counts: dict[JobState, int]
    queues: list[QueueStats]
    tasks: dict[str, int]  #: pending jobs by task
    oldest_pending_at: datetime | None
    recent: dict[str, RecentCounts]  #: by window; empty if not requested
    crew: WorkerCounts
    pauses: list[Pause]
    limits: list[LimitState]


def gather(store: Store, now: datetime, *, tenant: str = ALL_TENANTS, ended: bool = True) -> Stats:
    """Collect the statistics. ``ended=False`` skips ended jobs, for displays that refresh every second."""
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
    """Return the queues with pending jobs, the paused queues, and the queues in ``also``, sorted by name."""
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
    """Count pending jobs by task, most first, for the tasks among the oldest pending jobs."""
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


def _recent(store: Store, tenant: str, since: datetime) -> RecentCounts:
    counts = store.count(JobFilter(tenant, created_after=since))
    return RecentCounts(
        enqueued=sum(counts.values()),
        completed=counts.get(JobState.COMPLETED, 0),
        failed=sum(counts.get(state, 0) for state in _FAILED),
    )


def liveness(worker: Worker, now: datetime) -> str:
    """Return a worker's liveness.

    ``alive``; ``late`` if half of its lease has passed without a heartbeat; ``stopped`` if it shut down cleanly;
    ``gone`` if it crashed or its lease expired.
    """
    if worker.state is WorkerState.STOPPED or worker.expires_at is None or worker.expires_at <= now:
        return "stopped" if worker.left else "gone"
    if worker.beat_at is None or now - worker.beat_at <= (worker.expires_at - worker.beat_at) / 2:
        return "alive"
    return "late"


def is_living(worker: Worker, now: datetime) -> bool:
    """Whether a worker is working: alive, or late with its heartbeat."""
    return liveness(worker, now) in ("alive", "late")


def held_by_worker(store: Store) -> Counter[UUID]:
    """Count the jobs that each worker holds, among the oldest thousand held jobs."""
    page = store.jobs(JobFilter(ALL_TENANTS, states=HELD), sort=Sort.OLDEST, limit=MOST_HELD)
    return Counter(job.worker for job in page.items if job.worker is not None)


def crew_of(workers: Iterable[Worker], now: datetime) -> WorkerCounts:
    """Count workers by liveness."""
    known = [(worker, liveness(worker, now)) for worker in workers]
    living = [worker for worker, how in known if how in ("alive", "late")]
    return WorkerCounts(
        alive=sum(how == "alive" for _, how in known),
        late=sum(how == "late" for _, how in known),
        gone=sum(how == "gone" for _, how in known),
        stopped=sum(how == "stopped" for _, how in known),
        draining=sum(worker.state is WorkerState.DRAINING for worker in living),
        slots=sum(worker.concurrency for worker in living),
    )
