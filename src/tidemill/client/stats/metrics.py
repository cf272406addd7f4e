"""Prometheus metrics of a store, from bounded reads, cached for five seconds.

All values come from the store, so they are correct for any number of processes, and each process may be scraped. Ended
jobs are a gauge over the last five minutes: jobs leave the history, so a count of them would not be monotonic.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tidemill.client.core import Client
from tidemill.client.stats.snapshot import Snapshot, archival_of
from tidemill.client.stats.store_stats import crew_of
from tidemill.domain.archive_totals import BOUNDS, PolicySums
from tidemill.domain.archive_totals import LEASE as ARCHIVE
from tidemill.domain.cluster import Lease
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.prometheus import MOST_LABELS, OTHER, Family, Histogram, bounded, rendered
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import LIVE, JobState
from tidemill.domain.stats import Depth, EndedGroup, Group, mean

FRESH = 5.0
"""Seconds for which the rendered metrics are cached."""

RECENT = timedelta(minutes=5)

OLDEST = ArchivePolicy("oldest", max_age=timedelta(0), batch=1)
"""Selects the job that ended first."""


class Metrics:
    """The metrics of an app's store, read by one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: tuple[float, str] | None = None

    def text(self) -> str:
        """Return all metrics, at most five seconds old."""
        with self._lock:
            now = self._client.clock.monotonic()
            if self._known is None or not 0 <= now - self._known[0] < FRESH:
                self._known = (now, rendered(self._families()))
            return self._known[1]

    def _families(self) -> list[Family | Histogram]:
        store = self._client.store(None)
        at = store.now()
        look = Snapshot(store, ALL_TENANTS, at)
        leases = store.leases()
        return [
            *_queues(look.depths(), at),
            _jobs(look),
            *_crew(look),
            *_leases(leases, at),
            *_recent(look.ended(Group.TASK, RECENT).rows),
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
        name: Family(f"tidemill_archive_{name}_total", said, "counter")
        for name, said in (
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
    oldest = look.store.archivable(OLDEST, now=look.at)
    age = Family("tidemill_history_age_seconds", "How long ago the oldest job ended that is not archived.")
    age.add((look.at - oldest[0].finished_at).total_seconds() if oldest else 0)
    return age
