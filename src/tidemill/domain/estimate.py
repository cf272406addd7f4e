"""ETA estimates, from reported progress and from past runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState

_ZERO = timedelta(0)


def fraction_of(step: int, total: int) -> float:
    """The fraction of completed steps, clamped to 0 to 1.

    >>> fraction_of(5, 20)
    0.25
    """
    if total <= 0 or step <= 0:
        return 0.0
    return 1.0 if step >= total else step / total


def eta_from_rate(started_at: datetime, fraction: float, reported_at: datetime) -> datetime | None:
    """The end of a job at its rate of progress so far; None while the rate is unknown."""
    if fraction >= 1.0:
        return reported_at
    elapsed = reported_at - started_at
    if not fraction > 0.0 or elapsed <= _ZERO:
        return None
    try:
        return reported_at + elapsed * ((1.0 - fraction) / fraction)
    except OverflowError:
        return None


def eta_from_past(started_at: datetime, durations: Sequence[timedelta], now: datetime) -> datetime | None:
    """The end of a job that takes the median of past durations; never before now."""
    if not durations:
        return None
    ordered = sorted(durations)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    try:
        return max(started_at + median, now)
    except OverflowError:
        return None


def eta(
    started_at: datetime,
    now: datetime,
    *,
    fraction: float | None = None,
    reported_at: datetime | None = None,
    past: Sequence[timedelta] = (),
) -> datetime | None:
    """The best estimate: from the job's progress if it reported any, otherwise from past runs."""
    if fraction is not None:
        by_rate = eta_from_rate(started_at, fraction, reported_at or now)
        if by_rate is not None:
            return max(by_rate, now) if fraction < 1.0 else by_rate
    return eta_from_past(started_at, past, now)


def fraction_done(job: JobRow) -> float:
    """The progress of a job, 0 to 1."""
    if job.state is JobState.COMPLETED:
        return 1.0
    progress = job.progress
    return progress.fraction if progress is not None and progress.fraction is not None else 0.0


def percent_done(fraction: float) -> int:
    """A progress in whole percent; 100 only when nothing is left."""
    return int(fraction * 100 + 1e-9)


def eta_of(job: JobRow, now: datetime) -> datetime | None:
    """The estimated end of a running job; None if it has not reported progress."""
    if job.state is not JobState.RUNNING or job.started_at is None or job.progress is None:
        return None
    return eta(job.started_at, now, fraction=job.progress.fraction, reported_at=job.progress.at)


def drain_time(pending: int, per_second: float) -> timedelta | None:
    """The time until a queue is empty at this rate; None if it never is."""
    if pending <= 0:
        return _ZERO
    if not per_second > 0:
        return None
    try:
        return timedelta(seconds=pending / per_second)
    except OverflowError:
        return None
