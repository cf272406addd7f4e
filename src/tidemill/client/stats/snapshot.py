"""Snapshot of a store at one instant, and the reports, alerts and metrics computed from it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tidemill.client.documents import current_duties, duties_of
from tidemill.client.stats.ended_metrics import declared_families, ended_families, exemplars
from tidemill.client.stats.loads import (
    crew_of,
    due_schedules,
    is_living,
    liveness,
    open_breakers,
    unknown_tasks,
)
from tidemill.client.stats.reports import Health, Leader, Overview, PolicyArchival, QueueDepth
from tidemill.domain import alerts
from tidemill.domain.alerts import (
    LOST_FOR,
    Alert,
    AlertInput,
    FlowFact,
    LeaderFact,
    LostWorker,
    MismatchFact,
    Thresholds,
)
from tidemill.domain.archive_totals import BOUNDS, PolicySums, read_sums
from tidemill.domain.archive_totals import LEASE as ARCHIVE
from tidemill.domain.cluster import Lease, Worker, holder_of
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.graph import FlowState
from tidemill.domain.prometheus import MOST_LABELS, OTHER, Family, Histogram, bounded, combined, rendered
from tidemill.domain.records import PauseKind
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.states import HELD, LIVE, JobState
from tidemill.domain.stats import (
    FAILURES,
    Depth,
    EndedGroup,
    EndedGroups,
    Group,
    HeldRow,
    HeldSelection,
    SeriesStep,
    check_reach,
    is_stuck,
    mean,
)
from tidemill.errors import StoreError
from tidemill.stores.base import Store

if TYPE_CHECKING:
    from tidemill.client.core import Client

HOUR = timedelta(hours=1)
AT_MOST = 1_000
"""Upper bound up to which held jobs are counted."""

FLOW_WINDOW = HOUR
"""Period in which ended flows are counted."""

_STALLED = 20  # flows that alerts name

STUCK_LOOK = 10_000
"""Held jobs that are examined to find stuck ones."""

_NONE = timedelta(0)


class EndedCounts(NamedTuple):
    """Numbers of ended jobs. ``failed`` includes those that timed out or were dead-lettered."""

    total: int
    completed: int
    failed: int
    dead: int

    @classmethod
    def of(cls, states: Mapping[JobState, int]) -> EndedCounts:
        return cls(
            sum(states.values()),
            states.get(JobState.COMPLETED, 0),
            sum(states.get(state, 0) for state in FAILURES),
            states.get(JobState.DEAD_LETTERED, 0),
        )


class Snapshot:
    """A snapshot of one tenant's jobs in a store at one instant. Figures that several reports need are read once."""

    def __init__(self, store: Store, tenant: str, at: datetime) -> None:
        self.store, self.tenant, self.at = store, tenant, at
        self._depths: list[Depth] | None = None
        self._states: dict[timedelta, EndedGroups] = {}

    @classmethod
    def now(cls, store: Store, tenant: str) -> Snapshot:
        """Return a snapshot of this moment, by the store's own clock."""
        return cls(store, tenant, store.now())

    def depths(self) -> list[Depth]:
        if self._depths is None:
            self._depths = self.store.depths(tenant=self.tenant, now=self.at)
        return self._depths

    def ended(
        self, group: Group, window: timedelta, *, failures: bool = False, limit: int = 1000
    ) -> EndedGroups:
        check_reach("window", window)
        return self.store.ended_by(
            group, window, tenant=self.tenant, failures=failures, limit=limit, now=self.at
        )

    def states(self, window: timedelta) -> EndedGroups:
        """Return the jobs that ended within the window, by state."""
        if window not in self._states:
            self._states[window] = self.ended(Group.STATE, window)
        return self._states[window]

    def counts(self, window: timedelta) -> EndedCounts:
        """Return the number of jobs that ended within the window."""
        rows = self.states(window).rows
        return EndedCounts.of({JobState(row.name): row.total for row in rows if row.name is not None})

    def last_minute(self) -> SeriesStep:
        """Return the jobs that ended in the last full minute, which is the last full bar of ``throughput("1h")``."""
        minute = timedelta(minutes=1)
        return self.store.series(2 * minute, minute, tenant=self.tenant, now=self.at).slots[0]

    def holding(
        self, which: HeldSelection, *, longer_than: timedelta | None = None, limit: int = AT_MOST
    ) -> list[HeldRow]:
        if longer_than is not None:
            check_reach("longer_than", longer_than)
        return self.store.holding(
            which, tenant=self.tenant, longer_than=longer_than, limit=limit, now=self.at
        )


def stuck(look: Snapshot, quiet: timedelta, limit: int = AT_MOST) -> list[HeldRow]:
    """Return stuck jobs, oldest claim first."""
    found = look.holding(HeldSelection.ALL, longer_than=quiet, limit=STUCK_LOOK)
    return [held for held in found if is_stuck(held, look.at, quiet)][: max(limit, 0)]


def health(look: Snapshot, window: timedelta, quiet: timedelta) -> Health:
    """Return the counts that should be zero, or near it."""
    dead = look.store.count(JobFilter(look.tenant, states=frozenset({JobState.DEAD_LETTERED})))
    return Health(
        at=look.at,
        orphans=len(look.holding(HeldSelection.ORPHANED)),
        overdue=len(look.holding(HeldSelection.OVERDUE)),
        stuck=len(stuck(look, quiet)),
        late=sum(depth.late for depth in look.depths()),
        dead_letters=sum(dead.values()),
        failed=look.counts(window).failed,
        silent_workers=crew_of(look.store.workers(), look.at).late,
        at_most=AT_MOST,
    )


def overview(look: Snapshot, window: timedelta) -> Overview:
    """Return the summary. The cost of its reads does not grow with the history."""
    groups = look.states(window)
    ended, counts = _sum(groups), look.counts(window)
    minute = look.last_minute()
    depths = look.depths()
    oldest = min((depth.oldest_at for depth in depths if depth.oldest_at is not None), default=None)
    crew = crew_of(look.store.workers(), look.at)
    judged = counts.completed + counts.failed
    return Overview(
        at=look.at,
        since_at=groups.since_at,
        counts={state.value: number for state, number in _live(look).items()},
        depth=sum(depth.pending + depth.late for depth in depths),
        oldest_age=None if oldest is None else max(look.at - oldest, _NONE),
        workers=crew.alive + crew.late,
        slots=crew.slots,
        ended=counts.total,
        completed_per_minute=float(minute.completed),
        failed_per_minute=float(minute.failed),
        success_rate=counts.completed / judged if judged else None,
        duration=mean(ended.run_time, ended.ran),
        lag=mean(ended.lag, ended.ran),
        retried=ended.retried,
        **look.store.declared(tenant=look.tenant)._asdict(),
    )


def _live(look: Snapshot) -> dict[JobState, int]:
    """Count live jobs by state; the pending and held counts come from cached or faster reads."""
    counts = look.store.count(JobFilter(look.tenant, states=LIVE - HELD - {JobState.PENDING}))
    held = look.store.holders(tenant=look.tenant)
    counts[JobState.PENDING] = sum(depth.pending for depth in look.depths())
    counts[JobState.CLAIMED] = sum(holder.claimed for holder in held)
    counts[JobState.RUNNING] = sum(holder.running for holder in held)
    return {state: counts[state] for state in JobState if counts.get(state)}


def deepest(look: Snapshot, limit: int) -> list[QueueDepth]:
    """Return the number of pending jobs that are due in each queue, deepest first."""
    found = [
        QueueDepth(
            depth.queue,
            depth.pending + depth.late,
            depth.pending,
            depth.late,
            depth.oldest_at,
            None if depth.oldest_at is None else max(look.at - depth.oldest_at, _NONE),
        )
        for depth in look.depths()
    ]
    found.sort(key=lambda row: (-row.depth, row.queue))
    return found[:limit]


def unserved(name: str, store: Store, tenant: str) -> list[Alert]:
    """Return the alerts that another store of the app raises here: it does not answer, or no worker serves it."""
    try:
        waiting = store.depth(tenant=None if tenant == ALL_TENANTS else tenant, most=1)
        if not waiting:
            return []
        now = store.now()
        served = any(is_living(worker, now) for worker in store.workers())
    except StoreError as error:
        return [alerts.silent_store(name, error.message)]
    return alerts.unserved_store(name, waiting, served=served)


def raised(look: Snapshot, thresholds: Thresholds | None, window: timedelta) -> list[Alert]:
    """Return the values that exceed their threshold now."""
    settings = {setting.key: setting.value for setting in look.store.settings()}
    limits, wrong = alerts.read_thresholds(settings, thresholds)
    ended = look.counts(window)
    workers = look.store.workers()
    crew = crew_of(workers, look.at)
    pauses = look.store.pauses()
    paused = [pause for pause in pauses if pause.kind is PauseKind.ALL]
    leases = look.store.leases()
    flows = look.store.flow_totals(tenant=look.tenant, ended_after=look.at)
    unread = look.store.unread_signals() if look.tenant == ALL_TENANTS else None
    inputs = AlertInput(
        now=look.at,
        window=window,
        completed=ended.completed,
        failed=ended.failed,
        dead=ended.dead,
        queues=tuple(alerts.waiting_queues(look.depths(), pauses, look.tenant)),
        stuck=tuple(held.heard_at for held in stuck(look, timedelta(seconds=limits.stuck_after))),
        orphans=tuple(held.beat_at or held.claimed_at for held in look.holding(HeldSelection.ORPHANED)),
        workers=crew.alive + crew.late,
        lost=tuple(_lost(workers, look.at)) if look.tenant == ALL_TENANTS else (),
        enabled=settings.get("worker_enabled") is not False,
        paused_at=paused[0].paused_at if paused else None,
        leaders=tuple(
            LeaderFact(lease.name, lease.acquired_at, lease.beat_at, last_tick(lease), interval_of(lease))
            for lease in leases
            if not lease.is_of_app
            and lease.holder is not None
            and lease.acquired_at is not None
            and lease.beat_at is not None
        ),
        mismatches=tuple(
            MismatchFact(sums.policy, datetime.fromisoformat(sums.mismatch_at))
            for sums in archival_of(leases).values()
            if sums.mismatch_at is not None and look.tenant == ALL_TENANTS
        ),
        schedules=due_schedules(look.store, look.tenant, look.at),
        breakers=open_breakers(look.store, look.tenant, look.at),
        stalled=tuple(_stalled(look, timedelta(seconds=limits.flow_stalled))),
        unreachable=flows.unreachable,
        unreachable_at=flows.unreachable_at,
        unknown=tuple(unknown_tasks(look.store, workers, look.tenant, look.at)),
        unread=0 if unread is None else unread.unread,
        unread_at=None if unread is None else unread.oldest_at,
    )
    return wrong + alerts.alerts(inputs, limits)


def _stalled(look: Snapshot, patience: timedelta) -> Iterator[FlowFact]:
    """Yield flows without progress. Without a queue that is that old, there is none."""
    before = look.at - patience
    if any(depth.oldest_at is not None and depth.oldest_at < before for depth in look.depths()):
        for flow in look.store.stalled_flows(tenant=look.tenant, before=before, limit=_STALLED):
            yield FlowFact(str(flow.id), flow.name, before)


def _lost(workers: Iterable[Worker], now: datetime) -> Iterator[LostWorker]:
    """Yield workers that crashed or whose lease expired recently."""
    for worker in workers:
        if worker.beat_at is None or worker.expires_at is None or liveness(worker, now) != "gone":
            continue
        if now - worker.expires_at <= LOST_FOR:
            yield LostWorker(worker.name, worker.beat_at)


def leaders_of(look: Snapshot) -> list[Leader]:
    """Return every lease with the duty results that its holder reports."""
    workers = look.store.workers()
    rows = []
    for lease in look.store.leases():
        held, holder = lease.held(look.at), holder_of(lease, workers)
        duties = current_duties(lease, look.at).values()
        ticked = last_tick(lease) if duties else None
        rows.append(
            Leader(
                lease=lease.name,
                holder=lease.holder if held else None,
                holder_name=holder.name if held and holder is not None else None,
                term=lease.term,
                held_for=look.at - lease.acquired_at if held and lease.acquired_at is not None else None,
                silent_for=None if lease.beat_at is None else look.at - lease.beat_at,
                idle_for=None if ticked is None else max(look.at - ticked, _NONE),
                items=sum(_whole(duty.get("items")) for duty in duties),
                errors=sum(_whole(duty.get("errors")) for duty in duties),
            )
        )
    return rows


def archival_of(leases: Iterable[Lease]) -> dict[str, PolicySums]:
    """Return the totals of every archive policy, from the archive's lease."""
    return next((read_sums(lease.metadata) for lease in leases if lease.name == ARCHIVE), {})


def archival(look: Snapshot) -> list[PolicyArchival]:
    """Return the archive totals as rows, sorted by policy."""
    return [
        PolicyArchival(
            policy=sums.policy,
            tier=sums.tier,
            archived=sums.archived,
            verified=sums.verified,
            failed=sums.failed,
            changed=sums.changed,
            bytes=sums.bytes,
            age=timedelta(seconds=sums.age / sums.archived) if sums.archived else None,
            runs=sums.runs,
            duration=timedelta(seconds=sums.seconds / sums.runs) if sums.runs else None,
            errors=sums.errors,
            last_at=None if sums.last_at is None else datetime.fromisoformat(sums.last_at),
        )
        for _, sums in sorted(archival_of(look.store.leases()).items())
    ]


def last_tick(lease: Lease) -> datetime | None:
    """Return when one of the duties under this lease last ran, as its holder reports."""
    found = []
    for duty in duties_of(lease).values():
        try:
            ticked = datetime.fromisoformat(str(duty.get("last_tick")))
        except ValueError:
            continue
        if ticked.tzinfo is not None:
            found.append(ticked)
    return max(found, default=None)


def interval_of(lease: Lease) -> timedelta:
    """Return the interval of the duty under this lease that runs most often; zero if its holder reports none."""
    reported = [duty.get("every") for duty in duties_of(lease).values()]
    return timedelta(seconds=min((every for every in reported if isinstance(every, int | float)), default=0))


def _sum(groups: EndedGroups) -> EndedGroup:
    """Sum the groups into one."""
    rows = groups.rows
    return EndedGroup(
        name=None,
        total=sum(row.total for row in rows),
        completed=sum(row.completed for row in rows),
        failed=sum(row.failed for row in rows),
        cancelled=sum(row.cancelled for row in rows),
        retried=sum(row.retried for row in rows),
        attempts=sum(row.attempts for row in rows),
        most_attempts=max((row.most_attempts for row in rows), default=0),
        ran=sum(row.ran for row in rows),
        run_time=sum((row.run_time for row in rows), _NONE),
        longest=max((row.longest for row in rows), default=_NONE),
        lag=sum((row.lag for row in rows), _NONE),
        longest_lag=max((row.longest_lag for row in rows), default=_NONE),
        tenants=0,
        last_at=max((row.last_at for row in rows), default=groups.since_at),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


FRESH = 5.0
"""Seconds for which the rendered metrics are cached."""

RECENT = timedelta(minutes=5)


class Metrics:
    """The metrics of an app's store, read by one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._cached: dict[bool, tuple[float, str]] = {}

    def text(self, openmetrics: bool) -> str:
        """Return all metrics, at most five seconds old."""
        with self._lock:
            now = self._client.clock.monotonic()
            if openmetrics not in self._cached or not 0 <= now - self._cached[openmetrics][0] < FRESH:
                text = rendered(self._families(openmetrics), openmetrics=openmetrics)
                self._cached[openmetrics] = (now, text)
            return self._cached[openmetrics][1]

    def _families(self, traced: bool) -> list[Family | Histogram]:
        placement = self._client.placement
        if placement.is_single or placement.fixed is not None:
            return self._of_store(self._client.store(None), traced)
        parts: dict[str, Sequence[Family | Histogram]] = {}
        answers = Family("tidemill_store_up", "Whether a store answers: 1, or 0.")
        for name in placement.live:
            try:
                parts[name] = self._of_store(self._client.store(name), traced)
            except StoreError:
                answers.add(0, store=name)
            else:
                answers.add(1, store=name)
        return [answers, *combined("store", parts)]

    def _of_store(self, store: Store, traced: bool) -> list[Family | Histogram]:
        at, totals = store.now(), store.ended_ever()
        look = Snapshot(store, ALL_TENANTS, at)
        leases = store.leases()
        return [
            *_queues(look.depths(), at),
            _jobs(look),
            *_signals(store, at),
            *_flows(store, at, leases),
            *_crew(look),
            *_leases(leases, at),
            *_recent(look.ended(Group.TASK, RECENT).rows),
            *ended_families(totals, exemplars(store, totals) if traced else {}),
            *declared_families(store.declared(tenant=ALL_TENANTS)),
            *_archival(archival_of(leases)),
            _history(look),
        ]


def _queues(depths: list[Depth], at: datetime) -> list[Family]:
    deep = Family("tidemill_queue_depth", "Jobs that are due and wait for a worker, by queue.")
    for name, number in bounded((depth.queue, depth.pending + depth.late) for depth in depths):
        deep.add(number, queue=name)
    shown = {labels["queue"] for labels, _ in deep.values}
    ages: dict[str, float] = {}
    for depth in depths:
        if depth.oldest_at is not None:
            name = depth.queue if depth.queue in shown else OTHER
            ages[name] = max(ages.get(name, 0.0), (at - depth.oldest_at).total_seconds())
    old = Family("tidemill_queue_age_seconds", "How long the first job in line has been due, by queue.")
    for name, age in sorted(ages.items()):
        old.add(age, queue=name)
    late = Family("tidemill_jobs_late", "Jobs that are due and were not promoted yet.")
    late.add(sum(depth.late for depth in depths))
    return [deep, old, late]


def _jobs(look: Snapshot) -> Family:
    """Count live and dead-lettered jobs. Completed jobs are left out, because counting them slows down as they grow."""
    jobs = Family("tidemill_jobs", "Jobs by status: all that have not ended, and the dead-lettered.")
    counts = look.store.count(JobFilter(ALL_TENANTS, states=LIVE))
    dead = frozenset({JobState.DEAD_LETTERED})
    counts |= look.store.count(JobFilter(ALL_TENANTS, states=dead))
    for state in JobState:
        if state in LIVE | dead:
            jobs.add(counts.get(state, 0), status=state.value)
    return jobs


def _signals(store: Store, at: datetime) -> list[Family]:
    unread = store.unread_signals()
    count = Family("tidemill_signals_unread", "Signals that their jobs have not taken.")
    count.add(unread.unread)
    age = Family("tidemill_signals_age_seconds", "How long ago the oldest of them was sent.")
    age.add(0.0 if unread.oldest_at is None else max((at - unread.oldest_at).total_seconds(), 0.0))
    return [count, age]


def _flows(store: Store, at: datetime, leases: Sequence[Lease]) -> list[Family]:
    totals = store.flow_totals(tenant=ALL_TENANTS, ended_after=at - FLOW_WINDOW)
    flows = Family("tidemill_flows", "Flows that run, and flows that ended in the last hour, by status.")
    for state in FlowState:
        flows.add(getattr(totals, state.value), status=state.value)
    waiting = Family("tidemill_waiting_jobs", "Waiting jobs, by what they wait for.")
    waiting.add(totals.waiting_for_jobs, kind="jobs")
    waiting.add(totals.waiting_for_signals, kind="signal")
    waiting.add(totals.waiting_for_events, kind="event")
    waiting.add(totals.sleeping, kind="sleep")
    unreachable = Family(
        "tidemill_unreachable_jobs", "Waiting jobs that can no longer start and are not skipped yet."
    )
    unreachable.add(totals.unreachable)
    repaired = Family(
        "tidemill_joins_repaired_total",
        "Joins whose counts were wrong, since the leader began; any value but zero is a defect.",
        "counter",
    )
    repaired.add(sum(_whole(duties_of(lease).get("recount", {}).get("items")) for lease in leases))
    return [flows, waiting, unreachable, repaired]


def _crew(look: Snapshot) -> list[Family]:
    crew = crew_of(look.store.workers(), look.at)
    workers = Family(
        "tidemill_workers",
        "Workers: alive, late with their heartbeat, or gone (crashed, or their lease ran out, in the last hour).",
    )
    for name in ("alive", "late", "gone"):
        workers.add(getattr(crew, name), liveness=name)
    slots = Family("tidemill_worker_slots", "Jobs that the living workers can run at once.")
    slots.add(crew.slots)
    return [workers, slots]


def _leases(leases: Sequence[Lease], at: datetime) -> list[Family]:
    held = Family("tidemill_lease_held", "Whether a lease has a holder: 1, or 0.")
    term = Family("tidemill_lease_terms_total", "How often a lease has changed hands.", "counter")
    for lease in leases[:MOST_LABELS]:
        # The archive's lease is held only during a run, and an unused lease is never held.
        if lease.name == ARCHIVE or lease.unused_by is not None:
            continue
        held.add(int(lease.held(at)), lease=lease.name)
        term.add(lease.term, lease=lease.name)
    return [held, term]


def _recent(rows: list[EndedGroup]) -> list[Family]:
    """Return outcomes, average run time and average lag of recently ended jobs, by task."""
    ended = Family("tidemill_recent_jobs", "Jobs that ended in the last five minutes, by task and outcome.")
    took = Family("tidemill_recent_duration_seconds", "How long they ran on average, by task.")
    lag = Family(
        "tidemill_recent_lag_seconds", "How long after they were due they started on average, by task."
    )
    for row in rows[:MOST_LABELS]:
        for outcome in ("completed", "failed", "cancelled"):
            ended.add(getattr(row, outcome), task=row.name or "", outcome=outcome)
        for family, total in ((took, row.run_time), (lag, row.lag)):
            if (average := mean(total, row.ran)) is not None:
                family.add(average.total_seconds(), task=row.name or "")
    rest = rows[MOST_LABELS:]
    for outcome in ("completed", "failed", "cancelled") if rest else ():
        ended.add(sum(getattr(row, outcome) for row in rest), task=OTHER, outcome=outcome)
    return [ended, took, lag]


def _archival(policies: Mapping[str, PolicySums]) -> list[Family | Histogram]:
    """Return archived jobs, run times and failures by policy. The store keeps these totals, so they are monotonic."""
    moved = Family(
        "tidemill_jobs_archived_total", "Jobs that were archived, by policy, status and tier.", "counter"
    )
    took = Histogram(
        "tidemill_jobs_archival_duration_seconds", "How long runs took, by policy.", bounds=BOUNDS
    )
    counted = {
        name: Family(f"tidemill_archive_{name}_total", help_text, "counter")
        for name, help_text in (
            ("verified", "Copies that passed verification, by policy."),
            ("failed", "Copies that failed verification, by policy; their jobs were kept."),
            ("errors", "Runs that a store error ended, by policy."),
            ("bytes", "The size of the documents that were archived, by policy."),
        )
    }
    age = Family(
        "tidemill_archive_age_seconds_total",
        "Seconds between the ends of jobs and their archiving, added up, by policy.",
        "counter",
    )
    for name, sums in sorted(policies.items()):
        for status, number in sorted(sums.statuses.items()):
            moved.add(number, policy=name, status=status, tier=sums.tier)
        took.add(sums.buckets, sums.seconds, policy=name)
        for which, family in counted.items():
            family.add(getattr(sums, which), policy=name)
        age.add(sums.age, policy=name)
    return [moved, took, *counted.values(), age]


def _history(look: Snapshot) -> Family:
    """Return the age of the oldest ended job that is not archived; steady growth means that archiving has stopped."""
    oldest = look.store.archivable(Selection(Selector(), limit=1, members=True), policy="", tier="")
    age = Family("tidemill_history_age_seconds", "How long ago the oldest job ended that is not archived.")
    age.add((look.at - oldest[0].finished_at).total_seconds() if oldest else 0)
    return age
