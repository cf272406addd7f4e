"""One look at a store at one instant, and what is put together of several: health, overview, leaders, the facts for alerts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.client.documents import duties_of
from tidemill.client.reports import Health, Leader, Overview, PolicyArchival, QueueDepth
from tidemill.client.stats import crew_of
from tidemill.domain import alerts
from tidemill.domain.alerts import Alert, LeaderFact, QueueFact, Situation, Thresholds
from tidemill.domain.archival import LEASE as ARCHIVE
from tidemill.domain.archival import PolicySums, read_sums
from tidemill.domain.cluster import Lease
from tidemill.domain.filters import JobFilter
from tidemill.domain.insight import LOOK, Depth, Ended, Group, Held, Tally, Trouble, Which, check_reach, mean
from tidemill.domain.ledger import PauseKind
from tidemill.domain.states import HELD, LIVE, JobState
from tidemill.stores.base import Store

HOUR = timedelta(hours=1)
AT_MOST = 1_000
"""Held jobs are counted up to here."""

_NONE = timedelta(0)


class Look:
    """Whose jobs are looked at, where, and when. What several questions about it need is read once."""

    def __init__(self, store: Store, tenant: str, at: datetime) -> None:
        self.store, self.tenant, self.at = store, tenant, at
        self._depths: list[Depth] | None = None
        self._states: dict[timedelta, Tally] = {}

    @classmethod
    def now(cls, store: Store, tenant: str) -> Look:
        """A look at this moment, by the store's own clock."""
        return cls(store, tenant, store.now())

    def depths(self) -> list[Depth]:
        if self._depths is None:
            self._depths = self.store.depths(tenant=self.tenant, now=self.at)
        return self._depths

    def ended(
        self, group: Group, window: timedelta, *, failures: bool = False, look: int = LOOK, limit: int = 1000
    ) -> Tally:
        check_reach("window", window)
        return self.store.ended_by(
            group, window, tenant=self.tenant, failures=failures, look=look, limit=limit, now=self.at
        )

    def troubles(self, window: timedelta, limit: int) -> list[Trouble]:
        check_reach("window", window)
        return self.store.troubles(window, tenant=self.tenant, limit=limit, now=self.at)

    def states(self, window: timedelta) -> Tally:
        """What ended within the window, by state."""
        if window not in self._states:
            self._states[window] = self.ended(Group.STATE, window)
        return self._states[window]

    def holding(
        self, which: Which, *, longer_than: timedelta | None = None, limit: int = AT_MOST
    ) -> list[Held]:
        if longer_than is not None:
            check_reach("longer_than", longer_than)
        return self.store.holding(
            which, tenant=self.tenant, longer_than=longer_than, limit=limit, now=self.at
        )


def health(look: Look, window: timedelta, stuck: timedelta) -> Health:
    """What should be nothing, or near it."""
    dead = look.store.count(JobFilter(look.tenant, states=frozenset({JobState.DEAD_LETTERED})))
    ended = _sum(look.states(window))
    return Health(
        at=look.at,
        orphans=len(look.holding(Which.ORPHANED)),
        overdue=len(look.holding(Which.OVERDUE)),
        stuck=len(look.holding(Which.ALL, longer_than=stuck)),
        late=sum(depth.late for depth in look.depths()),
        dead_letters=sum(dead.values()),
        failed=ended.failed,
        silent_workers=crew_of(look.store.workers(), look.at).late,
        at_most=AT_MOST,
    )


def overview(look: Look, window: timedelta) -> Overview:
    """One look. Nothing in it grows with the history."""
    tally = look.states(window)
    ended = _sum(tally)
    minutes = max((look.at - tally.since_at).total_seconds() / 60, 1 / 60)
    depths = look.depths()
    oldest = min((depth.oldest_at for depth in depths if depth.oldest_at is not None), default=None)
    crew = crew_of(look.store.workers(), look.at)
    judged = ended.completed + ended.failed
    return Overview(
        at=look.at,
        since_at=tally.since_at,
        sampled=tally.sampled,
        counts={state.value: number for state, number in _live(look).items()},
        depth=sum(depth.pending + depth.late for depth in depths),
        oldest_age=None if oldest is None else max(look.at - oldest, _NONE),
        workers=crew.alive + crew.late,
        slots=crew.slots,
        ended=ended.total,
        completed_per_minute=ended.completed / minutes,
        failed_per_minute=ended.failed / minutes,
        success_rate=ended.completed / judged if judged else None,
        duration=mean(ended.run_time, ended.ran),
        lag=mean(ended.lag, ended.ran),
        retried=ended.retried,
    )


def _live(look: Look) -> dict[JobState, int]:
    """What has not ended, by state. What is pending and held was read for other answers, or is read quicker by itself."""
    counts = look.store.count(JobFilter(look.tenant, states=LIVE - HELD - {JobState.PENDING}))
    held = look.store.holders(tenant=look.tenant)
    counts[JobState.PENDING] = sum(depth.pending for depth in look.depths())
    counts[JobState.CLAIMED] = sum(holder.claimed for holder in held)
    counts[JobState.RUNNING] = sum(holder.running for holder in held)
    return {state: counts[state] for state in JobState if counts.get(state)}


def deepest(look: Look, limit: int) -> list[QueueDepth]:
    """What is pending and due in each queue, the deepest first."""
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


def raised(look: Look, thresholds: Thresholds | None, window: timedelta) -> list[Alert]:
    """What is beyond its threshold now."""
    settings = {setting.key: setting.value for setting in look.store.settings()}
    limits, wrong = alerts.read_thresholds(settings, thresholds)
    ended = {row.name: row for row in look.states(window).rows}
    dead = ended.get(JobState.DEAD_LETTERED.value)
    crew = crew_of(look.store.workers(), look.at)
    paused = [pause for pause in look.store.pauses() if pause.kind is PauseKind.ALL]
    long_held = look.holding(Which.ALL, longer_than=timedelta(seconds=limits.stuck_after))
    facts = Situation(
        now=look.at,
        completed=sum(row.completed for row in ended.values()),
        failed=sum(row.failed for row in ended.values()),
        dead=0 if dead is None else dead.total,
        queues=tuple(
            QueueFact(depth.queue, depth.pending + depth.late, depth.oldest_at) for depth in look.depths()
        ),
        stuck=tuple(held.started_at or held.claimed_at for held in long_held),
        orphans=tuple(held.beat_at or held.claimed_at for held in look.holding(Which.ORPHANED)),
        workers=crew.alive + crew.late,
        enabled=settings.get("worker_enabled") is not False,
        paused_at=paused[0].paused_at if paused else None,
        leaders=tuple(
            LeaderFact(lease.name, lease.acquired_at, lease.beat_at, last_tick(lease))
            for lease in look.store.leases()
            if lease.holder is not None and lease.acquired_at is not None and lease.beat_at is not None
        ),
    )
    return wrong + alerts.alerts(facts, limits)


def leaders_of(look: Look) -> list[Leader]:
    """Every lease with what its holder says of its duties."""
    names = {worker.id: worker.name for worker in look.store.workers()}
    rows = []
    for lease in look.store.leases():
        held = lease.holder is not None and lease.expires_at is not None and lease.expires_at > look.at
        ticked, duties = last_tick(lease), duties_of(lease).values()
        rows.append(
            Leader(
                lease=lease.name,
                holder=lease.holder if held else None,
                holder_name=names.get(lease.holder) if held and lease.holder is not None else None,
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
    """What every archive policy has moved so far, as the archive's lease says."""
    return next((read_sums(lease.metadata) for lease in leases if lease.name == ARCHIVE), {})


def archival(look: Look) -> list[PolicyArchival]:
    """The same as rows, by name."""
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
    """When one of the duties under this lease was last done, as its holder says."""
    found = []
    for facts in duties_of(lease).values():
        try:
            ticked = datetime.fromisoformat(str(facts.get("last_tick")))
        except ValueError:
            continue
        if ticked.tzinfo is not None:
            found.append(ticked)
    return max(found, default=None)


def _sum(tally: Tally) -> Ended:
    """All rows of a tally as one."""
    rows = tally.rows
    return Ended(
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
