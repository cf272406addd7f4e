"""Statistics of a store for operators, and the arithmetic on them.

Stores return sums and counts, which are the same in every store; callers derive averages and quantiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.bounds import LONGEST
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.rollups import JobTimes, RollupScope, floored, step_of, times_of
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

FAILURES = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED})
"""States that count as failures; a cancelled job did not fail."""

LOOK = 30_000
"""Maximum number of live jobs that are counted by task."""

LATEST = 100
"""Number of the latest ended jobs of a task that are listed."""

MESSAGE = 200
"""Characters of an error message that are shown and compared."""

_ZERO = timedelta(0)


class Group(StrEnum):
    """The property by which ended jobs are grouped."""

    TASK = "task"
    TENANT = "tenant"
    QUEUE = "queue"
    WORKER = "worker"
    STATE = "state"


class EndedGroup(NamedTuple):
    """Ended jobs of one group. ``ran`` counts those that were started; ``run_time`` and ``lag`` are sums over these."""

    name: str | None  #: None for jobs that no worker ever held, when grouped by worker
    total: int
    completed: int
    failed: int
    cancelled: int
    retried: int  #: took more than one attempt
    attempts: int
    most_attempts: int
    ran: int
    run_time: timedelta  #: from start to end, of the last attempt
    longest: timedelta
    lag: timedelta  #: from its due time until its start
    longest_lag: timedelta
    tenants: int  #: 0 when grouped by state
    last_at: datetime


def scope_of(group: Group, tenant: str) -> RollupScope:
    """The scope of the rollups that are counted by a property: the smallest one that has it."""
    if group is Group.WORKER:
        return RollupScope.WORKER
    return RollupScope.TOTAL if group is Group.STATE and tenant == ALL_TENANTS else RollupScope.DETAIL


class EndedGroups(NamedTuple):
    """Ended jobs by group, largest first."""

    rows: list[EndedGroup]
    since_at: datetime  #: the start of the window; all jobs that ended since then are counted


class SeriesStep(NamedTuple):
    """One step of a series: the number of ended jobs, and their run times and waits."""

    at: datetime
    total: int
    completed: int
    failed: int
    cancelled: int
    times: JobTimes


class Series(NamedTuple):
    """Ended jobs per step, oldest first and without gaps."""

    slots: list[SeriesStep]
    step: timedelta
    since_at: datetime


class GroupedSeries(NamedTuple):
    """Ended and failed jobs per step of the largest groups, most jobs first."""

    steps: list[datetime]
    step: timedelta
    groups: dict[str, list[tuple[int, int]]]


def grouped_series(
    steps: list[datetime], length: timedelta, counts: Iterable[tuple[datetime, str, int, int]]
) -> GroupedSeries:
    """A series from its counts: step, group, ended jobs and failed jobs."""
    places = {at: number for number, at in enumerate(steps)}
    groups: dict[str, list[tuple[int, int]]] = {}
    for at, name, total, failed in counts:
        groups.setdefault(name, [(0, 0)] * len(steps))[places[at]] = (total, failed)
    ordered = sorted(groups.items(), key=lambda pair: (-sum(total for total, _ in pair[1]), pair[0]))
    return GroupedSeries(steps, length, dict(ordered))


class Depth(NamedTuple):
    """A queue: its pending jobs, due jobs that were not promoted yet, and since when the first job has been due."""

    queue: str
    pending: int
    late: int
    oldest_at: datetime | None


class HeldSelection(StrEnum):
    """A selection of held jobs."""

    ALL = "all"
    OVERDUE = "overdue"  #: past their timeout
    ORPHANED = "orphaned"  #: their worker's lease has expired, or their worker is unknown


class HeldRow(NamedTuple):
    """A held job and its worker's state; an unknown worker has no name and no heartbeat."""

    id: UUID
    task: str
    queue: str
    tenant: str
    state: JobState
    attempt: int
    timeout: timedelta | None
    worker: UUID
    worker_name: str | None
    claimed_at: datetime
    started_at: datetime | None
    beat_at: datetime | None
    expires_at: datetime | None  #: of the worker's lease
    progress_at: datetime | None = None  #: when it last reported progress

    @property
    def heard_at(self) -> datetime:
        """When it last gave a sign: its progress, its start or its claim."""
        began = self.started_at or self.claimed_at
        return began if self.progress_at is None else max(began, self.progress_at)


class EndedTiming(NamedTuple):
    """The outcome and timing of an ended job, without its arguments and result, which may be long."""

    task: str
    id: UUID
    state: JobState
    finished_at: datetime
    run_time: timedelta | None  #: None: it never ran
    lag: timedelta | None


class UnfinishedCounts(NamedTuple):
    """The number of unfinished jobs per task and state."""

    counts: dict[str, dict[JobState, int]]
    sampled: bool  #: whether there were more jobs than were counted


class TaskBacklog(NamedTuple):
    """A task, the number of its pending jobs, and since when the first of them has been due."""

    task: str
    pending: int
    oldest_at: datetime


class DeclaredCounts(NamedTuple):
    """The number of definitions and schedules, enabled and disabled."""

    definitions: int
    disabled_definitions: int
    schedules: int
    disabled_schedules: int


class Holder(NamedTuple):
    """The number of jobs that one worker holds."""

    worker: UUID
    claimed: int
    running: int
    first_claim_at: datetime
    last_claim_at: datetime


USED = 0.8
"""The share of its timeout after which a job without recent progress counts as stuck."""


def is_stuck(held: HeldRow, now: datetime, quiet: timedelta) -> bool:
    """Whether a held job should concern an operator.

    It has to have given no sign for ``quiet``, and to have used most of its timeout. A job without a timeout, or one that
    was claimed and never started, is judged by its silence alone.
    """
    if now - held.heard_at < quiet:
        return False
    if held.timeout is None or held.started_at is None:
        return True
    return now - held.started_at >= held.timeout * USED


def mean(total: timedelta, number: int) -> timedelta | None:
    """The average; None if there are no values.

    >>> mean(timedelta(seconds=9), 3)
    datetime.timedelta(seconds=3)
    """
    return total / number if number else None


def span_of(later: datetime | None, earlier: datetime | None) -> timedelta | None:
    """The time from one instant to the other, at least zero; None if either is unknown."""
    return None if later is None or earlier is None else max(later - earlier, _ZERO)


# Steps --------------------------------------------------------------------------------------------------------------

MOST_STEPS = 2_000


def check_reach(name: str, span: timedelta) -> None:
    """Refuse a window, or another duration counted back from now, that leads out of the calendar.

    >>> check_reach("window", timedelta(days=365))
    """
    if not -LONGEST <= span <= LONGEST:
        raise BadFilter(f"{name} is {span}; the longest duration is a hundred years", field=name)


def steps_of(now: datetime, window: timedelta, step: timedelta) -> tuple[list[datetime], timedelta]:
    """The start of each step of a series, and the length of a step; the last step contains now.

    A step is a multiple of the window's unit.

    >>> from datetime import UTC
    >>> now, minute = datetime(2026, 1, 1, 12, 5, 9, tzinfo=UTC), timedelta(minutes=1)
    >>> [at.minute for at in steps_of(now, 3 * minute, minute)[0]]
    [3, 4, 5]
    """
    check_reach("window", window)
    check_reach("step", step)
    number = -(-window // step) if step > _ZERO else 0
    if not 1 <= number <= MOST_STEPS:
        raise BadFilter(
            f"a series of {window} in steps of {step}: give 1 to {MOST_STEPS} steps", steps=number
        )
    step = step_of(window, step)
    last = floored(now, step)
    return [last - step * back for back in range(-(-window // step) - 1, -1, -1)], step


class OutcomeCounts(NamedTuple):
    """Ended jobs by outcome."""

    completed: int
    failed: int
    cancelled: int


def outcomes_of(states: Mapping[JobState, int]) -> OutcomeCounts:
    """Count ended jobs by outcome, from their number in each state."""
    return OutcomeCounts(
        states.get(JobState.COMPLETED, 0),
        sum(states.get(state, 0) for state in FAILURES),
        states.get(JobState.CANCELLED, 0),
    )


def series_of(
    steps: list[datetime],
    step: timedelta,
    counts: Iterable[tuple[datetime, str, int]],
    times: Iterable[tuple[datetime, str, int, int, int]],
) -> Series:
    """A series, from the jobs of each step and state, and from the jobs and microseconds of each step, measure and bucket."""
    jobs: dict[datetime, dict[JobState, int]] = {at: {} for at in steps}
    for at, state, number in counts:
        jobs[at][JobState(state)] = number
    measured: dict[datetime, list[tuple[str, int, int, int]]] = {at: [] for at in steps}
    for at, measure, bucket, number, time in times:
        measured[at].append((measure, bucket, number, time))
    slots = [
        SeriesStep(
            at,
            sum(states.values()),
            *outcomes_of(states),
            times_of(measured[at]),
        )
        for at, states in jobs.items()
    ]
    return Series(slots, step, steps[0])
