"""Sums of the statistics of several stores, such as the shards of an app.

A job is in one store, so counts and buckets of durations are added, and quantiles are computed from the sums. The steps of
series are the same in all stores, because they begin at whole multiples of their length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import TypeVar

from tidemill.domain.graph import FlowTotals
from tidemill.domain.rollups import Distribution, EverTotals, JobTimes
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    DeclaredCounts,
    Depth,
    EndedGroup,
    EndedGroups,
    GroupedSeries,
    Series,
    SeriesStep,
    UnfinishedCounts,
    grouped_series,
)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def summed(rows: Iterable[T], key: Callable[[T], K], add: Callable[[T, T], T]) -> dict[K, T]:
    """Add up the rows with the same key, in the order of their first occurrence."""
    sums: dict[K, T] = {}
    for row in rows:
        at = key(row)
        sums[at] = add(sums[at], row) if at in sums else row
    return sums


def earliest(*instants: datetime | None) -> datetime | None:
    """Return the earliest of these instants that is known."""
    return min((at for at in instants if at is not None), default=None)


def add_counts(answers: Iterable[Mapping[JobState, int]]) -> dict[JobState, int]:
    """Add the numbers of jobs by state."""
    total: Counter[JobState] = Counter()
    for counts in answers:
        total.update(counts)
    return dict(total)


def add_ended(answers: Sequence[EndedGroups], limit: int) -> EndedGroups:
    """Add ended jobs by group; the ``limit`` largest groups."""
    rows = summed((row for answer in answers for row in answer.rows), lambda row: row.name, _add_group)
    ordered = sorted(rows.values(), key=lambda row: (-row.total, row.name or ""))
    return EndedGroups(ordered[:limit], min(answer.since_at for answer in answers))


def _add_group(one: EndedGroup, other: EndedGroup) -> EndedGroup:
    return EndedGroup(
        one.name,
        one.total + other.total,
        one.completed + other.completed,
        one.failed + other.failed,
        one.cancelled + other.cancelled,
        one.retried + other.retried,
        one.attempts + other.attempts,
        max(one.most_attempts, other.most_attempts),
        one.ran + other.ran,
        one.run_time + other.run_time,
        max(one.longest, other.longest),
        one.lag + other.lag,
        max(one.longest_lag, other.longest_lag),
        one.tenants + other.tenants,
        max(one.last_at, other.last_at),
    )


def add_times(one: JobTimes, other: JobTimes) -> JobTimes:
    """Add two distributions of run times and waits."""
    return JobTimes(
        Distribution.of((*one.run.buckets, *other.run.buckets)),
        Distribution.of((*one.wait.buckets, *other.wait.buckets)),
    )


def add_times_by(answers: Iterable[Mapping[str, JobTimes]]) -> dict[str, JobTimes]:
    """Add run times and waits by name."""
    rows = (pair for answer in answers for pair in answer.items())
    added = summed(rows, lambda pair: pair[0], lambda one, other: (one[0], add_times(one[1], other[1])))
    return dict(added.values())


def add_series(answers: Sequence[Series]) -> Series:
    """Add series step by step. A step that one store does not have yet counts there as zero."""
    slots = summed((slot for answer in answers for slot in answer.slots), lambda slot: slot.at, _add_slot)
    ordered = [slots[at] for at in sorted(slots)][-max(len(answer.slots) for answer in answers) :]
    return Series(ordered, answers[0].step, ordered[0].at)


def _add_slot(one: SeriesStep, other: SeriesStep) -> SeriesStep:
    return SeriesStep(
        one.at,
        one.total + other.total,
        one.completed + other.completed,
        one.failed + other.failed,
        one.cancelled + other.cancelled,
        add_times(one.times, other.times),
    )


def add_grouped_series(answers: Sequence[GroupedSeries], limit: int) -> GroupedSeries:
    """Add series of groups; those of the ``limit`` groups with the most jobs among the largest of each store."""
    most = max(len(answer.steps) for answer in answers)
    steps = sorted({at for answer in answers for at in answer.steps})[-most:]
    counts: dict[tuple[datetime, str], tuple[int, int]] = {}
    for answer in answers:
        for name, cells in answer.groups.items():
            for at, (total, failed) in zip(answer.steps, cells, strict=True):
                before = counts.get((at, name), (0, 0))
                counts[at, name] = (before[0] + total, before[1] + failed)
    rows = ((at, name, *pair) for (at, name), pair in counts.items() if at in set(steps))
    added = grouped_series(steps, answers[0].step, rows)
    return added._replace(groups=dict(list(added.groups.items())[:limit]))


def add_ever(answers: Sequence[EverTotals]) -> EverTotals:
    """Add all ends that were counted."""
    ended = summed(
        (row for answer in answers for row in answer.ended),
        lambda row: (row.task, row.queue, row.state),
        lambda one, other: one._replace(jobs=one.jobs + other.jobs, retried=one.retried + other.retried),
    )
    executed = summed(
        (row for answer in answers for row in answer.executed),
        lambda row: (row.task, row.queue, row.state),
        lambda one, other: one._replace(executions=one.executions + other.executions),
    )
    times = add_times_by(answer.times for answer in answers)
    return EverTotals(list(ended.values()), list(executed.values()), times)


def add_depths(answers: Iterable[Sequence[Depth]]) -> list[Depth]:
    """Add waiting jobs by queue."""
    rows = summed(
        (row for answer in answers for row in answer),
        lambda row: row.queue,
        lambda one, other: Depth(
            one.queue,
            one.pending + other.pending,
            one.late + other.late,
            earliest(one.oldest_at, other.oldest_at),
        ),
    )
    return [rows[queue] for queue in sorted(rows)]


def add_crowds(answers: Iterable[UnfinishedCounts]) -> UnfinishedCounts:
    """Add unfinished jobs by task and state."""
    counts: dict[str, dict[JobState, int]] = {}
    sampled = False
    for answer in answers:
        sampled = sampled or answer.sampled
        for task, states in answer.counts.items():
            counts[task] = add_counts([counts.get(task, {}), states])
    return UnfinishedCounts(counts, sampled)


def add_declared(answers: Sequence[DeclaredCounts]) -> DeclaredCounts:
    """Add definitions and schedules."""
    return DeclaredCounts(*map(sum, zip(*answers, strict=True)))


def add_flow_totals(answers: Sequence[FlowTotals]) -> FlowTotals:
    """Add flows and waiting jobs."""

    def add(one: FlowTotals, other: FlowTotals) -> FlowTotals:
        numbers = {name: getattr(one, name) + getattr(other, name) for name in FlowTotals._fields[:-1]}
        return FlowTotals(**numbers, unreachable_at=earliest(one.unreachable_at, other.unreachable_at))

    return reduce(add, answers)
