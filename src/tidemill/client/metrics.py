"""What a scraper is told of a store: few questions, each bounded, and one answer for all who ask within five seconds.

All of it is read from the store, so it is right however many processes there are, and each of them may be scraped. What ended
is told as a gauge over the last five minutes: jobs leave the history, so no count of them only rises.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from tidemill.client.core import Client
from tidemill.client.situation import Look
from tidemill.client.stats import crew_of
from tidemill.domain.exposition import MOST_LABELS, OTHER, Family, bounded, rendered
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.insight import Depth, Ended, Group, mean
from tidemill.domain.states import LIVE, JobState

FRESH = 5.0
"""Seconds for which one look serves all who ask."""

RECENT = timedelta(minutes=5)


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

    def _families(self) -> list[Family]:
        store = self._client.store(None)
        at: datetime = getattr(store, "now", self._client.clock.now)()
        look = Look(store, ALL_TENANTS, at)
        return [
            *_queues(look.depths(), at),
            _jobs(look),
            *_crew(look),
            *_leases(look),
            *_recent(look.ended(Group.TASK, RECENT).rows),
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


def _leases(look: Look) -> list[Family]:
    held = Family("tidemill_lease_held", "Whether somebody holds a lease: 1, or 0.")
    term = Family("tidemill_lease_terms_total", "How often a lease has changed hands.", "counter")
    for lease in look.store.leases()[:MOST_LABELS]:
        living = lease.holder is not None and lease.expires_at is not None and lease.expires_at > look.at
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
