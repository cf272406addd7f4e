"""What each queue and each task is doing, for screens: how much waits, how fast it goes, how it ends. Reads only, and bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.stats import liveness
from tidemill.domain.cluster import Worker
from tidemill.domain.estimate import drain_time
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.firing import NODE_QUEUE
from tidemill.domain.insight import FAILURES, Crowd, Depth, Group, Lately, Tally, quantile
from tidemill.domain.ledger import Pause, PauseKind
from tidemill.domain.states import JobState
from tidemill.stores.base import Store

RECENT = timedelta(minutes=10)
"""The time over which a queue's pace is taken."""

MOST_QUEUES = 200
MOST_NAMES = 1_000
LOOK_FOR_NAMES = 5_000
"""Ended jobs that are looked at to find tasks nobody here declares."""

EACH = 50
"""Ended jobs of each task that are looked at."""


class QueueLoad(NamedTuple):
    """A queue: what waits and since when, its pace, and who serves it."""

    name: str
    depth: int
    late: int
    oldest_at: datetime | None
    per_minute: float  #: jobs that ended
    drains_in: timedelta | None  #: at this pace, if nothing more comes; None: nothing ends
    workers: int
    slots: int
    pause: Pause | None


class QueueLoads(NamedTuple):
    """All of them, the deepest first."""

    rows: list[QueueLoad]
    since_at: datetime
    more: bool  #: there are more than are told


class QueueFacts(NamedTuple):
    """What is waiting and what ended lately, of all queues: what takes the store longest to tell."""

    at: datetime
    depths: list[Depth]
    ended: Tally


class TaskLoad(NamedTuple):
    """A task: what has not ended, and how its latest jobs ended."""

    name: str
    counts: dict[JobState, int]
    ended: int  #: how many of the latest were looked at
    failed: int
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
    def failure_rate(self) -> float | None:
        return self.failed / self.ended if self.ended else None


class TaskLoads(NamedTuple):
    """Some of them, in the order asked for."""

    rows: list[TaskLoad]
    sampled: bool  #: so many have not ended that not all were counted


def serving(worker: Worker, queue: str) -> bool:
    """Whether a worker takes jobs of a queue; one that names none takes those of any. A node's own queue is served by that
    node's workers, whatever they name, and by nobody else.
    """
    if queue.startswith(NODE_QUEUE):
        return queue == NODE_QUEUE + worker.node
    return not worker.queues or queue in worker.queues


def queue_facts(store: Store, now: datetime, *, tenant: str = ALL_TENANTS) -> QueueFacts:
    """The facts that ``queue_loads`` is made of, read by themselves."""
    return QueueFacts(
        now,
        store.depths(tenant=tenant, now=now),
        store.ended_by(Group.QUEUE, RECENT, tenant=tenant, limit=MOST_QUEUES, now=now),
    )


def queue_loads(
    store: Store,
    now: datetime,
    *,
    tenant: str = ALL_TENANTS,
    also: Iterable[str] = (),
    named: str | None = None,
    facts: QueueFacts | None = None,
) -> QueueLoads:
    """The queues in which something waits or has ended lately, that are paused or served, and ``also`` these; or one of them.

    ``facts`` are those that were read a moment ago.
    """
    read_at, found, tally = facts or queue_facts(store, now, tenant=tenant)
    depths = {each.queue: each for each in found}
    ended = {row.name: row.total for row in tally.rows if row.name is not None}
    pauses = {pause.name: pause for pause in store.pauses() if pause.kind is PauseKind.QUEUE}
    workers = [worker for worker in store.workers() if liveness(worker, now) != "gone"]
    names = {*depths, *ended, *also}
    if tenant == ALL_TENANTS:  # what others have paused and serve is not a tenant's to know
        names |= {*pauses, *(queue for worker in workers for queue in worker.queues)}
    if named is not None:
        names = {named}
    minutes = max((read_at - tally.since_at).total_seconds() / 60, 1 / 60)
    rows = []
    for name in names:
        depth = depths.get(name)
        waiting = 0 if depth is None else depth.pending + depth.late
        pace = ended.get(name, 0) / minutes
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
    return QueueLoads(rows[:MOST_QUEUES], tally.since_at, len(rows) > MOST_QUEUES)


def task_names(
    store: Store, now: datetime, *, tenant: str = ALL_TENANTS, crowd: Crowd | None = None
) -> set[str]:
    """Tasks that the store has heard of lately: jobs that wait, run or ended, and for all tenants what workers can run.

    ``crowd`` is what was read of those that have not ended, where that is known.
    """
    found = set((crowd or store.crowd(tenant=tenant, look=LOOK_FOR_NAMES)).counts)
    tally = store.ended_by(
        Group.TASK, timedelta(days=7), tenant=tenant, limit=MOST_NAMES, look=LOOK_FOR_NAMES, now=now
    )
    found |= {row.name for row in tally.rows if row.name is not None}
    if tenant == ALL_TENANTS:
        found |= {
            task for worker in store.workers() if liveness(worker, now) != "gone" for task in worker.tasks
        }
    return found


def task_loads(
    store: Store,
    names: Collection[str],
    *,
    tenant: str = ALL_TENANTS,
    each: int = EACH,
    crowd: Crowd | None = None,
) -> TaskLoads:
    """These tasks, each with what has not ended and its latest ends; ``crowd`` as for ``task_names``."""
    crowd = crowd or store.crowd(tenant=tenant)
    lately: dict[str, list[Lately]] = {}
    for job in store.lately(names, tenant=tenant, each=each):
        lately.setdefault(job.task, []).append(job)
    pauses = {pause.name: pause for pause in store.pauses() if pause.kind is PauseKind.TASK}
    rows = [
        task_load(name, crowd.counts.get(name, {}), lately.get(name, []), pauses.get(name)) for name in names
    ]
    return TaskLoads(rows, crowd.sampled)


def task_load(name: str, counts: dict[JobState, int], lately: list[Lately], pause: Pause | None) -> TaskLoad:
    """One task, of what was read."""
    times = [job.run_time for job in lately if job.run_time is not None]
    return TaskLoad(
        name,
        counts,
        len(lately),
        sum(job.state in FAILURES for job in lately),
        quantile(times, 0.5),
        quantile(times, 0.95),
        max((job.finished_at for job in lately), default=None),
        pause,
    )


def last_outcomes(
    store: Store, schedules: Iterable[tuple[UUID, str]], *, each: int = 5
) -> dict[UUID, list[tuple[datetime, UUID | None, JobState | None, str | None]]]:
    """What became of the last fires of these schedules (id and tenant), the oldest first: when, the job, its state, the reason.

    A fire without a job was skipped; one whose job has no state any more has been deleted or archived.
    """
    fires = {id: store.fires(id, tenant=tenant, limit=each) for id, tenant in schedules}
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
    """The limits that jobs wait behind or pass by: the names of what is pending, and the rules those are keys of."""
    names = {name for lane in store.gates() for name in lane.limits}
    return frozenset(names | {name.partition("/")[0] for name in names})
