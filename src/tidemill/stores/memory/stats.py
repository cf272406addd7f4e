"""Statistics of the memory store, computed by full scans."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.stats import (
    LATEST,
    LOOK,
    DeclaredCounts,
    Depth,
    EndedTiming,
    HeldRow,
    HeldSelection,
    Holder,
    TaskBacklog,
    UnfinishedCounts,
    span_of,
)
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State
from tidemill.stores.stats import OccupancyStore, StatsStore

_S = JobState
_PLACES = ({_S.PENDING}, {_S.SCHEDULED}, {_S.WAITING, _S.REVIEW_NEEDED}, {_S.CLAIMED, _S.RUNNING})


def depths_of(state: State, now: datetime, tenant: str) -> list[Depth]:
    """The queues with waiting or due jobs, by name."""
    pending: dict[str, int] = defaultdict(int)
    late: dict[str, int] = defaultdict(int)
    due: dict[str, list[datetime]] = defaultdict(list)
    for lane, queue in state.lanes.items():
        if tenant in (ALL_TENANTS, lane.tenant):
            pending[lane.queue] += len(queue)
            due[lane.queue].append(state.jobs[next(iter(queue.values()))].run_at)
    for run_at, id in state.alarms:
        job = state.jobs[id]
        if run_at <= now and job.state is _S.SCHEDULED and tenant in (ALL_TENANTS, job.tenant):
            late[job.queue] += 1
            due[job.queue].append(run_at)
    return [Depth(name, pending[name], late[name], min(due[name])) for name in sorted(due)]


class MemoryStats(MemoryPart, StatsStore, OccupancyStore):
    """The queries behind statistics, alerts and the dashboard."""

    def standing(self, *, tenant: str) -> dict[JobState, int]:
        with self._open() as state:
            return dict(
                Counter(job.state for job in state.jobs.values() if tenant in (ALL_TENANTS, job.tenant))
            )

    def declared(self, *, tenant: str) -> DeclaredCounts:
        with self._open() as state:
            definitions = Counter(
                definition.enabled
                for definition in state.definitions.values()
                if definition.deleted_at is None and tenant in (ALL_TENANTS, definition.tenant)
            )
            schedules = Counter(
                schedule.enabled
                for schedule in state.schedules.values()
                if tenant in (ALL_TENANTS, schedule.tenant)
            )
            return DeclaredCounts(definitions[True], definitions[False], schedules[True], schedules[False])

    def depths(self, *, tenant: str, now: datetime | None = None) -> list[Depth]:
        with self._open() as state:
            return depths_of(state, self._at(now), tenant)

    def lately(self, tasks: Collection[str], *, tenant: str, per_task: int = LATEST) -> list[EndedTiming]:
        with self._open() as state:
            timings = []
            for task in sorted(set(tasks)):
                ended = [job for job in state.jobs.values() if job.task == task and job.state in ENDED]
                ended.sort(key=lambda job: job.id, reverse=True)
                timings += [
                    _ended_lately(job)
                    for job in ended[: max(per_task, 0)]
                    if tenant in (ALL_TENANTS, job.tenant)
                ]
            return timings

    def crowd(self, *, tenant: str, look: int = LOOK) -> UnfinishedCounts:
        with self._open() as state:
            looked: Counter[int] = Counter()
            counts: dict[str, dict[JobState, int]] = {}
            for job in state.jobs.values():
                place = next((at for at, states in enumerate(_PLACES) if job.state in states), None)
                if place is None or looked[place] >= look:
                    continue
                looked[place] += 1
                if tenant in (ALL_TENANTS, job.tenant):
                    named = counts.setdefault(job.task, {})
                    named[job.state] = named.get(job.state, 0) + 1
            return UnfinishedCounts(counts, max(looked.values(), default=0) >= look > 0)

    def backlogs(self, *, tenant: str, served: Collection[str]) -> list[TaskBacklog]:
        with self._open() as state:
            due: dict[str, list[datetime]] = defaultdict(list)
            for queue in state.lanes.values():
                for id in queue.values():
                    job = state.jobs[id]
                    if job.task not in served and tenant in (ALL_TENANTS, job.tenant):
                        due[job.task].append(job.run_at)
            backlogs = [TaskBacklog(task, len(times), min(times)) for task, times in due.items()]
            return sorted(backlogs, key=lambda backlog: (backlog.oldest_at, backlog.task))

    def holding(
        self,
        which: HeldSelection,
        *,
        tenant: str,
        longer_than: timedelta | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[HeldRow]:
        with self._open() as state:
            moment = self._at(now)
            jobs = []
            for id in state.held:
                held = _held(state, state.jobs[id])
                age = moment - (held.started_at or held.claimed_at)
                if (
                    tenant in (ALL_TENANTS, held.tenant)
                    and (longer_than is None or age >= longer_than)
                    and _is(held, which, moment)
                ):
                    jobs.append(held)
            jobs.sort(key=lambda held: (held.claimed_at, held.id))
            return jobs[: max(limit, 0)]

    def holders(self, *, tenant: str) -> list[Holder]:
        with self._open() as state:
            by_worker: dict[UUID, list[HeldRow]] = defaultdict(list)
            for id in state.held:
                held = _held(state, state.jobs[id])
                if tenant in (ALL_TENANTS, held.tenant):
                    by_worker[held.worker].append(held)
            return [
                Holder(
                    worker,
                    sum(one.state is _S.CLAIMED for one in held),
                    sum(one.state is _S.RUNNING for one in held),
                    min(one.claimed_at for one in held),
                    max(one.claimed_at for one in held),
                )
                for worker, held in sorted(by_worker.items())
            ]


def _finished(job: JobRow) -> datetime:
    assert job.finished_at is not None  # always set for an ended job
    return job.finished_at


def _ended_lately(job: JobRow) -> EndedTiming:
    run_time, lag = _run_time_and_lag(job)
    return EndedTiming(job.task, job.id, job.state, _finished(job), run_time, lag)


def _run_time_and_lag(job: JobRow) -> tuple[timedelta | None, timedelta | None]:
    """Both None for a job that no worker ended: its time would include the wait for a person."""
    started_at = None if job.worker is None else job.started_at
    return span_of(job.finished_at, started_at), span_of(started_at, job.run_at)


def _held(state: State, job: JobRow) -> HeldRow:
    assert job.worker is not None
    assert job.claimed_at is not None
    worker = state.workers.get(job.worker)
    lease = (None, None, None) if worker is None else (worker.name, worker.beat_at, worker.expires_at)
    return HeldRow(
        job.id, job.task, job.queue, job.tenant, job.state, job.attempt, job.timeout, job.worker, lease[0],
        job.claimed_at, job.started_at, lease[1], lease[2], None if job.progress is None else job.progress.at,
    )  # fmt: skip


def _is(held: HeldRow, which: HeldSelection, now: datetime) -> bool:
    if which is HeldSelection.OVERDUE:
        return (
            held.started_at is not None and held.timeout is not None and now - held.started_at >= held.timeout
        )
    if which is HeldSelection.ORPHANED:
        return held.expires_at is None or held.expires_at <= now
    return True
