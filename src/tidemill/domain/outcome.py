"""What happened to an execution, before anybody decides what it means for the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from tidemill.domain.job import ErrorInfo


class Succeeded(NamedTuple):
    """The task returned; ``result`` is JSON text. A tuple, because tens of thousands of them are made a second."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The task raised. ``retryable`` and ``retry_after`` are the task's own wish, where it has one."""

    error: ErrorInfo
    permanent: bool = False
    retryable: bool | None = None
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The task ran longer than it may."""

    limit: timedelta


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task stopped because it was asked to."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran the task is gone, or its worker's lease ran out."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The worker handed the job back unfinished; it costs no attempt."""

    reason: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task put itself off; it costs no attempt."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """The task waits for something; with a ``delay`` it comes back by itself."""

    reason: str
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """The task asks a person; ``output`` is JSON text shown to them."""

    reason: str
    output: str | None = None


Outcome = Succeeded | Failed | TimedOut | Cancelled | Crashed | Released | Snoozed | Suspended | Review
