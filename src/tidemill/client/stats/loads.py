"""Load of a store for displays: queues, tasks, workers and outcomes.

All reads are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.limits import LimitState, limit_states, waiting_lanes
from tidemill.domain.alerts import LateSchedule, OpenBreaker
from tidemill.domain.breaker import BreakerPhase, phase_at
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.estimate import drain_time
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.limits import LimitKind
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.rollups import NO_TIMES, JobTimes
from tidemill.domain.schedule_fires import NODE_QUEUE
from tidemill.domain.schedules import runner_place
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.domain.stats import (
    DeclaredCounts,
    Depth,
    EndedGroups,
    Group,
    TaskBacklog,
    UnfinishedCounts,
)
from tidemill.stores.base import Store

QUEUES_COUNTED = 50
"""Maximum number of queues that are counted individually."""

SAMPLE = 200
"""Number of pending jobs that are sampled to find the waiting tasks."""

MOST_TASKS = 20
"""Maximum number of tasks that are counted individually."""

WINDOWS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

_PENDING = frozenset({JobState.PENDING})
_SCHEDULES = 100  # late schedules that are reported
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
    declared: DeclaredCounts | None  #: None if not requested


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
        declared=store.declared(tenant=tenant) if ended else None,
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
    for name in sorted(waiting | set(paused) | set(also))[:QUEUES_COUNTED]:
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
    """Count the jobs that each worker holds."""
    holders = store.holders(tenant=ALL_TENANTS)
    return Counter({holder.worker: holder.claimed + holder.running for holder in holders})


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


MINUTE = timedelta(minutes=1)
RECENT = timedelta(minutes=10)
"""The windows over which a queue's pace is measured: the last minute, or the longer one if no job ended in it."""

MOST_QUEUES = 200
MOST_NAMES = 1_000
LOOK_FOR_NAMES = 5_000
"""Live jobs that are read to find tasks that this app does not declare."""

ENDED_WINDOW = timedelta(hours=24)
"""Window in which the ended and the failed jobs of each task are counted and timed."""


class QueueLoad(NamedTuple):
    """A queue: its backlog, its pace, and the workers that serve it."""

    name: str
    depth: int
    late: int
    oldest_at: datetime | None
    per_minute: (
        float  #: jobs that ended: since the last full minute began, or on average in ``RECENT`` if none did
    )
    drains_in: timedelta | None  #: at this pace without new jobs; None if no jobs end
    workers: int
    slots: int
    pause: Pause | None


class QueueLoads(NamedTuple):
    """The loads of all queues, deepest first."""

    rows: list[QueueLoad]
    since_at: datetime
    more: bool  #: whether there are more queues than rows


class QueueCounts(NamedTuple):
    """Backlog and recently ended jobs of all queues, the figures that take a store longest to compute."""

    at: datetime
    depths: list[Depth]
    ended: EndedGroups
    minute: EndedGroups  #: jobs that ended in the last full minute and since


class TaskLoad(NamedTuple):
    """A task: its live jobs, and its ended jobs of the last 24 hours with their run times."""

    name: str
    counts: dict[JobState, int]
    ended: int  #: in ``ENDED_WINDOW``
    failed: int  #: of the ended jobs
    timed: int  #: ended jobs that ran
    p50: timedelta | None
    p95: timedelta | None
    last_at: datetime | None
    pause: Pause | None

    @property
    def waiting(self) -> int:
        """Jobs that are due and wait for a worker."""
        return self.counts.get(JobState.PENDING, 0)

    @property
    def running(self) -> int:
        return self.counts.get(JobState.RUNNING, 0) + self.counts.get(JobState.CLAIMED, 0)

    @property
    def review(self) -> int:
        """Jobs that wait for review."""
        return self.counts.get(JobState.REVIEW_NEEDED, 0)

    @property
    def failure_rate(self) -> float | None:
        return self.failed / self.ended if self.ended else None


class TaskLoads(NamedTuple):
    """The loads of the requested tasks, in the requested order."""

    rows: list[TaskLoad]
    sampled: bool  #: whether there were too many live jobs to count all of them
    ended_since: datetime  #: since when the ended jobs are counted


def serving(worker: Worker, queue: str) -> bool:
    """Whether a worker takes jobs of a queue.

    A worker without configured queues serves every queue. Only the workers of a node serve that node's queue, and only
    one runner serves that runner's queue, whichever queues are configured.
    """
    if queue.startswith(NODE_QUEUE):
        return queue.removeprefix(NODE_QUEUE) in (worker.node, runner_place(worker.node, worker.id))
    return not worker.queues or queue in worker.queues


def queue_counts(store: Store, now: datetime, *, tenant: str = ALL_TENANTS) -> QueueCounts:
    """Read the figures that ``queue_loads`` needs."""
    return QueueCounts(
        now,
        store.depths(tenant=tenant, now=now),
        store.ended_by(Group.QUEUE, RECENT, tenant=tenant, limit=MOST_QUEUES, now=now),
        store.ended_by(Group.QUEUE, MINUTE, tenant=tenant, limit=MOST_QUEUES, now=now),
    )


def queue_loads(
    store: Store,
    now: datetime,
    *,
    tenant: str = ALL_TENANTS,
    also: Iterable[str] = (),
    named: str | None = None,
    counts: QueueCounts | None = None,
) -> QueueLoads:
    """Return the load of each active queue, or of the ``named`` one.

    A queue is active if jobs are waiting or ended recently, if it is paused or served by a worker, or if it is in
    ``also``. ``counts`` are figures that the caller read a moment ago.
    """
    read_at, found, groups, minute = counts or queue_counts(store, now, tenant=tenant)
    depths = {depth.queue: depth for depth in found}
    ended = _paces(groups, read_at) | _paces(minute, read_at)
    pauses = {pause.name: pause for pause in store.pauses() if pause.kind is PauseKind.QUEUE}
    workers = [worker for worker in store.workers() if is_living(worker, now)]
    names = {*depths, *ended, *also}
    if tenant == ALL_TENANTS:  # a tenant must not see which queues others pause or serve
        names |= {*pauses, *(queue for worker in workers for queue in worker.queues)}
    if named is not None:
        names = {named}
    rows = []
    for name in names:
        depth = depths.get(name)
        waiting = 0 if depth is None else depth.pending + depth.late
        pace = ended.get(name, 0.0)
        servers = [worker for worker in workers if serving(worker, name)]
        rows.append(
            QueueLoad(
                name,
                waiting,
                0 if depth is None else depth.late,
                None if depth is None else depth.oldest_at,
                pace,
                drain_time(waiting, pace / 60) if waiting else None,
                len(servers),
                sum(worker.concurrency for worker in servers),
                pauses.get(name),
            )
        )
    rows.sort(key=lambda row: (-row.depth, row.name))
    return QueueLoads(rows[:MOST_QUEUES], groups.since_at, len(rows) > MOST_QUEUES)


def _paces(groups: EndedGroups, now: datetime) -> dict[str, float]:
    """Return the jobs that ended per minute, by queue."""
    minutes = max((now - groups.since_at).total_seconds() / 60, 1 / 60)
    return {row.name: row.total / minutes for row in groups.rows if row.name is not None}


def task_names(
    store: Store, now: datetime, *, tenant: str = ALL_TENANTS, crowd: UnfinishedCounts | None = None
) -> set[str]:
    """Return the tasks that occur in the store: in live and recently ended jobs, and for all tenants in workers.

    ``crowd`` is the count of live jobs, if the caller has already read it.
    """
    found = set((crowd or store.crowd(tenant=tenant, look=LOOK_FOR_NAMES)).counts)
    groups = store.ended_by(Group.TASK, timedelta(days=7), tenant=tenant, limit=MOST_NAMES, now=now)
    found |= {row.name for row in groups.rows if row.name is not None}
    if tenant == ALL_TENANTS:
        found |= {task for worker in store.workers() if is_living(worker, now) for task in worker.tasks}
    return found


OWN_TASKS = "tidemill."
"""The names of Tidemill's own tasks begin with this. Every worker knows them, and does not list them."""


def unknown_tasks(store: Store, workers: Iterable[Worker], tenant: str, now: datetime) -> list[TaskBacklog]:
    """Return the tasks of pending jobs that no living worker knows. Without a living worker, another alert is raised."""
    living = [worker for worker in workers if is_living(worker, now)]
    if not living or any(not worker.tasks for worker in living):
        return []
    served = {task for worker in living for task in worker.tasks}
    backlogs = store.backlogs(tenant=tenant, served=served)
    return [backlog for backlog in backlogs if not backlog.task.startswith(OWN_TASKS)]


class TaskEnds(NamedTuple):
    """The jobs of each task that ended in the last 24 hours, and their times."""

    groups: EndedGroups
    times: dict[str, JobTimes]


def task_ends(store: Store, now: datetime, *, tenant: str = ALL_TENANTS) -> TaskEnds:
    """Count and time the jobs of each task that ended in the last 24 hours."""
    return TaskEnds(
        store.ended_by(Group.TASK, ENDED_WINDOW, tenant=tenant, limit=MOST_NAMES, now=now),
        store.times_by(Group.TASK, ENDED_WINDOW, tenant=tenant, now=now),
    )


def task_loads(
    store: Store,
    now: datetime,
    names: Collection[str],
    *,
    tenant: str = ALL_TENANTS,
    crowd: UnfinishedCounts | None = None,
    ends: TaskEnds | None = None,
) -> TaskLoads:
    """Return the loads of these tasks. ``crowd`` and ``ends`` are figures that the caller has already read."""
    crowd = crowd or store.crowd(tenant=tenant)
    ends = ends or task_ends(store, now, tenant=tenant)
    pauses = {pause.name: pause for pause in store.pauses() if pause.kind is PauseKind.TASK}
    rows = [task_load(name, crowd.counts.get(name, {}), ends, pauses.get(name)) for name in names]
    return TaskLoads(rows, crowd.sampled, ends.groups.since_at)


def task_load(name: str, counts: dict[JobState, int], ends: TaskEnds, pause: Pause | None) -> TaskLoad:
    """Return the load of one task, from figures that the caller has read."""
    ended = next((row for row in ends.groups.rows if row.name == name), None)
    run_times = ends.times.get(name, NO_TIMES).run
    return TaskLoad(
        name,
        counts,
        ended.total if ended else 0,
        ended.failed if ended else 0,
        run_times.jobs,
        run_times.quantile(0.5),
        run_times.quantile(0.95),
        ended.last_at if ended else None,
        pause,
    )


def last_outcomes(
    store: Store, schedules: Iterable[tuple[UUID, str]], *, limit: int = 5
) -> dict[UUID, list[tuple[datetime, UUID | None, JobState | None, str | None]]]:
    """Return time, job, state and reason of the last fires of these schedules (id and tenant), oldest first.

    A fire without a job was skipped. A job without a state has been deleted or archived.
    """
    fires = {id: store.fires(id, tenant=tenant, limit=limit) for id, tenant in schedules}
    ids = [fire.job_id for found in fires.values() for fire in found if fire.job_id is not None]
    states = {job.id: job.state for job in store.get(ids, tenant=ALL_TENANTS)} if ids else {}
    return {
        id: [
            (fire.fire_at, fire.job_id, states.get(fire.job_id) if fire.job_id else None, fire.reason)
            for fire in reversed(found)
        ]
        for id, found in fires.items()
    }


def waited_for(store: Store) -> frozenset[str]:
    """Return the limits that pending jobs carry, and the rules that those limits are keys of."""
    names = {name for lane in store.gates() for name in lane.limits}
    return frozenset(names | {name.partition("/")[0] for name in names})


def due_schedules(store: Store, tenant: str, now: datetime) -> tuple[LateSchedule, ...]:
    """Return the schedules that should have fired by now."""
    return tuple(
        LateSchedule(row.key if row.tenant == DEFAULT_TENANT else f"{row.tenant}/{row.key}", row.next_fire_at)
        for row in store.due(_SCHEDULES, now=now).schedules
        if row.next_fire_at is not None and tenant in (ALL_TENANTS, row.tenant)
    )


def open_breakers(store: Store, tenant: str, now: datetime) -> tuple[OpenBreaker, ...]:
    """Return the circuit breakers that hold jobs back now; they belong to all tenants."""
    if tenant != ALL_TENANTS:
        return ()
    rules = {rule.name: rule for rule in store.rules() if rule.kind is LimitKind.BREAKER}
    if not rules:
        return ()
    return tuple(
        OpenBreaker(use.name, None)
        for use in store.uses(rules, list(rules), now=now)
        if use.breaker is not None and phase_at(use.breaker, now) is not BreakerPhase.CLOSED
    )
