"""Enqueue hooks and events for the jobs of schedules.

A fire passes the app's hooks just before the transaction that writes it. User code therefore never holds a lock of the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.domain.schedule_fires import FirePlan
from tidemill.domain.states import JobState
from tidemill.tasks.events import Event, Events
from tidemill.tasks.hooks import NO_HOOKS, Hooks

ENQUEUED = "job.enqueued"

Declares = Callable[[str], bool]
"""Whether the app declares a task. The hooks of one app do not see the jobs of another."""


class Applied(NamedTuple):
    """The answer of the hooks.

    ``plans`` are to be written, and ``refused`` are put off with the error of a hook. ``unanswered`` are schedules whose
    hooks have not ended yet: they stay due, and the next run of the duty asks again.
    """

    plans: Sequence[FirePlan]
    refused: Sequence[tuple[FirePlan, str]] = ()
    unanswered: frozenset[UUID] = frozenset()


class FireHooks(Protocol):
    """The hooks and the event subscribers that the jobs of schedules pass."""

    def apply(self, plans: Sequence[FirePlan], declares: Declares) -> Applied:
        """Pass the jobs of these plans through the hooks."""

    def publish(self, jobs: Sequence[NewJob], now: datetime) -> None:
        """Publish events for jobs that were just written."""


class LocalFireHooks(NamedTuple):
    """The hooks and subscribers of an app in this process."""

    hooks: Hooks
    events: Events | None

    def apply(self, plans: Sequence[FirePlan], declares: Declares) -> Applied:
        """Call the hooks in this thread."""
        if not self.hooks.on_enqueue:
            return Applied(plans)
        applied: list[FirePlan] = []
        refused: list[tuple[FirePlan, str]] = []
        for plan in plans:
            if not declares(plan.schedule.task):
                applied.append(plan)
                continue
            try:
                # One plan has jobs of one task.
                applied.append(plan._replace(jobs=tuple(self.hooks.pass_through(plan.jobs))))
            except Exception as error:  # noqa: BLE001  (user code; one schedule must not stop the others)
                refused.append((plan, error_text(error)))
        return Applied(applied, refused)

    def publish(self, jobs: Sequence[NewJob], now: datetime) -> None:
        """Call the subscribers in this thread."""
        if self.events is None or not self.events.wanted:
            return
        for job in jobs:
            self.events.publish(Event(ENQUEUED, now, job.id, job.task, job.tenant, first_state(job, now)))


NO_FIRE_HOOKS = LocalFireHooks(NO_HOOKS, None)
"""For a process without an app."""


def first_state(job: NewJob, now: datetime) -> JobState:
    """The state in which a job is written."""
    if job.waiting is not None:
        return JobState.WAITING
    return JobState.SCHEDULED if job.run_at is not None and job.run_at > now else JobState.PENDING


def error_text(error: BaseException) -> str:
    """The type and the message of an error of user code."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  (a user's __str__ may raise anything)
        return type(error).__name__
