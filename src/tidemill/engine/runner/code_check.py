"""Checks of waiting jobs after a deployment of new code.

A worker wakes waiting jobs that its code can read, and warns of jobs whose task no worker has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

from tidemill.domain.cluster import WorkerState
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import JobRow, Move
from tidemill.domain.misfits import is_misfit
from tidemill.domain.states import JobState
from tidemill.engine.duty import Done, Duty
from tidemill.errors import BadArguments, BlobDamaged, StoreError
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(minutes=10)
"""How often a worker looks for jobs whose task no worker has."""

_PAGE, _MOST = 1_000, 20_000  # waiting jobs per page, and in total
_LOOK = 10_000  # jobs of each state that are counted by task
_SHOWN = 10  # maximum names in one warning
_WAITING = (JobState.PENDING, JobState.SCHEDULED, JobState.WAITING)
_NEW_CODE = "a worker started that can read its arguments"


class CodeCheck:
    """Runs when it is first called, and then periodically."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store, self._registry = store, registry
        self._warned: frozenset[str] = frozenset()
        self._woken = False

    def __call__(self) -> Done:
        """Wake the jobs that this code can read, the first time only, and warn of tasks that no worker has."""
        woken = 0
        if not self._woken:
            woken, self._woken = self.wake_readable(), True
        self.warn_of_unknown_tasks()
        return Done(woken)

    def duty(self) -> Duty:
        """This duty for the loop."""
        return Duty("code check", EVERY, self)

    def quietly(self) -> None:
        """Run the check, and ignore store errors: they must not prevent the start."""
        try:
            self()
        except StoreError as error:
            _log.debug("cannot check the waiting jobs: %s", error)

    def wake_readable(self) -> int:
        """Make jobs pending that another version of the code could not read and this one can; return their number."""
        names = frozenset(self._registry.served_names())
        if not names:
            return 0
        where = JobFilter(ALL_TENANTS, states=frozenset({JobState.WAITING}), tasks=names)
        found = [
            job for job in islice(self._jobs(where), _MOST) if is_misfit(job.reason) and self._can_read(job)
        ]
        woken = self._store.move(
            [Move(job.id, job.tenant, where.states, JobState.PENDING, _NEW_CODE) for job in found]
        )
        if woken:
            self._store.notify({f"ready:{job.queue}" for job in found if job.id in woken})
            _log.info("jobs that waited for this version of the code and are pending now: %d", len(woken))
        return len(woken)

    def _jobs(self, where: JobFilter) -> Iterable[JobRow]:
        after: str | None = None
        while True:
            page = self._store.jobs(where, sort=Sort.OLDEST, limit=_PAGE, after=after)
            yield from page.items
            if page.next is None:
                return
            after = page.next

    def _can_read(self, job: JobRow) -> bool:
        try:
            self._registry.get(job.task).arguments.load(
                read_value(self._store, job.args), job.id, job.details.definition_id
            )
        except (BadArguments, BlobDamaged):
            return False
        return True

    def warn_of_unknown_tasks(self) -> None:
        """Warn of waiting jobs whose task neither this worker nor any live one has.

        It warns again only if the names change.
        """
        now = self._store.now()
        living = [
            worker
            for worker in self._store.workers()
            if worker.state is not WorkerState.STOPPED
            and worker.expires_at is not None
            and worker.expires_at > now
        ]
        if any(not worker.tasks for worker in living):
            return  # this worker takes every task
        known = {*self._registry.served_names(), *(name for worker in living for name in worker.tasks)}
        crowd = self._store.crowd(tenant=ALL_TENANTS, look=_LOOK)
        counts = {
            task: number
            for task, states in crowd.counts.items()
            if task not in known and (number := sum(states.get(state, 0) for state in _WAITING))
        }
        if counts and frozenset(counts) != self._warned:
            total = sum(counts.values())
            most = sorted(counts, key=lambda task: (-counts[task], task))
            names = ", ".join(f"{task} ({counts[task]})" for task in most[:_SHOWN])
            more = f" and {len(most) - _SHOWN} more tasks" if len(most) > _SHOWN else ""
            _log.warning(
                "%s%s for tasks that no living worker knows: %s%s; deploy the code that has them,"
                " give the new name of a renamed task aliases=[...], or cancel the jobs",
                "at least " if crowd.sampled else "",
                "1 job waits" if total == 1 else f"{total} jobs wait",
                names,
                more,
            )
        self._warned = frozenset(counts)
