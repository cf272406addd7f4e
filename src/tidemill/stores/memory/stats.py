"""Statistics of the memory store, computed by full scans and cut to the bounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.stats import (
    FAILURES,
    LOOK,
    LOOK_AT_TIMES,
    MESSAGE,
    SAMPLES,
    Depth,
    EndedGroup,
    EndedGroups,
    EndedTiming,
    FailedJob,
    Group,
    HeldRow,
    HeldSelection,
    Holder,
    Series,
    SeriesStep,
    UnfinishedCounts,
    span_of,
    steps_of,
    whole_from,
)
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State
from tidemill.stores.stats import OccupancyStore, StatsStore

_ZERO = timedelta(0)
_S = JobState
_PLACES = ({_S.PENDING}, {_S.SCHEDULED}, {_S.WAITING, _S.REVIEW_NEEDED}, {_S.CLAIMED, _S.RUNNING})


class MemoryStats(MemoryPart, StatsStore, OccupancyStore):
    """The queries behind statistics, alerts and the dashboard."""

    def ended_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        failures: bool = False,
        limit: int = 100,
        look: int = LOOK,
        now: datetime | None = None,
    ) -> EndedGroups:
        with self._open() as state:
            since = self._at(now) - window
            looked = _latest(state, since, look, FAILURES if failures else ENDED)
            named: dict[str | None, list[JobRow]] = defaultdict(list)
            for job in looked:
                if tenant in (ALL_TENANTS, job.tenant):
                    named[_name(job, group)].append(job)
            rows = [_counted(name, jobs) for name, jobs in named.items()]
            rows.sort(key=lambda row: (-row.total, row.name or ""))
            sampled = len(looked) >= look > 0
            return EndedGroups(rows[: max(limit, 0)], _finished(looked[-1]) if sampled else since, sampled)

    def count_ended(
        self, window: timedelta, *, tenant: str, now: datetime | None = None
    ) -> dict[JobState, int]:
        with self._open() as state:
            since = self._at(now) - window
            return dict(
                Counter(
                    job.state
                    for job in _latest(state, since, None, ENDED)
                    if tenant in (ALL_TENANTS, job.tenant)
                )
            )

    def standing(self, *, tenant: str) -> dict[JobState, int]:
        with self._open() as state:
            return dict(
                Counter(job.state for job in state.jobs.values() if tenant in (ALL_TENANTS, job.tenant))
            )

    def series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        look: int = LOOK_AT_TIMES,
        samples: int = SAMPLES,
        now: datetime | None = None,
    ) -> Series:
        with self._open() as state:
            steps = steps_of(self._at(now), window, step)
            until = steps[-1] + step
            looked = [job for job in _latest(state, steps[0], None, ENDED) if _finished(job) < until][:look]
            sampled = len(looked) >= look
            within: dict[datetime, list[JobRow]] = defaultdict(list)
            for job in looked:
                within[steps[(_finished(job) - steps[0]) // step]].append(job)
            since_at = whole_from(steps, step, min(within, default=None), sampled)
            slots = [_slot(at, within[at], tenant, samples) for at in steps if at >= since_at]
            return Series(slots, step, since_at, sampled)

    def troubles(
        self, window: timedelta, *, tenant: str, limit: int = 1000, now: datetime | None = None
    ) -> list[FailedJob]:
        with self._open() as state:
            looked = _latest(state, self._at(now) - window, max(limit, 0), FAILURES)
            return [
                FailedJob(
                    job.id,
                    job.tenant,
                    job.task,
                    job.state,
                    _finished(job),
                    None if job.error is None else job.error.type,
                    None if job.error is None else job.error.message[:MESSAGE],
                    None if job.reason is None else job.reason[:MESSAGE],
                )
                for job in looked
                if tenant in (ALL_TENANTS, job.tenant)
            ]

    def depths(self, *, tenant: str, now: datetime | None = None) -> list[Depth]:
        with self._open() as state:
            moment = self._at(now)
            pending: dict[str, int] = defaultdict(int)
            late: dict[str, int] = defaultdict(int)
            due: dict[str, list[datetime]] = defaultdict(list)
            for lane, queue in state.lanes.items():
                if tenant in (ALL_TENANTS, lane.tenant):
                    pending[lane.queue] += len(queue)
                    due[lane.queue].append(state.jobs[next(iter(queue.values()))].run_at)
            for run_at, id in state.alarms:
                job = state.jobs[id]
                if run_at <= moment and job.state is _S.SCHEDULED and tenant in (ALL_TENANTS, job.tenant):
                    late[job.queue] += 1
                    due[job.queue].append(run_at)
            return [Depth(name, pending[name], late[name], min(due[name])) for name in sorted(due)]

    def lately(self, tasks: Collection[str], *, tenant: str, per_task: int = SAMPLES) -> list[EndedTiming]:
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


def _latest(state: State, since: datetime, look: int | None, states: frozenset[JobState]) -> list[JobRow]:
    """Ended jobs in these states, the latest end first."""
    found = [job for job in state.jobs.values() if job.state in states and _finished(job) >= since]
    found.sort(key=lambda job: (_finished(job), job.id), reverse=True)
    return found if look is None else found[: max(look, 0)]


def _finished(job: JobRow) -> datetime:
    assert job.finished_at is not None  # always set for an ended job
    return job.finished_at


def _ended_lately(job: JobRow) -> EndedTiming:
    run_time, lag = span_of(job.finished_at, job.started_at), span_of(job.started_at, job.run_at)
    return EndedTiming(job.task, job.id, job.state, _finished(job), run_time, lag)


def _name(job: JobRow, group: Group) -> str | None:
    found = getattr(job, group.value)
    return None if found is None else str(found)


def _counted(name: str | None, jobs: list[JobRow]) -> EndedGroup:
    run_times, lags = _times(jobs)
    return EndedGroup(
        name=name,
        total=len(jobs),
        completed=_number(jobs, {_S.COMPLETED}),
        failed=_number(jobs, FAILURES),
        cancelled=_number(jobs, {_S.CANCELLED}),
        retried=sum(job.attempt > 1 for job in jobs),
        attempts=sum(job.attempt for job in jobs),
        most_attempts=max(job.attempt for job in jobs),
        ran=len(run_times),
        run_time=sum(run_times, _ZERO),
        longest=max(run_times, default=_ZERO),
        lag=sum(lags, _ZERO),
        longest_lag=max(lags, default=_ZERO),
        tenants=len({job.tenant for job in jobs}),
        last_at=max(_finished(job) for job in jobs),
    )


def _number(jobs: list[JobRow], states: Iterable[JobState]) -> int:
    return sum(job.state in states for job in jobs)


def _times(jobs: list[JobRow]) -> tuple[list[timedelta], list[timedelta]]:
    """Run times and lags of the jobs that were started."""
    pairs = [(span_of(job.finished_at, job.started_at), span_of(job.started_at, job.run_at)) for job in jobs]
    measured = [(run, lag) for run, lag in pairs if run is not None and lag is not None]
    return [run for run, _ in measured], [lag for _, lag in measured]


def _slot(at: datetime, jobs: list[JobRow], tenant: str, samples: int) -> SeriesStep:
    ours = [job for job in jobs if tenant in (ALL_TENANTS, job.tenant)]
    looked = [job for job in jobs[: max(samples, 0)] if tenant in (ALL_TENANTS, job.tenant)]
    run_times, lags = _times(looked)
    completed, cancelled = _number(ours, {_S.COMPLETED}), _number(ours, {_S.CANCELLED})
    return SeriesStep(
        at, len(ours), completed, _number(ours, FAILURES), cancelled, tuple(run_times), tuple(lags)
    )


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
