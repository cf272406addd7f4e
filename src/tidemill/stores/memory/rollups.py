"""Rollups of the memory store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.rollups import (
    EPOCH,
    LENGTHS,
    RUN,
    WAIT,
    Compaction,
    EverEnded,
    EverExecuted,
    EverTotals,
    Expiry,
    JobTimes,
    RollupScope,
    Unit,
    bucket_of,
    floored,
    since_of,
    times_of,
)
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    FAILURES,
    EndedGroup,
    EndedGroups,
    Group,
    GroupedSeries,
    Series,
    grouped_series,
    outcomes_of,
    scope_of,
    series_of,
    span_of,
    steps_of,
)
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import RollupKey, RollupSums, State, TimesKey
from tidemill.stores.stats import RollupStore

_MICROSECOND = timedelta(microseconds=1)
_TIMED = (RollupScope.DETAIL, RollupScope.TOTAL, RollupScope.EVER)


class MemoryRollups(MemoryPart, RollupStore):
    """The counts of ended jobs."""

    def ended_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        failures: bool = False,
        limit: int = 100,
        now: datetime | None = None,
    ) -> EndedGroups:
        with self._open() as state:
            since = since_of(self._at(now), window)
            scope = scope_of(group, tenant)
            named: dict[str, list[tuple[RollupKey, RollupSums]]] = defaultdict(list)
            for key, sums in _counted(state).items():
                if (
                    key.scope is scope
                    and key.at >= since
                    and tenant in (ALL_TENANTS, key.tenant)
                    and (not failures or key.state in FAILURES)
                ):
                    named[getattr(key, group.value)].append((key, sums))
            rows = [_group(name, rows) for name, rows in named.items()]
            if group is Group.STATE:
                rows = [row._replace(tenants=0) for row in rows]
            rows.sort(key=lambda row: (-row.total, row.name or ""))
            return EndedGroups(rows[: max(limit, 0)], since)

    def series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        queue: str | None = None,
        task: str | None = None,
        now: datetime | None = None,
    ) -> Series:
        with self._open() as state:
            steps, length = steps_of(self._at(now), window, step)
            until = steps[-1] + length
            jobs: dict[tuple[datetime, str], int] = defaultdict(int)
            for key, sums in _counted(state).items():
                if _within(key, steps[0], tenant) and key.at < until and _is_of(key, queue, task):
                    jobs[floored(key.at, length), key.state] += sums.jobs
            counts = [(at, name, number) for (at, name), number in jobs.items()]
            times = [
                (floored(key.rollup.at, length), key.measure, key.bucket, number, time)
                for key, (number, time) in _timed(state).items()
                if _within(key.rollup, steps[0], tenant)
                and key.rollup.at < until
                and _is_of(key.rollup, queue, task)
            ]
            return series_of(steps, length, counts, times)

    def series_by(
        self,
        group: Group,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        limit: int = 8,
        now: datetime | None = None,
    ) -> GroupedSeries:
        with self._open() as state:
            steps, length = steps_of(self._at(now), window, step)
            ended: dict[str, dict[datetime, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
            for key, sums in _counted(state).items():
                own = key.scope is scope_of(group, tenant) and tenant in (ALL_TENANTS, key.tenant)
                if own and steps[0] <= key.at < steps[-1] + length:
                    cell = ended[getattr(key, group.value)][floored(key.at, length)]
                    cell[0] += sums.jobs
                    cell[1] += sums.jobs if key.state in FAILURES else 0
            totals = {name: sum(total for total, _ in cells.values()) for name, cells in ended.items()}
            largest = sorted(totals, key=lambda name: (-totals[name], name))[: max(limit, 0)]
            counts = [(at, name, cell[0], cell[1]) for name in largest for at, cell in ended[name].items()]
            return grouped_series(steps, length, counts)

    def times_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        names: Collection[str] | None = None,
        now: datetime | None = None,
    ) -> dict[str, JobTimes]:
        with self._open() as state:
            since = since_of(self._at(now), window)
            measured: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
            for key, (jobs, time) in _timed(state).items():
                name = getattr(key.rollup, group.value)
                if _within(key.rollup, since, tenant) and (names is None or name in names):
                    measured[name].append((key.measure, key.bucket, jobs, time))
            return {name: times_of(rows) for name, rows in measured.items()}

    def ended_ever(self) -> EverTotals:
        with self._open() as state:
            counted = sorted(_counted(state).items())
            times: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
            for key, (jobs, time) in _timed(state).items():
                if key.rollup.scope is RollupScope.EVER:
                    times[key.rollup.task].append((key.measure, key.bucket, jobs, time))
            return EverTotals(
                [
                    EverEnded(key.task, key.queue, JobState(key.state), sums.jobs, sums.retried)
                    for key, sums in counted
                    if key.scope is RollupScope.EVER
                ],
                [
                    EverExecuted(key.task, key.queue, key.state, sums.jobs)
                    for key, sums in counted
                    if key.scope is RollupScope.EXECUTION
                ],
                {task: times_of(rows) for task, rows in times.items()},
            )

    def fold_ends(self, *, limit: int = 5_000) -> int:
        with self._open() as state:
            taken = state.ends[: max(limit, 0)]
            del state.ends[: len(taken)]
            _add(state.rollups, state.rollup_times, taken)
            return len(taken)

    def compact_rollups(self, compaction: Compaction) -> int:
        with self._open() as state:
            length = LENGTHS[compaction.into]
            starts = [key.at for key in state.rollups if key.unit is compaction.unit]
            if not starts:
                return 0
            before = min(compaction.before, floored(min(starts), length) + length)
            old = [key for key in state.rollups if key.unit is compaction.unit and key.at < before]
            for key in old:
                merged = _slot(key, compaction.into)
                state.rollups[merged] = _sum(state.rollups.get(merged), state.rollups.pop(key))
            for timed in [one for one in state.rollup_times if one.rollup in old]:
                slot = timed._replace(rollup=_slot(timed.rollup, compaction.into))
                jobs, time = state.rollup_times.pop(timed)
                known = state.rollup_times.get(slot, (0, 0))
                state.rollup_times[slot] = (known[0] + jobs, known[1] + time)
            return len(old)

    def drop_rollups(self, expiry: Expiry) -> int:
        with self._open() as state:
            old = {key for key in state.rollups if key.scope is expiry.scope and key.at < expiry.before}
            for key in old:
                del state.rollups[key]
            for timed in [one for one in state.rollup_times if one.rollup in old]:
                del state.rollup_times[timed]
            return len(old)


class _End(NamedTuple):
    """One ended execution, or the end of a job that no worker held."""

    at: datetime
    worker: str
    attempt: int
    run_time: int | None  #: in microseconds; None if it did not run
    lag: int | None


def _end(job: JobRow, execution: Execution | None) -> _End:
    if execution is None:
        assert job.finished_at is not None
        return _End(job.finished_at, "", job.attempt, None, None)
    assert execution.finished_at is not None
    run_time = span_of(execution.finished_at, execution.started_at)
    lag = span_of(execution.started_at, job.run_at)
    return _End(
        execution.finished_at,
        "" if execution.worker is None else str(execution.worker),
        execution.attempt,
        None if run_time is None else run_time // _MICROSECOND,
        None if lag is None else lag // _MICROSECOND,
    )


def _counted(state: State) -> dict[RollupKey, RollupSums]:
    """The rollups, and the journal folded."""
    rollups = dict(state.rollups)
    _add(rollups, {}, state.ends)
    return rollups


def _timed(state: State) -> dict[TimesKey, tuple[int, int]]:
    times = dict(state.rollup_times)
    _add({}, times, state.ends)
    return times


def _add(
    rollups: dict[RollupKey, RollupSums],
    times: dict[TimesKey, tuple[int, int]],
    ends: Iterable[tuple[JobRow, JobState | None, Execution | None]],
) -> None:
    for job, ended, execution in ends:
        end = _end(job, execution)
        sums = RollupSums(
            1,
            int(end.attempt > 1),
            end.attempt,
            end.attempt,
            int(end.run_time is not None),
            end.run_time or 0,
            end.run_time or 0,
            end.lag or 0,
            end.lag or 0,
            end.at,
        )
        for key in _keys(job, ended, execution, end):
            rollups[key] = _sum(rollups.get(key), sums)
            if key.scope not in _TIMED or end.run_time is None or end.lag is None:
                continue
            for measure, time in ((RUN, end.run_time), (WAIT, end.lag)):
                timed = TimesKey(key, measure, bucket_of(time))
                old = times.get(timed, (0, 0))
                times[timed] = (old[0] + 1, old[1] + time)


def _keys(job: JobRow, ended: JobState | None, execution: Execution | None, end: _End) -> Iterator[RollupKey]:
    minute = floored(end.at, LENGTHS[Unit.MINUTE])
    if execution is not None:
        yield RollupKey(
            RollupScope.EXECUTION, EPOCH, Unit.EVER, "", job.task, job.queue, "", execution.state.value
        )
    if ended is not None:
        name = ended.value
        yield RollupKey(RollupScope.DETAIL, minute, Unit.MINUTE, job.tenant, job.task, job.queue, "", name)
        yield RollupKey(RollupScope.TOTAL, minute, Unit.MINUTE, "", "", "", "", name)
        yield RollupKey(RollupScope.WORKER, minute, Unit.MINUTE, job.tenant, "", "", end.worker, name)
        yield RollupKey(RollupScope.EVER, EPOCH, Unit.EVER, "", job.task, job.queue, "", name)


def _sum(sums: RollupSums | None, more: RollupSums) -> RollupSums:
    if sums is None:
        return more
    return RollupSums(
        sums.jobs + more.jobs,
        sums.retried + more.retried,
        sums.attempts + more.attempts,
        max(sums.most_attempts, more.most_attempts),
        sums.ran + more.ran,
        sums.run_time + more.run_time,
        max(sums.longest, more.longest),
        sums.lag + more.lag,
        max(sums.longest_lag, more.longest_lag),
        max(sums.last_at, more.last_at),
    )


def _slot(key: RollupKey, unit: Unit) -> RollupKey:
    return key._replace(at=floored(key.at, LENGTHS[unit]), unit=unit)


def _is_of(key: RollupKey, queue: str | None, task: str | None) -> bool:
    """Whether a rollup is about this queue and this task."""
    return queue in (None, key.queue) and task in (None, key.task)


def _within(key: RollupKey, since: datetime, tenant: str) -> bool:
    return key.scope is RollupScope.DETAIL and key.at >= since and tenant in (ALL_TENANTS, key.tenant)


def _group(name: str, rows: list[tuple[RollupKey, RollupSums]]) -> EndedGroup:
    states: dict[JobState, int] = defaultdict(int)
    total: RollupSums | None = None
    for key, sums in rows:
        states[JobState(key.state)] += sums.jobs
        total = _sum(total, sums)
    assert total is not None
    outcomes = outcomes_of(states)
    times = (total.run_time, total.longest, total.lag, total.longest_lag)
    run_time, longest, lag, longest_lag = (timedelta(microseconds=time) for time in times)
    return EndedGroup(
        name=name or None,
        total=total.jobs,
        completed=outcomes.completed,
        failed=outcomes.failed,
        cancelled=outcomes.cancelled,
        retried=total.retried,
        attempts=total.attempts,
        most_attempts=total.most_attempts,
        ran=total.ran,
        run_time=run_time,
        longest=longest,
        lag=lag,
        longest_lag=longest_lag,
        tenants=len({key.tenant for key, _ in rows}),
        last_at=total.last_at,
    )
