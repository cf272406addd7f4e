"""Snapshot of a store at one instant, and the reports and alerts computed from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.client.documents import current_duties, duties_of
from tidemill.client.stats.reports import Health, Leader, Overview, PolicyArchival, QueueDepth
from tidemill.client.stats.store_stats import crew_of, liveness
from tidemill.domain import alerts
from tidemill.domain.alerts import LOST_FOR, Alert, AlertInput, LeaderFact, LostWorker, QueueFact, Thresholds
from tidemill.domain.archive_totals import LEASE as ARCHIVE
from tidemill.domain.archive_totals import PolicySums, read_sums
from tidemill.domain.cluster import Lease, Worker, holder_of
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD, LIVE, JobState
from tidemill.domain.stats import (
    FAILURES,
    LOOK,
    Depth,
    EndedGroup,
    EndedGroups,
    FailedJob,
    Group,
    HeldRow,
    HeldSelection,
    SeriesStep,
    check_reach,
    is_stuck,
    mean,
)
from tidemill.stores.base import Store

HOUR = timedelta(hours=1)
AT_MOST = 1_000
"""Upper bound up to which held jobs are counted."""

STUCK_LOOK = 10_000
"""Held jobs that are examined to find stuck ones."""

_NONE = timedelta(0)


class EndedCounts(NamedTuple):
    """Exact numbers of ended jobs. ``failed`` includes those that timed out or were dead-lettered."""

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
        self._counts: dict[timedelta, EndedCounts] = {}

    @classmethod
    def now(cls, store: Store, tenant: str) -> Snapshot:
        """Return a snapshot of this moment, by the store's own clock."""
        return cls(store, tenant, store.now())

    def depths(self) -> list[Depth]:
        if self._depths is None:
            self._depths = self.store.depths(tenant=self.tenant, now=self.at)
        return self._depths

    def ended(
        self, group: Group, window: timedelta, *, failures: bool = False, look: int = LOOK, limit: int = 1000
    ) -> EndedGroups:
        check_reach("window", window)
        return self.store.ended_by(
            group, window, tenant=self.tenant, failures=failures, look=look, limit=limit, now=self.at
        )

    def troubles(self, window: timedelta, limit: int) -> list[FailedJob]:
        check_reach("window", window)
        return self.store.troubles(window, tenant=self.tenant, limit=limit, now=self.at)

    def states(self, window: timedelta) -> EndedGroups:
        """Return the jobs that ended within the window, by state."""
        if window not in self._states:
            self._states[window] = self.ended(Group.STATE, window)
        return self._states[window]

    def counts(self, window: timedelta) -> EndedCounts:
        """Return the exact number of jobs that ended within the window."""
        if window not in self._counts:
            check_reach("window", window)
            self._counts[window] = EndedCounts.of(
                self.store.count_ended(window, tenant=self.tenant, now=self.at)
            )
        return self._counts[window]

    def last_minute(self) -> SeriesStep:
        """Return the jobs that ended in the last full minute, which is the last full bar of ``throughput("1h")``."""
        minute = timedelta(minutes=1)
        return self.store.series(2 * minute, minute, tenant=self.tenant, samples=0, now=self.at).slots[0]

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
    tally = look.states(window)
    ended, counts = _sum(tally), look.counts(window)
    minute = look.last_minute()
    depths = look.depths()
    oldest = min((depth.oldest_at for depth in depths if depth.oldest_at is not None), default=None)
    crew = crew_of(look.store.workers(), look.at)
    judged = counts.completed + counts.failed
    return Overview(
        at=look.at,
        since_at=tally.since_at,
        sampled=tally.sampled,
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
            each.queue,
            each.pending + each.late,
            each.pending,
            each.late,
            each.oldest_at,
            None if each.oldest_at is None else max(look.at - each.oldest_at, _NONE),
        )
        for each in look.depths()
    ]
    found.sort(key=lambda row: (-row.depth, row.queue))
    return found[:limit]


def raised(look: Snapshot, thresholds: Thresholds | None, window: timedelta) -> list[Alert]:
    """Return the values that exceed their threshold now."""
    settings = {setting.key: setting.value for setting in look.store.settings()}
    limits, wrong = alerts.read_thresholds(settings, thresholds)
    ended = look.counts(window)
    workers = look.store.workers()
    crew = crew_of(workers, look.at)
    paused = [pause for pause in look.store.pauses() if pause.kind is PauseKind.ALL]
    facts = AlertInput(
        now=look.at,
        window=window,
        completed=ended.completed,
        failed=ended.failed,
        dead=ended.dead,
        queues=tuple(
            QueueFact(depth.queue, depth.pending + depth.late, depth.oldest_at) for depth in look.depths()
        ),
        stuck=tuple(held.heard_at for held in stuck(look, timedelta(seconds=limits.stuck_after))),
        orphans=tuple(held.beat_at or held.claimed_at for held in look.holding(HeldSelection.ORPHANED)),
        workers=crew.alive + crew.late,
        lost=tuple(_lost(workers, look.at)) if look.tenant == ALL_TENANTS else (),
        enabled=settings.get("worker_enabled") is not False,
        paused_at=paused[0].paused_at if paused else None,
        leaders=tuple(
            LeaderFact(lease.name, lease.acquired_at, lease.beat_at, last_tick(lease))
            for lease in look.store.leases()
            if lease.holder is not None and lease.acquired_at is not None and lease.beat_at is not None
        ),
    )
    return wrong + alerts.alerts(facts, limits)


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
                items=sum(_whole(facts.get("items")) for facts in duties),
                errors=sum(_whole(facts.get("errors")) for facts in duties),
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
    for facts in duties_of(lease).values():
        try:
            ticked = datetime.fromisoformat(str(facts.get("last_tick")))
        except ValueError:
            continue
        if ticked.tzinfo is not None:
            found.append(ticked)
    return max(found, default=None)


def _sum(tally: EndedGroups) -> EndedGroup:
    """Sum all rows of a tally into one."""
    rows = tally.rows
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
        last_at=max((row.last_at for row in rows), default=tally.since_at),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
