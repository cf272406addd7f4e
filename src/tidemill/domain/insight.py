"""What a store tells operators: counts of what ended, what waits and what is held; and the arithmetic on them.

Values and pure functions only. What a store saw is told here as sums and counts, which are the same in every store;
averages and quantiles are made of them by whoever asks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.bounds import LONGEST
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

FAILURES = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED})
"""Ends that count as failures; what was cancelled did not fail."""

LOOK = 30_000
"""The most ended jobs one question looks at."""

LOOK_AT_FAILURES = 10_000
"""The same of failures, whose rows are long."""

LOOK_AT_TIMES = 1_000_000
"""The most ended jobs a series counts by their time alone, which the index tells."""

SAMPLES = 100
"""Jobs of each step of a series whose durations are looked at."""

MESSAGE = 200
"""Characters of an error's message that are told and compared."""

_ZERO = timedelta(0)


class Group(StrEnum):
    """By what ended jobs are counted."""

    TASK = "task"
    TENANT = "tenant"
    QUEUE = "queue"
    WORKER = "worker"
    STATE = "state"


class Ended(NamedTuple):
    """Ended jobs of one name. ``ran`` of them were ever started; ``run_time`` and ``lag`` are sums over those."""

    name: str | None  #: None: those that no worker ever held, where workers are counted
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
    lag: timedelta  #: from the time it was due until it started
    longest_lag: timedelta
    tenants: int
    last_at: datetime


class Tally(NamedTuple):
    """Ended jobs by name, the most first. Where there were more than were looked at, they are the latest ones."""

    rows: list[Ended]
    since_at: datetime  #: from here on, all were looked at
    sampled: bool  #: not all of the window


class Slot(NamedTuple):
    """One step of a series: how many ended in it, and how long a sample of them took and had waited."""

    at: datetime
    total: int
    completed: int
    failed: int
    cancelled: int
    run_times: tuple[timedelta, ...]
    lags: tuple[timedelta, ...]


class Series(NamedTuple):
    """What ended, step by step, the oldest first and without gaps."""

    slots: list[Slot]
    step: timedelta
    since_at: datetime
    sampled: bool


class Trouble(NamedTuple):
    """A job that failed, and the beginning of what it said."""

    id: UUID
    tenant: str
    task: str
    state: JobState
    finished_at: datetime
    type: str | None
    message: str | None
    reason: str | None


class Depth(NamedTuple):
    """A queue: what waits for a worker, what is due and was not promoted yet, and since when the first in line is due."""

    queue: str
    pending: int
    late: int
    oldest_at: datetime | None


class Which(StrEnum):
    """Which held jobs are meant."""

    ALL = "all"
    OVERDUE = "overdue"  #: past their timeout
    ORPHANED = "orphaned"  #: their worker's lease has run out, or nobody knows it


class Held(NamedTuple):
    """A held job and how its worker is; a worker nobody knows has no name and no heartbeat."""

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


class Lately(NamedTuple):
    """A job that ended, as far as it tells how its task is doing; without arguments and result, which may be long."""

    task: str
    id: UUID
    state: JobState
    finished_at: datetime
    run_time: timedelta | None  #: None: it never ran
    lag: timedelta | None


class Crowd(NamedTuple):
    """How many jobs that have not ended there are of each task and state."""

    counts: dict[str, dict[JobState, int]]
    sampled: bool  #: there were more than were looked at


class Holder(NamedTuple):
    """What one worker holds."""

    worker: UUID
    claimed: int
    running: int
    first_claim_at: datetime
    last_claim_at: datetime


def mean(total: timedelta, number: int) -> timedelta | None:
    """The average; None of nothing.

    >>> mean(timedelta(seconds=9), 3)
    datetime.timedelta(seconds=3)
    """
    return total / number if number else None


def quantile(values: Sequence[timedelta], share: float) -> timedelta | None:
    """The least value that at least this share of the values does not exceed; None of nothing.

    >>> quantile([timedelta(seconds=n) for n in (4, 1, 3, 2)], 0.5)
    datetime.timedelta(seconds=2)
    """
    if not values:
        return None
    ordered = sorted(values)
    place = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(int(place), 1) - 1]


def span_of(later: datetime | None, earlier: datetime | None) -> timedelta | None:
    """How long from one to the other, never less than nothing; None where either is unknown."""
    return None if later is None or earlier is None else max(later - earlier, _ZERO)


# Errors -------------------------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_ID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.IGNORECASE
)
_HEX = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])[-+]?\d+(?:[.,:]\d+)*")


def normalised(message: str) -> str:
    """A message without what differs from job to job: quoted text, ids and numbers.

    >>> normalised("order 4711 of 'ann' not found after 3.5 s")
    'order # of … not found after # s'
    """
    text = " ".join(message[:MESSAGE].split())
    for pattern, word in ((_ID, "#"), (_QUOTED, "…"), (_HEX, "#"), (_NUMBER, "#")):
        text = pattern.sub(word, text)
    return text


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one task that say the same."""

    fingerprint: str  #: of task, type and normalised message; the same on every machine and at every time
    task: str
    type: str | None
    message: str  #: as the latest of them said it
    count: int
    tenants: int
    first_at: datetime
    last_at: datetime
    example: UUID  #: the latest of them


def fingerprint(task: str, type: str | None, message: str) -> str:
    """What failures of the same kind have in common, in sixteen characters."""
    text = "\x1f".join((task, type or "", normalised(message)))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def gathered(troubles: Iterable[Trouble]) -> dict[str, list[Trouble]]:
    """Failures by what they say, each under its fingerprint, in the order given."""
    found: dict[str, list[Trouble]] = {}
    for trouble in troubles:
        said = trouble.message if trouble.type is not None else trouble.reason
        found.setdefault(fingerprint(trouble.task, trouble.type, said or ""), []).append(trouble)
    return found


def error_groups(troubles: Iterable[Trouble], limit: int) -> list[ErrorGroup]:
    """Failures gathered by what they say, the most frequent first."""
    groups = []
    for key, alike in gathered(troubles).items():
        last = max(alike, key=lambda trouble: (trouble.finished_at, trouble.id))
        said = last.message if last.type is not None else last.reason
        groups.append(
            ErrorGroup(
                fingerprint=key,
                task=last.task,
                type=last.type,
                message=said or "",
                count=len(alike),
                tenants=len({trouble.tenant for trouble in alike}),
                first_at=min(trouble.finished_at for trouble in alike),
                last_at=last.finished_at,
                example=last.id,
            )
        )
    groups.sort(key=lambda group: (-group.count, -group.last_at.timestamp(), group.fingerprint))
    return groups[: max(limit, 0)]


# Steps --------------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_STEPS = 2_000


def check_reach(name: str, span: timedelta) -> None:
    """Refuse a window, or another span that is counted back from now, that leads out of the calendar.

    >>> check_reach("window", timedelta(days=365))
    """
    if not -LONGEST <= span <= LONGEST:
        raise BadFilter(f"{name} is {span}; a hundred years are the most", field=name)


def steps_of(now: datetime, window: timedelta, step: timedelta) -> list[datetime]:
    """When each step of a series begins; the last one is the one that now is in.

    >>> [at.minute for at in steps_of(datetime(2026, 1, 1, 12, 5, 9, tzinfo=UTC), timedelta(minutes=3), timedelta(minutes=1))]
    [3, 4, 5]
    """
    check_reach("window", window)
    check_reach("step", step)
    number = -(-window // step) if step > _ZERO else 0
    if not 1 <= number <= MOST_STEPS:
        raise BadFilter(
            f"a series of {window} in steps of {step}: give 1 to {MOST_STEPS} steps", steps=number
        )
    last = _EPOCH + (now - _EPOCH) // step * step
    return [last - step * back for back in range(number - 1, -1, -1)]


def whole_from(steps: Sequence[datetime], step: timedelta, first: datetime | None, sampled: bool) -> datetime:
    """From which step on a series is whole: after the first that was looked at, where not all was; the last one in any case."""
    if not sampled or first is None:
        return steps[0]
    return min(first + step, steps[-1])
