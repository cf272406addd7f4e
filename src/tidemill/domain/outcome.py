"""Outcomes of an execution, the input of ``decide``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.job import ErrorInfo
from tidemill.domain.misfits import NEWER_CODE_WAIT


class Succeeded(NamedTuple):
    """The task returned; ``result`` is JSON text. A tuple, because tens of thousands are created per second."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The task raised an exception. ``retryable`` and ``retry_after`` are the task's request, if it made one."""

    error: ErrorInfo
    permanent: bool = False
    retryable: bool | None = None
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The task exceeded its timeout. ``retryable`` and ``retry_after`` are the task's request, if it made one."""

    limit: timedelta
    retryable: bool | None = None
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task stopped because cancellation was requested."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran the task is gone, or its worker's lease expired.

    ``alone`` means that no other job can have started in that process, so only this job can have crashed it.
    """

    reason: str
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Released:
    """The worker released the job unfinished; this uses no attempt."""

    reason: str


STOPPING = "the worker is stopping"
"""The reason of jobs that a worker releases when it stops."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task postponed itself; this uses no attempt."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """The task waits for an event; with a ``delay`` it resumes by itself."""

    reason: str
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ReviewRequested:
    """The task requests a decision of a person; ``output`` is JSON text shown to them."""

    reason: str
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """The job's arguments do not fit this version of the task, which was not called; ``error`` was raised while reading them.

    ``times`` and ``since``: how often in a row, and since when, workers could not read it. ``wait`` is the longest total wait.
    """

    error: ErrorInfo
    problem: str
    times: int = 0
    since: datetime | None = None
    wait: timedelta = NEWER_CODE_WAIT


Outcome = (
    Succeeded
    | Failed
    | TimedOut
    | Cancelled
    | Crashed
    | Released
    | Snoozed
    | Suspended
    | ReviewRequested
    | Misfit
)
