"""Insertion of new jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.job import Enqueued, JobRow, NewJob
from tidemill.domain.states import JobState
from tidemill.errors import JobExists
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.copies import kept_details
from tidemill.stores.memory.state import State

_ZERO = timedelta(0)


def prepared(state: State, jobs: Sequence[NewJob], moment: datetime) -> list[JobRow]:
    """The rows to insert; raises before anything is written."""
    _refuse_known(state, jobs)
    return [_made(new, moment) for new in jobs]


def inserted(
    state: State, jobs: Sequence[NewJob], made: Sequence[JobRow], moment: datetime
) -> list[Enqueued]:
    """Insert prepared rows, except jobs whose unique key is held."""
    answers = []
    for new, job in zip(jobs, made, strict=True):
        rule = new.unique
        holder = None if rule is None else unique_keys.holder(state, job.tenant, rule.key, moment)
        if holder is None:
            state.place(job)
            if new.tied:
                state.tied.add(job.id)
            if rule is not None:
                unique_keys.take(state, job, rule)
        answers.append(Enqueued(job.id, True) if holder is None else Enqueued(holder, False))
    return answers


def _refuse_known(state: State, jobs: Sequence[NewJob]) -> None:
    seen: set[UUID] = set()
    stored: list[UUID] = []
    for new in jobs:
        if new.id in state.jobs or new.id in seen:
            stored.append(new.id)
        seen.add(new.id)
    if stored:
        raise JobExists(f"job {stored[0]} is already stored; nothing was enqueued", ids=tuple(stored))


def _made(new: NewJob, now: datetime) -> JobRow:
    run_at = now
    if new.waiting is not None:
        pass  # it waits for an event, not for a time
    elif new.run_at is not None:
        run_at = new.run_at
    elif new.delay is not None:
        run_at = now + max(new.delay, _ZERO)
    job = JobRow(
        id=new.id,
        task=new.task,
        state=_first_state(new, run_at, now),
        tenant=new.tenant,
        queue=new.queue,
        priority=new.priority,
        args=new.args,
        attempt=0,
        max_attempts=new.max_attempts,
        crashes=0,
        token=0,
        run_at=run_at,
        created_at=now,
        expires_at=new.expires_at,
        timeout=new.timeout,
        reason=new.waiting,
        unique_key=None if new.unique is None else new.unique.key,
        limits=tuple(new.limits),
        details=kept_details(new.details),
    )
    if new.unique is not None:
        # Called for its check: a window that ends beyond the calendar is refused before anything is written.
        unique_keys.hold_of(job, new.unique)
    return job


def _first_state(new: NewJob, run_at: datetime, now: datetime) -> JobState:
    if new.waiting is not None:
        return JobState.WAITING
    return JobState.SCHEDULED if run_at > now else JobState.PENDING
