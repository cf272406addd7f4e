"""Waiting rules for jobs whose arguments do not fit a worker's code.

During a deployment old and new code run at the same time, and a job may need an argument that only one version has. Such a job is
released without using an attempt, retried with a growing delay, and fails at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.job import Execution
from tidemill.domain.states import ExecutionState

NEWER_CODE_WAIT = timedelta(hours=1)
"""How long a job waits for a worker that can read it, unless the worker's settings override it."""

FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=5), timedelta(seconds=60)

_REASON = "its arguments do not fit this worker's version of the task"


class Tried(NamedTuple):
    """How often in a row workers could not read a job, and when this happened first."""

    times: int = 0
    since: datetime | None = None


def reason_of(problem: str, until: datetime) -> str:
    """The reason that such a job waits with."""
    return f"{_REASON}: {problem}; waiting for a worker with newer code until {until:%Y-%m-%d %H:%M} UTC"


def is_misfit(reason: str | None) -> bool:
    """Whether a job or an execution has this reason."""
    return reason is not None and reason.startswith(_REASON)


def tried(executions: Iterable[Execution], token: int) -> Tried:
    """The count from the executions before this token; only the last consecutive ones count."""
    times, since = 0, None
    for execution in sorted(executions, key=lambda execution: execution.number):
        if execution.number >= token:
            break
        if execution.state is ExecutionState.RELEASED and is_misfit(execution.reason):
            times, since = times + 1, since or execution.finished_at
        else:
            times, since = 0, None
    return Tried(times, since)


def delay_of(times: int) -> timedelta:
    """The delay before the next try, after this many workers could not read the job.

    >>> [delay_of(times).total_seconds() for times in (0, 1, 2, 5, 7)]
    [5.0, 7.5, 11.25, 37.96875, 60.0]
    """
    return min(FIRST_DELAY * 1.5 ** min(times, 10), LONGEST_DELAY)
