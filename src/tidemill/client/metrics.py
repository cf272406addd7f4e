"""What a scraper is told of a store: few questions, each bounded, and one answer for all who ask within five seconds.

All of it is read from the store, so it is right however many processes there are, and each of them may be scraped. What ended
is told as a gauge over the last five minutes: jobs leave the history, so no count of them only rises.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tidemill.client.core import Client
from tidemill.client.situation import Look, archival_of
from tidemill.client.stats import crew_of
from tidemill.domain.archival import BOUNDS, PolicySums
from tidemill.domain.archival import LEASE as ARCHIVE
from tidemill.domain.cluster import Lease
from tidemill.domain.exposition import MOST_LABELS, OTHER, Family, Histogram, bounded, rendered
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.insight import Depth, Ended, Group, mean
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import LIVE, JobState

FRESH = 5.0
"""Seconds for which one look serves all who ask."""

RECENT = timedelta(minutes=5)

OLDEST = ArchivePolicy("oldest", max_age=timedelta(0), batch=1)
"""Finds the job that ended first."""


class Metrics:
    """The metrics of an app's store, looked up by one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: tuple[float, str] | None = None

    def text(self) -> str:
        """All metrics, at most five seconds old."""
        with self._lock:
            now = self._client.clock.monotonic()
            if self._known is None or not 0 <= now - self._known[0] < FRESH:
                self._known = (now, rendered(self._families()))
            return self._known[1]

    def _families(self) -> list[Family | Histogram]:
        store = self._client.store(None)
        at = store.now()
        look = Look(store, ALL_TENANTS, at)
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


def _jobs(look: Look) -> Family:
    """Jobs that have not ended, and the dead: what completed is not counted, as that takes longer the more there is."""
    jobs = Family("tidemill_jobs", "Jobs by status: all that have not ended, and the dead-lettered.")
    counts = look.store.count(JobFilter(ALL_TENANTS, states=LIVE))
    dead = frozenset({JobState.DEAD_LETTERED})
    counts |= look.store.count(JobFilter(ALL_TENANTS, states=dead))
    for state in JobState:
        if state in LIVE | dead:
            jobs.add(counts.get(state, 0), status=state.value)
    return jobs


def _crew(look: Look) -> list[Family]:
    crew = crew_of(look.store.workers(), look.at)
    workers = Family(
        "tidemill_workers", "Workers by how they are: alive, late with their heartbeat, or gone."
    )
    for name in ("alive", "late", "gone"):
        workers.add(getattr(crew, name), liveness=name)
    slots = Family("tidemill_worker_slots", "Jobs that the living workers can run at once.")
    slots.add(crew.slots)
    return [workers, slots]


def _leases(leases: Sequence[Lease], at: datetime) -> list[Family]:
    held = Family("tidemill_lease_held", "Whether somebody holds a lease: 1, or 0.")
    term = Family("tidemill_lease_terms_total", "How often a lease has changed hands.", "counter")
    for lease in leases[:MOST_LABELS]:
        if lease.name == ARCHIVE:  # held only while somebody archives: nobody there is no trouble
            continue
        living = lease.holder is not None and lease.expires_at is not None and lease.expires_at > at
        held.add(int(living), lease=lease.name)
        term.add(lease.term, lease=lease.name)
    return [held, term]


def _recent(rows: list[Ended]) -> list[Family]:
    """By task: how many ended and how, and how long they took and had waited."""
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
    """By policy: what was moved, how long that took, and what did not go well. Kept in the store, so these only rise."""
    moved = Family(
        "tidemill_jobs_archived_total", "Jobs that were archived, by policy, status and tier.", "counter"
    )
    took = Histogram(
        "tidemill_jobs_archival_duration_seconds", "How long runs took, by policy.", bounds=BOUNDS
    )
    counted = {
        name: Family(f"tidemill_archive_{name}_total", said, "counter")
        for name, said in (
            ("verified", "Copies that were read back and found whole, by policy."),
            ("failed", "Copies that were not what was written, by policy; their jobs stayed."),
            ("errors", "Runs that the store ended, by policy."),
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


def _history(look: Look) -> Family:
    """How old the oldest ended job is that was not archived: one that only grows says that nobody archives."""
    oldest = look.store.archivable(OLDEST, now=look.at)
    age = Family("tidemill_history_age_seconds", "How long ago the oldest job ended that is not archived.")
    age.add((look.at - oldest[0].finished_at).total_seconds() if oldest else 0)
    return age
