"""Rollups: ended jobs counted per minute, and per longer units as they grow older.

A rollup counts **ends of jobs**. A job that a person retries ends twice and is counted twice; deleting, archiving or restoring a
job changes no count. Ends are journalled by the statement that ends the jobs, and the duty ``fold`` merges the journal into the
rollups. Readers add the journal to the rollups, so their sums are exact at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tidemill.domain.states import JobState

BOUNDS: tuple[int, ...] = tuple(1_000 * 2**power for power in range(26))
"""Upper bounds of the buckets of run times and waits, inclusive, in microseconds: 1 ms to 9.3 h. One more bucket has the rest."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unit(StrEnum):
    """The length of time that one rollup covers."""

    MINUTE = "minute"
    QUARTER = "quarter"  #: of an hour
    HOUR = "hour"
    DAY = "day"
    EVER = "ever"  #: all ends since the first one


class RollupScope(StrEnum):
    """The properties that a rollup is kept by, besides its time and the outcome."""

    DETAIL = "detail"  #: task, queue and tenant
    TOTAL = "total"  #: none: all jobs of the store
    WORKER = "worker"  #: worker and tenant
    EVER = "ever"  #: task and queue, since the first end
    EXECUTION = "execution"  #: task and queue of ended executions, since the first one


LENGTHS: Mapping[Unit, timedelta] = {
    Unit.MINUTE: timedelta(minutes=1),
    Unit.QUARTER: timedelta(minutes=15),
    Unit.HOUR: timedelta(hours=1),
    Unit.DAY: timedelta(days=1),
}
"""How long a unit is. Each is a multiple of the one before."""

KEPT: Mapping[Unit, timedelta] = {
    Unit.MINUTE: timedelta(hours=3),
    Unit.QUARTER: timedelta(days=2),
    Unit.HOUR: timedelta(days=14),
    Unit.DAY: timedelta(days=400),
}
"""How long rollups of a unit are kept before they are merged into the next unit; those of a day are deleted."""

WORKERS_KEPT = KEPT[Unit.HOUR]
"""How long rollups of workers are kept. Every restart makes new workers, so their number only grows."""


class Compaction(NamedTuple):
    """Rollups that are merged into a longer unit: those of ``unit`` before an instant."""

    unit: Unit
    into: Unit
    before: datetime


class Expiry(NamedTuple):
    """Rollups that are deleted: those of a scope before an instant."""

    scope: RollupScope
    before: datetime


def floored(at: datetime, length: timedelta) -> datetime:
    """The last whole multiple of a length since 1970 UTC.

    >>> floored(datetime(2026, 1, 1, 12, 44, 9, tzinfo=UTC), timedelta(minutes=15)).minute
    30
    """
    return EPOCH + (at - EPOCH) // length * length


def compactions(now: datetime) -> list[Compaction]:
    """The rollups that are old enough for the next unit. Only whole slots of it are merged."""
    return [
        Compaction(unit, into, floored(now - KEPT[unit], LENGTHS[into])) for unit, into in pairwise(LENGTHS)
    ]


def expiries(now: datetime) -> list[Expiry]:
    """The rollups that are too old to keep."""
    days = days_before(now)
    workers = floored(now - WORKERS_KEPT, LENGTHS[Unit.DAY])
    return [
        Expiry(RollupScope.DETAIL, days),
        Expiry(RollupScope.TOTAL, days),
        Expiry(RollupScope.WORKER, workers),
    ]


def days_before(now: datetime) -> datetime:
    """The instant before which figures of days are too old to keep."""
    return floored(now - KEPT[Unit.DAY], LENGTHS[Unit.DAY])


def unit_of(window: timedelta) -> Unit:
    """The longest unit of the rollups that a window before now can contain.

    >>> unit_of(timedelta(hours=24)).value
    'quarter'
    """
    return next((unit for unit, age in KEPT.items() if window <= age), Unit.DAY)


def since_of(now: datetime, window: timedelta) -> datetime:
    """The start of a window: rounded down to a whole unit, because a rollup cannot be divided.

    >>> since_of(datetime(2026, 1, 2, 12, 44, 9, tzinfo=UTC), timedelta(hours=1)).isoformat()
    '2026-01-02T11:44:00+00:00'
    """
    return floored(now - window, LENGTHS[unit_of(window)])


def step_of(window: timedelta, step: timedelta) -> timedelta:
    """The shortest step of a series that is at least as long as given: a multiple of the window's unit.

    >>> step_of(timedelta(hours=24), timedelta(minutes=20))
    datetime.timedelta(seconds=1800)
    """
    length = LENGTHS[unit_of(window)]
    return -(-step // length) * length


def bucket_of(microseconds: int) -> int:
    """The number of the bucket of a duration.

    >>> [bucket_of(value) for value in (0, 1_000, 1_001, 10**12)]
    [0, 0, 1, 26]
    """
    return bisect_left(BOUNDS, microseconds)


class Bucket(NamedTuple):
    """The jobs whose duration is in one bucket, and the sum of these durations in microseconds."""

    number: int
    jobs: int
    time: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of durations over the buckets of ``BOUNDS``, without empty ones."""

    buckets: tuple[Bucket, ...] = ()

    @classmethod
    def of(cls, buckets: Iterable[Bucket]) -> Distribution:
        """The sum of these buckets."""
        sums: dict[int, tuple[int, int]] = {}
        for number, jobs, time in buckets:
            before = sums.get(number, (0, 0))
            sums[number] = (before[0] + jobs, before[1] + time)
        return cls(tuple(Bucket(number, *sums[number]) for number in sorted(sums)))

    @property
    def jobs(self) -> int:
        return sum(bucket.jobs for bucket in self.buckets)

    @property
    def time(self) -> timedelta:
        return timedelta(microseconds=sum(bucket.time for bucket in self.buckets))

    def quantile(self, share: float) -> timedelta | None:
        """The mean of the bucket that contains this share of the durations; None if there are none.

        >>> Distribution.of([Bucket(10, 3, 3_000_000), Bucket(12, 1, 4_000_000)]).quantile(0.5)
        datetime.timedelta(seconds=1)
        """
        place, below = max(-(-self.jobs * share // 1), 1), 0
        for bucket in self.buckets:
            below += bucket.jobs
            if below >= place:
                return timedelta(microseconds=round(bucket.time / bucket.jobs))
        return None

    def counts(self) -> list[int]:
        """The number of jobs in every bucket."""
        jobs = {bucket.number: bucket.jobs for bucket in self.buckets}
        return [jobs.get(number, 0) for number in range(len(BOUNDS) + 1)]


class JobTimes(NamedTuple):
    """How long jobs ran, and how long they waited between their due time and their start."""

    run: Distribution
    wait: Distribution


NO_TIMES = JobTimes(Distribution(), Distribution())

RUN, WAIT = "run", "wait"


def times_of(rows: Iterable[tuple[str, int, int, int]]) -> JobTimes:
    """The times of rows of measure, bucket, jobs and microseconds."""
    buckets: dict[str, list[Bucket]] = {RUN: [], WAIT: []}
    for measure, number, jobs, time in rows:
        buckets[measure].append(Bucket(number, jobs, time))
    return JobTimes(Distribution.of(buckets[RUN]), Distribution.of(buckets[WAIT]))


class EverEnded(NamedTuple):
    """Jobs of one task and queue that ended in one state, since the first end."""

    task: str
    queue: str
    state: JobState
    jobs: int
    retried: int


class EverExecuted(NamedTuple):
    """Executions of one task and queue that ended in one way, since the first one."""

    task: str
    queue: str
    state: str
    executions: int


class EverTotals(NamedTuple):
    """All ends that a store has counted."""

    ended: Sequence[EverEnded]
    executed: Sequence[EverExecuted]
    times: Mapping[str, JobTimes]  #: by task
