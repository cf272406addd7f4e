"""Wake: starts a job that waits for an earlier one of its schedule.

A job is woken once no other job of its schedule is live. This duty creates no jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import Action, move
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.schedule_fires import NODE_QUEUE, OVERLAP
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=10)
SOON = timedelta(seconds=1)
SEARCH = timedelta(seconds=30)
_GAP = 1.5 * EVERY.total_seconds()  # after this many seconds without a call, another process ran the duty
_PAGE = 500
_NEWEST = 500


class Wake:
    """Checks every second while it knows a waiting job.

    It also searches for waiting jobs that other processes created: when it takes over, and periodically.
    """

    def __init__(self, store: Store, clock: Clock, *, pinned: bool = False) -> None:
        self._store, self._clock, self._pinned = store, clock, pinned
        self._waiting_ids: set[UUID] = set()
        self._cursor: str | None = None
        self._searched = self._called = float("-inf")

    def knows(self, jobs: Collection[NewJob]) -> None:
        """Add jobs that were just created to wait."""
        self._waiting_ids |= {job.id for job in jobs}

    def __call__(self) -> Done:
        now = self._clock.monotonic()
        taken_over, self._called = now - self._called > _GAP, now
        if self._pinned or taken_over or now - self._searched >= SEARCH.total_seconds():
            self._search()
        if not self._waiting_ids:
            return Done()
        waiting = [job for job in self._store.get(self._waiting_ids, tenant=ALL_TENANTS) if _waits(job)]
        self._waiting_ids = {job.id for job in waiting}
        moved = self._wake(waiting) if waiting else 0
        return Done(moved, self._clock.now() + SOON if self._waiting_ids else None)

    def _search(self) -> None:
        """Read one page of waiting jobs. The next search continues after it."""
        self._searched = self._clock.monotonic()
        where = JobFilter(ALL_TENANTS, states=frozenset({JobState.WAITING}))
        page = self._store.jobs(where, sort=Sort.OLDEST, limit=_PAGE, after=self._cursor)
        self._cursor = page.next
        self._waiting_ids |= {job.id for job in page.items if _waits(job)}

    def _wake(self, waiting: Collection[JobRow]) -> int:
        """Wake the job of each schedule (on each node) that has waited the longest, if no other job of it is live."""
        schedules = {job.details.schedule_id for job in waiting if job.details.schedule_id is not None}
        active = {job.job_id for job in self._store.active_jobs(list(schedules), newest=_NEWEST)}
        others = (
            self._store.get(active - self._waiting_ids, tenant=ALL_TENANTS)
            if active - self._waiting_ids
            else []
        )
        busy = {_group(job) for job in others if job.state not in ENDED}
        queues: dict[tuple[UUID | None, str], list[JobRow]] = defaultdict(list)
        for job in waiting:
            queues[_group(job)].append(job)
        first = [
            min(jobs, key=lambda job: (job.details.fire_at or job.created_at, job.id))
            for group, jobs in queues.items()
            if group not in busy
        ]
        if not first:
            return 0
        now: datetime | None = self._clock.now() if self._pinned else None
        moves = [move(job, Action.WAKE, "the job before it has ended") for job in first]
        moved = self._store.move(moves, now=now)
        wake(self._store, {f"ready:{job.queue}" for job in first if job.id in moved})
        self._waiting_ids -= moved
        return len(moved)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A fired schedule also wakes it."""
        return Duty("wake", every, self, frozenset({"schedules"}))


def _waits(job: JobRow) -> bool:
    return job.state is JobState.WAITING and (job.reason or "").startswith(OVERLAP)


def _group(job: JobRow) -> tuple[UUID | None, str]:
    return job.details.schedule_id, job.queue if job.queue.startswith(NODE_QUEUE) else ""
