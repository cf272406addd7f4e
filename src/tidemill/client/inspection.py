"""Reads of one store for the HTTP API and the dashboard, by noun and without user conveniences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.client._base import StoreApi
from tidemill.client.enqueue.options import CallOptions
from tidemill.client.enqueue.writes import snapshot
from tidemill.client.jobs.api import Origin, origin, resolve
from tidemill.client.jobs.handle import Job
from tidemill.client.jobs.streams import StreamSource
from tidemill.client.jobs.why import Reason, explain
from tidemill.client.limits import LimitState, tenant_limits, waiting_lanes
from tidemill.client.stats import loads
from tidemill.client.stats.loads import (
    QueueCounts,
    QueueLoads,
    QueueStats,
    TaskEnds,
    TaskLoads,
    held_by_worker,
    is_living,
    queue_stats,
)
from tidemill.client.stats.snapshot import Snapshot
from tidemill.client.watch import Changes
from tidemill.domain.cluster import Lease, Worker
from tidemill.domain.depths import DepthSeries
from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.job import JobRow, LogEntry, levels_from
from tidemill.domain.large_values import read_reference
from tidemill.domain.limits import Rule
from tidemill.domain.schedules import Definition, ScheduleRow
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    DeclaredCounts,
    EndedTiming,
    HeldRow,
    HeldSelection,
    Holder,
    Series,
    UnfinishedCounts,
)
from tidemill.errors import TidemillError
from tidemill.shards.settings import ALL_SHARDS
from tidemill.stores.base import SchemaStatus
from tidemill.stores.large_values import stream
from tidemill.stores.lock_server import leases_and_locks
from tidemill.tasks.task import Declared

Outcome = tuple[datetime, UUID | None, JobState | None, str | None]


MOST_WAITING = 10_000
"""Maximum number of waiting jobs that are counted in each store."""


class StoreStatus(NamedTuple):
    """One of an app's stores. ``code`` is the error code if it does not answer."""

    name: str
    url: str
    is_default: bool
    is_live: bool
    code: str | None
    workers: int  #: living ones
    waiting: int  #: pending jobs, at most ``MOST_WAITING``


class Inspection(StoreApi):
    """The reads of pages and routes. Every read names its tenant; ``"*"`` stands for all tenants."""

    # The store itself --------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address of the store, without a password."""
        return self._store.url

    def check(self) -> None:
        """Raise a ``StoreError`` unless the store responds and has the required schema."""
        self._store.check()

    def schema(self) -> SchemaStatus:
        return self._store.schema()

    def now(self) -> datetime:
        """Return the store's time, which heartbeats use."""
        return self._store.now()

    def changes(self) -> Changes:
        """Return a source of change hints; its owner closes it."""
        return Changes(self._store)

    # Jobs --------------------------------------------------------------------------------------------------------------

    def job(self, id: UUID, *, tenant: str) -> JobRow:
        """Return the job with that id, live or archived, or raise ``JobNotFound``."""
        return self._client.get(id, tenant=tenant, store=None)

    def find_job(self, id: UUID, *, tenant: str) -> tuple[JobRow, str]:
        """Return a job, live or archived, and the name of its store, or raise ``JobNotFound``."""
        return self._client.find(id, tenant=tenant, store=None)

    def store_names(self) -> tuple[str, ...]:
        """Return the names of the app's stores: the live ones first, then those for archived jobs."""
        live = self._client.placement.live
        return (*live, *(name for name in self._client.stores if name not in live))

    def addressable_stores(self) -> tuple[str, ...]:
        """Return the stores that a page may choose: ``"*"`` for all shards of an app first, if it has any."""
        shards = self._client.placement.shards
        return self.store_names() if shards is None else (ALL_SHARDS, *self.store_names())

    def missing_shards(self) -> tuple[str, ...]:
        """Return the shards that did not answer lately, if calls address all shards here."""
        return self._client.missing_shards()

    def store_status(self, name: str) -> StoreStatus:
        """Return what is known about one of the app's stores."""
        store, placement = self._client.store(name), self._client.placement
        waiting, workers, code = 0, 0, None
        try:
            store.check()
            if name in placement.live:
                now = store.now()
                workers = sum(is_living(worker, now) for worker in store.workers())
                waiting = store.depth(most=MOST_WAITING)
        except TidemillError as error:
            code = error.code
        return StoreStatus(
            name, store.url, name == placement.default, name in placement.live, code, workers, waiting
        )

    def payload(self, text: str) -> tuple[int, Iterator[bytes]]:
        """Return the size and the content of a job's arguments or result, large ones in parts."""
        reference = read_reference(text)
        if reference is None:
            data = text.encode()
            return len(data), iter([data])
        return reference.size, stream(self._store, reference)

    def resolve(self, text: str, *, tenant: str) -> UUID:
        """Return the id of the only job whose id equals, starts with or ends with these digits."""
        return resolve(self._store, text, tenant=tenant)

    def live_jobs(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        """Return the jobs with these ids that are not archived."""
        return self._store.get(ids, tenant=tenant) if ids else []

    def newest_jobs(
        self,
        *,
        tenant: str,
        limit: int,
        states: frozenset[JobState] = frozenset(),
        task: str | None = None,
        queue: str | None = None,
    ) -> list[JobRow]:
        """Return the newest jobs that match."""
        where = JobFilter(
            tenant,
            states=states,
            tasks=frozenset() if task is None else frozenset({task}),
            queues=frozenset() if queue is None else frozenset({queue}),
        )
        return list(self._client.reader(None).jobs(where, limit=limit).items)

    def children(self, ids: Collection[UUID], *, tenant: str, limit: int) -> Page[JobRow]:
        """Return jobs that any of these jobs enqueued, oldest first."""
        where = JobFilter(tenant, parent_ids=frozenset(ids))
        return self._client.reader(None).jobs(where, sort=Sort.OLDEST, limit=limit)

    def handle(self, row: JobRow) -> Job[Any]:
        """Return the handle of a job that was read before."""
        return Job(self._client, row)

    def stream_source(self, row: JobRow, name: str) -> StreamSource:
        """Return a stream of a job that was read before, to read it page by page."""
        return StreamSource(self._client, self._client.store_name(None, row.tenant), row.id, row.tenant, name)

    def planned(self, declared: Declared, options: CallOptions, args: dict[str, Any]) -> JobRow:
        """Return the job that a call would create if no other job held its unique key."""
        (job,) = self._client.enqueuer.build(declared, options, [((), args)])
        return snapshot(job, self._client.clock.now())

    def watch(self, id: UUID, changed: Callable[[JobRow | None], None]) -> Callable[[], None]:
        """Call ``changed`` on each change of a job; return a function that ends the subscription."""
        return self._client.waiting(None).watch(id, changed)

    def why(self, row: JobRow, now: datetime) -> list[Reason]:
        """Return why a job that was just read is not running, or how it ended."""
        name = None if self._client.placement.is_single else self._client.store_name(None, row.tenant)
        return explain(self._client.store(None, row.tenant), row, now, name)

    def origin(self, row: JobRow) -> Origin:
        """Return the definition and the schedule that created a job."""
        return origin(self._store, row)

    def logs(
        self,
        row: JobRow,
        *,
        limit: int,
        after: int = 0,
        before: int | None = None,
        level: str | None = None,
    ) -> list[tuple[int, LogEntry]]:
        """Return log lines of a live job with their positions, of this level and above."""
        return self._store.logs(
            row.id, tenant=row.tenant, after=after, before=before, levels=levels_from(level), limit=limit
        )

    def unfinished(self, *, tenant: str) -> UnfinishedCounts:
        """Count the unfinished jobs by task and status."""
        return self._client.reader(None).crowd(tenant=tenant)

    # Workers -----------------------------------------------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        return self._store.workers()

    def leases(self) -> list[Lease]:
        """Return the leases of the store, and the locks in its lock server."""
        return leases_and_locks(self._store)

    def holders(self, *, tenant: str) -> list[Holder]:
        """Count the jobs that each worker holds."""
        return self._client.reader(None).holders(tenant=tenant)

    def held_by_worker(self) -> Counter[UUID]:
        """Count the jobs of all tenants that each worker holds, among the oldest thousand held jobs."""
        return held_by_worker(self._store)

    def held_jobs(self, *, tenant: str, limit: int, now: datetime) -> list[HeldRow]:
        """Return the jobs that workers hold, oldest claim first."""
        return self._store.holding(HeldSelection.ALL, tenant=tenant, limit=limit, now=now)

    # Queues, tasks, tenants and limits ---------------------------------------------------------------------------------

    def snapshot(self, tenant: str) -> Snapshot:
        """Return a snapshot of this moment for several reports."""
        return Snapshot.now(self._store, tenant)

    def queue_stats(self, *, tenant: str, also: Iterable[str]) -> list[QueueStats]:
        """Return the queues with pending jobs, the paused queues, and the queues in ``also``, sorted by name."""
        return queue_stats(self._store, tenant=tenant, also=also)

    def queue_counts(self, now: datetime, *, tenant: str) -> QueueCounts:
        """Read the figures that ``queue_loads`` needs."""
        return loads.queue_counts(self._store, now, tenant=tenant)

    def queue_loads(
        self,
        now: datetime,
        counts: QueueCounts,
        *,
        tenant: str,
        also: Iterable[str] = (),
        named: str | None = None,
    ) -> QueueLoads:
        """Return the load of each active queue, or of the ``named`` one."""
        return loads.queue_loads(self._store, now, tenant=tenant, also=also, named=named, counts=counts)

    def depth_series(
        self, window: timedelta, step: timedelta, now: datetime, *, queue: str | None = None, limit: int = 200
    ) -> DepthSeries:
        """Return the depth of one queue over time, or of the deepest ones; of all tenants."""
        return self._client.reader(None).depth_series(window, step, queue=queue, limit=limit, now=now)

    def series(
        self,
        window: timedelta,
        step: timedelta,
        now: datetime,
        *,
        tenant: str,
        queue: str | None = None,
        task: str | None = None,
    ) -> Series:
        """Return ended jobs per step with their run times and waits, of a queue or a task."""
        reader = self._client.reader(None)
        return reader.series(window, step, tenant=tenant, queue=queue, task=task, now=now)

    def task_names(self, now: datetime, *, tenant: str, crowd: UnfinishedCounts | None = None) -> set[str]:
        """Return the tasks that occur in the store."""
        return loads.task_names(self._store, now, tenant=tenant, crowd=crowd)

    def task_ends(self, now: datetime, *, tenant: str) -> TaskEnds:
        """Count and time the jobs of each task that ended in the last 24 hours."""
        return loads.task_ends(self._store, now, tenant=tenant)

    def task_loads(
        self,
        now: datetime,
        names: Collection[str],
        crowd: UnfinishedCounts,
        ends: TaskEnds,
        *,
        tenant: str,
    ) -> TaskLoads:
        """Return the loads of these tasks, from figures that the caller has already read."""
        return loads.task_loads(self._store, now, names, tenant=tenant, crowd=crowd, ends=ends)

    def latest_ends(self, task: str, *, tenant: str, limit: int) -> list[EndedTiming]:
        """Return the timing of a task's latest ended jobs, newest first."""
        return self._client.reader(None).lately([task], tenant=tenant, per_task=limit)

    def waiting_tenants(self) -> set[str]:
        """Return the tenants with waiting jobs."""
        return {lane.tenant for lane in waiting_lanes(self._store)}

    def depth(self, *, tenant: str | None = None, queue: str | None = None, most: int) -> int:
        """Count the waiting jobs of a tenant or of a queue, up to ``most``."""
        return self._store.depth(tenant=tenant, queue=queue, most=most)

    def tenant_limits(self, names: Collection[str], now: datetime) -> dict[str, list[LimitState]]:
        """Return the limits that apply to each of these tenants as a whole."""
        return tenant_limits(self._store, names, now)

    def limit_rules(self) -> list[Rule]:
        """Return the stored limits."""
        return self._store.rules()

    def limits_in_use(self) -> frozenset[str]:
        """Return the limits that pending jobs carry, and the rules that those limits are keys of."""
        return loads.waited_for(self._store)

    # Schedules ---------------------------------------------------------------------------------------------------------

    def schedules(self, *, tenant: str) -> list[ScheduleRow]:
        """Return all schedules, without parsing their triggers."""
        return self._store.schedules(tenant=tenant)

    def last_outcomes(self, schedules: Iterable[tuple[UUID, str]]) -> dict[UUID, list[Outcome]]:
        """Return time, job, state and reason of the last fires of these schedules (id and tenant), oldest first."""
        return loads.last_outcomes(self._store, schedules)

    def definition(self, id: UUID, *, tenant: str) -> Definition | None:
        """Return a definition, also a deleted one; None if it was never stored in this tenant."""
        rows = self._store.definitions(tenant=tenant, ids=[id], deleted=True)
        return rows[0] if rows else None

    def declared(self, *, tenant: str) -> DeclaredCounts:
        """Return the number of definitions and schedules, enabled and disabled."""
        return self._store.declared(tenant=tenant)
