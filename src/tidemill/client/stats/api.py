"""``app.stats``: operators' questions about a store."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client._base import async_twin
from tidemill.client.core import Client
from tidemill.client.error_groups import ErrorGroup, error_groups, read_reach
from tidemill.client.stats import snapshot
from tidemill.client.stats.loads import is_living, liveness
from tidemill.client.stats.reports import (
    ActiveWorker,
    DeadLetter,
    GroupThroughput,
    Health,
    HeldJobReport,
    Leader,
    Overview,
    PolicyArchival,
    QueueDepth,
    QueueDepthStep,
    Report,
    Row,
    StatusCount,
    TaskDuration,
    TaskFailures,
    TaskLag,
    TaskRetries,
    TenantLoad,
    ThroughputStep,
    WorkerPerformance,
)
from tidemill.client.stats.snapshot import HOUR, Metrics, Snapshot, leaders_of
from tidemill.domain.alerts import Alert, Severity, Thresholds
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    EndedGroups,
    Group,
    HeldRow,
    HeldSelection,
    mean,
)
from tidemill.errors import BadFilter
from tidemill.shards.absence import says_missing
from tidemill.tasks.ambient import current_tenant

DAY = timedelta(hours=24)
ACTIVE = timedelta(minutes=5)
STUCK = timedelta(seconds=300)
SLOW = timedelta(seconds=60)
WINDOWS = {
    "1h": (HOUR, timedelta(minutes=1)),
    "24h": (DAY, timedelta(minutes=15)),
    "7d": (timedelta(days=7), HOUR),
}
"""The named windows of ``throughput``, each with its step."""

NAMED = (
    "queue_depth",
    "depth_history",
    "active_workers",
    "orphans",
    "overdue",
    "stuck",
    "lag",
    "failures",
    "worker_performance",
    "retries",
    "by_status",
    "durations",
    "tenants",
    "throughput",
    "errors",
    "dead_letters",
    "leaders",
    "archival",
    "health",
)
"""The questions that the command line and the HTTP API offer by name."""


class StatsApi:
    """The statistics of an app's store.

    Each method covers the given tenant, else the current tenant if there is one, else all tenants. Every method has an
    asynchronous twin with the prefix ``a``.

    >>> from tidemill import App
    >>> app = App("memory://")
    >>> list(app.stats.queue_depth())
    []
    >>> app.close()
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._metrics = Metrics(client)

    def metrics(self, *, openmetrics: bool = False) -> str:
        """Return the store's metrics in Prometheus text format; at most five seconds old.

        With ``openmetrics``, they are in the format of OpenMetrics, and buckets have the trace id of a recent job.
        """
        return self._metrics.text(openmetrics)

    @says_missing
    def queue_depth(
        self, *, tenant: str | None = None, limit: int = 100, store: str | None = None
    ) -> Report[QueueDepth]:
        """Return the number of pending jobs that are due in each queue, deepest first."""
        look = self._look(tenant, store)
        return Report(look.at, snapshot.deepest(look, limit))

    @says_missing
    def depth_history(
        self,
        window: Duration = "1h",
        step: Duration | None = None,
        *,
        queue: str | None = None,
        limit: int = 20,
        store: str | None = None,
    ) -> Report[QueueDepthStep]:
        """Return the depth of queues over time, of all tenants: one queue, or the ``limit`` deepest ones.

        Each row has the highest values of its step. A worker takes one sample per minute; steps without a sample are left
        out, unless the queue was empty. Samples are kept like the counts of ``throughput``.
        """
        length, steps = read_window(window)
        look = self._look(ALL_TENANTS, store)
        series = look.store.depth_series(
            length, _span("step", step) if step is not None else steps, queue=queue, limit=limit, now=look.at
        )
        rows = [
            QueueDepthStep(name, at, cell.pending, cell.scheduled, cell.oldest)
            for name, cells in series.queues.items()
            for at, cell in zip(series.steps, cells, strict=True)
            if cell is not None
        ]
        return Report(look.at, rows, series.steps[0])

    @says_missing
    def active_workers(self, window: Duration = ACTIVE, *, store: str | None = None) -> Report[ActiveWorker]:
        """Return workers that are alive, hold jobs or ended some within the window, with counts; busiest first."""
        look = self._look(ALL_TENANTS, store)
        known = {worker.id: worker for worker in look.store.workers()}
        holders = {holder.worker: holder for holder in look.store.holders(tenant=ALL_TENANTS)}
        groups = look.ended(Group.WORKER, _span("window", window), limit=1000)
        ended = {UUID(row.name): row for row in groups.rows if row.name is not None}
        living = {id for id, worker in known.items() if is_living(worker, look.at)}
        rows = []
        for id in living | set(holders) | set(ended):
            worker, held, done = known.get(id), holders.get(id), ended.get(id)
            rows.append(
                ActiveWorker(
                    worker=id,
                    name=worker.name if worker else None,
                    host=worker.host if worker else None,
                    liveness=liveness(worker, look.at) if worker else "gone",
                    slots=worker.concurrency if worker else 0,
                    claimed=held.claimed if held else 0,
                    running=held.running if held else 0,
                    ended=done.total if done else 0,
                    failed=done.failed if done else 0,
                    last_claim_at=held.last_claim_at if held else None,
                    beat_at=worker.beat_at if worker else None,
                )
            )
        rows.sort(key=lambda row: (-(row.claimed + row.running), -row.ended, row.worker))
        return Report(look.at, rows, groups.since_at)

    @says_missing
    def orphans(
        self, *, tenant: str | None = None, limit: int = 100, store: str | None = None
    ) -> Report[HeldJobReport]:
        """Return jobs held by workers that are gone, with the time since their last heartbeat; oldest claim first."""
        return self._held(self._look(tenant, store), HeldSelection.ORPHANED, None, limit)

    @says_missing
    def overdue(
        self, *, tenant: str | None = None, limit: int = 100, store: str | None = None
    ) -> Report[HeldJobReport]:
        """Return jobs that have been running for longer than their timeout."""
        return self._held(self._look(tenant, store), HeldSelection.OVERDUE, None, limit)

    @says_missing
    def stuck(
        self,
        longer_than: Duration = STUCK,
        *,
        tenant: str | None = None,
        limit: int = 100,
        store: str | None = None,
    ) -> Report[HeldJobReport]:
        """Return jobs without a start or progress for longer than ``longer_than``.

        A job with a timeout must also have used 80 % of it.
        """
        look = self._look(tenant, store)
        found = snapshot.stuck(look, _span("longer_than", longer_than), limit)
        return Report(look.at, [_held_job(held, look.at) for held in found])

    @says_missing
    def lag(
        self,
        window: Duration = HOUR,
        longer_than: Duration = SLOW,
        *,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Report[TaskLag]:
        """Return tasks whose average delay between due time and start exceeds ``longer_than``; longest delay first."""
        look = self._look(tenant, store)
        groups = look.ended(Group.TASK, _span("window", window))
        least = _span("longer_than", longer_than)
        rows = [
            TaskLag(row.name or "", row.ran, lag, row.longest_lag)
            for row in groups.rows
            if (lag := mean(row.lag, row.ran)) is not None and lag > least
        ]
        return _report(look, groups, sorted(rows, key=lambda row: (-row.lag, row.task)))

    @says_missing
    def failures(
        self,
        window: Duration = DAY,
        *,
        tenant: str | None = None,
        limit: int = 100,
        store: str | None = None,
    ) -> Report[TaskFailures]:
        """Return failures by task, with the number of affected tenants; most failures first."""
        look = self._look(tenant, store)
        groups = look.ended(Group.TASK, _span("window", window), failures=True, limit=limit)
        rows = [TaskFailures(row.name or "", row.total, row.tenants, row.last_at) for row in groups.rows]
        return _report(look, groups, rows)

    @says_missing
    def worker_performance(
        self,
        window: Duration = HOUR,
        *,
        tenant: str | None = None,
        limit: int = 100,
        store: str | None = None,
    ) -> Report[WorkerPerformance]:
        """Return the number of jobs that each worker ended, and their run times; most jobs first."""
        look = self._look(tenant, store)
        names = {worker.id: worker.name for worker in look.store.workers()}
        groups = look.ended(Group.WORKER, _span("window", window), limit=limit)
        rows = [
            WorkerPerformance(
                worker := UUID(row.name),
                names.get(worker),
                row.total,
                row.completed,
                row.failed,
                mean(row.run_time, row.ran),
                row.longest,
            )
            for row in groups.rows
            if row.name is not None
        ]
        return _report(look, groups, rows)

    @says_missing
    def retries(
        self, window: Duration = DAY, *, tenant: str | None = None, store: str | None = None
    ) -> Report[TaskRetries]:
        """Return how many attempts jobs took, by task; most retried first."""
        look = self._look(tenant, store)
        groups = look.ended(Group.TASK, _span("window", window))
        rows = [
            TaskRetries(row.name or "", row.total, row.retried, row.attempts / row.total, row.most_attempts)
            for row in groups.rows
        ]
        return _report(look, groups, sorted(rows, key=lambda row: (-row.retried, row.task)))

    @says_missing
    def by_status(self, *, tenant: str | None = None, store: str | None = None) -> Report[StatusCount]:
        """Return the number of jobs in each state."""
        look = self._look(tenant, store)
        counts = look.store.standing(tenant=look.tenant)
        return Report(look.at, [StatusCount(state, counts[state]) for state in JobState if state in counts])

    @says_missing
    def durations(
        self, window: Duration = HOUR, *, tenant: str | None = None, store: str | None = None
    ) -> Report[TaskDuration]:
        """Return how long jobs run, by task; longest average first."""
        look = self._look(tenant, store)
        groups = look.ended(Group.TASK, _span("window", window))
        rows = [
            TaskDuration(row.name or "", row.ran, duration, row.longest)
            for row in groups.rows
            if (duration := mean(row.run_time, row.ran)) is not None
        ]
        return _report(look, groups, sorted(rows, key=lambda row: (-row.duration, row.task)))

    @says_missing
    def tenants(
        self,
        window: Duration = DAY,
        *,
        tenant: str | None = None,
        limit: int = 100,
        store: str | None = None,
    ) -> Report[TenantLoad]:
        """Return jobs, failure rate, average and total run time by tenant; most jobs first."""
        look = self._look(tenant, store)
        groups = look.ended(Group.TENANT, _span("window", window), limit=limit)
        rows = [
            TenantLoad(
                row.name or "",
                row.total,
                row.completed,
                row.failed,
                row.failed / row.total,
                mean(row.run_time, row.ran),
                row.run_time,
            )
            for row in groups.rows
        ]
        return _report(look, groups, rows)

    @says_missing
    def throughput(
        self,
        window: Duration = "1h",
        step: Duration | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Report[ThroughputStep]:
        """Return ended jobs per step: ``"1h"`` by minute, ``"24h"`` by quarter hour, ``"7d"`` by hour, or as given.

        ``queue`` and ``task`` count only their jobs.

        Counts are kept per minute for 3 hours, per quarter hour for 2 days, per hour for 14 days, and then per day. A
        step is a multiple of what the window needs.
        """
        length, steps = read_window(window)
        look = self._look(tenant, store)
        series = look.store.series(
            length,
            _span("step", step) if step is not None else steps,
            tenant=look.tenant,
            queue=queue,
            task=task,
            now=look.at,
        )
        rows = [
            ThroughputStep(
                slot.at, slot.total, slot.completed, slot.failed, slot.cancelled,
                slot.times.run.quantile(0.5), slot.times.run.quantile(0.95),
                slot.times.wait.quantile(0.5), slot.times.wait.quantile(0.95),
            )
            for slot in series.slots
        ]  # fmt: skip
        return Report(look.at, rows, series.since_at)

    @says_missing
    def throughput_by(
        self,
        group: str,
        window: Duration = "1h",
        step: Duration | None = None,
        *,
        limit: int = 8,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Report[GroupThroughput]:
        """Return ended and failed jobs per step of the tasks, queues, tenants or workers with the most jobs, most jobs first."""
        if group not in ("task", "queue", "tenant", "worker"):
            raise BadFilter(f"group is {group!r}; choose task, queue, tenant or worker", field="group")
        length, steps = read_window(window)
        look = self._look(tenant, store)
        series = look.store.series_by(
            Group(group),
            length,
            _span("step", step) if step is not None else steps,
            tenant=look.tenant,
            limit=limit,
            now=look.at,
        )
        rows = [
            GroupThroughput(name, [total for total, _ in cells], [failed for _, failed in cells])
            for name, cells in series.groups.items()
        ]
        return Report(look.at, rows, series.steps[0])

    @says_missing
    def errors(
        self, window: Duration = DAY, *, tenant: str | None = None, limit: int = 50, store: str | None = None
    ) -> Report[ErrorGroup]:
        """Return failures by their cause; most frequent first. ``app.errors`` also changes their status."""
        look = self._look(tenant, store)
        reach = read_reach(window)
        return Report(
            look.at,
            error_groups(look.store, look.at, reach, tenant=look.tenant, limit=limit),
            look.at - reach,
        )

    @says_missing
    def dead_letters(
        self, *, tenant: str | None = None, limit: int = 100, store: str | None = None
    ) -> Report[DeadLetter]:
        """Return the latest jobs that have exhausted their attempts."""
        look = self._look(tenant, store)
        where = JobFilter(look.tenant, states=frozenset({JobState.DEAD_LETTERED}))
        rows = [
            DeadLetter(
                job.id, job.task, job.queue, job.tenant, job.attempt, job.crashes, job.finished_at, job.reason
            )
            for job in look.store.jobs(where, limit=limit).items
        ]
        return Report(look.at, rows)

    @says_missing
    def leaders(self, *, store: str | None = None) -> Report[Leader]:
        """Return every lease: its holder, the time it was acquired, and the results of its duties."""
        look = self._look(ALL_TENANTS, store)
        return Report(look.at, leaders_of(look))

    @says_missing
    def archival(self, *, store: str | None = None) -> Report[PolicyArchival]:
        """Return the number of jobs that each archive policy has moved so far, in all its runs."""
        look = self._look(ALL_TENANTS, store)
        return Report(look.at, snapshot.archival(look))

    @says_missing
    def health(
        self, window: Duration = HOUR, *, tenant: str | None = None, store: str | None = None
    ) -> Health:
        """Return the counts that should be zero, or near it, in a healthy system."""
        return snapshot.health(self._look(tenant, store), _span("window", window), STUCK)

    @says_missing
    def overview(
        self, window: Duration = HOUR, *, tenant: str | None = None, store: str | None = None
    ) -> Overview:
        """Return one summary: waiting and running jobs, workers, and jobs that ended within the window."""
        return snapshot.overview(self._look(tenant, store), _span("window", window))

    def alerts(
        self,
        thresholds: Thresholds | None = None,
        *,
        window: Duration = HOUR,
        tenant: str | None = None,
        store: str | None = None,
    ) -> list[Alert]:
        """Return the values that exceed their threshold, critical ones first.

        Thresholds come from the settings ``alerts.…`` unless they are passed. They are evaluated for one store. Without
        ``store``, other stores of the app raise alerts as well if they do not answer, or if jobs wait there without a
        living worker.
        """
        placement = self._client.placement
        here = self._look(tenant, store)
        found = snapshot.raised(here, thresholds, _span("window", window))
        if store is None and placement.fixed is None and not placement.is_single:
            others = placement.nearest(self._client.store_name(None))[1:]
            found += [
                alert
                for name in others
                for alert in snapshot.unserved(name, self._client.store(name), here.tenant)
            ]
            found.sort(key=lambda alert: alert.severity is not Severity.CRITICAL)
        return found

    def _look(self, tenant: str | None, store: str | None) -> Snapshot:
        return Snapshot.now(self._client.reader(store), tenant or current_tenant() or ALL_TENANTS)

    def _held(
        self, look: Snapshot, which: HeldSelection, longer_than: timedelta | None, limit: int
    ) -> Report[HeldJobReport]:
        found = look.holding(which, longer_than=longer_than, limit=limit)
        return Report(look.at, [_held_job(held, look.at) for held in found])

    # Async twins -------------------------------------------------------------------------------------------------------

    ametrics = async_twin(metrics)
    aqueue_depth = async_twin(queue_depth)
    adepth_history = async_twin(depth_history)
    aactive_workers = async_twin(active_workers)
    aorphans = async_twin(orphans)
    aoverdue = async_twin(overdue)
    astuck = async_twin(stuck)
    alag = async_twin(lag)
    afailures = async_twin(failures)
    aworker_performance = async_twin(worker_performance)
    aretries = async_twin(retries)
    aby_status = async_twin(by_status)
    adurations = async_twin(durations)
    atenants = async_twin(tenants)
    athroughput = async_twin(throughput)
    athroughput_by = async_twin(throughput_by)
    aerrors = async_twin(errors)
    adead_letters = async_twin(dead_letters)
    aleaders = async_twin(leaders)
    aarchival = async_twin(archival)
    ahealth = async_twin(health)
    aoverview = async_twin(overview)
    aalerts = async_twin(alerts)


def read_window(window: Duration) -> tuple[timedelta, timedelta]:
    """Return a window and its step."""
    if isinstance(window, str) and window in WINDOWS:
        return WINDOWS[window]
    span = _span("window", window)
    if span <= timedelta(0):
        raise BadFilter(f"the window is {span}; give a duration longer than zero")
    return span, max(span / 60, timedelta(seconds=1))


def _span(name: str, given: Duration) -> timedelta:
    return read_duration(name, given, error=BadFilter, field=name)


def _report(look: Snapshot, groups: EndedGroups, rows: list[Row]) -> Report[Row]:
    return Report(look.at, rows, groups.since_at)


def _held_job(held: HeldRow, now: datetime) -> HeldJobReport:
    held_for = now - (held.started_at or held.claimed_at)
    over = None if held.timeout is None or held.started_at is None else now - held.started_at - held.timeout
    return HeldJobReport(
        id=held.id,
        task=held.task,
        queue=held.queue,
        tenant=held.tenant,
        status=held.state,
        attempt=held.attempt,
        worker=held.worker,
        worker_name=held.worker_name,
        started_at=held.started_at,
        held_for=held_for,
        quiet_for=max(now - held.heard_at, timedelta(0)),
        timeout=held.timeout,
        over=over if over is not None and over >= timedelta(0) else None,
        silent_for=None if held.beat_at is None else now - held.beat_at,
    )
