"""Unique keys: who holds one, taking it and letting it go. It must not decide when: the verbs do, as law 7 says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import Job, UniqueHold
from tidemill.stores.memory.state import Hold, State


def holder(state: State, tenant: str, key: str, now: datetime) -> UUID | None:
    """The job that keeps others from this key now."""
    hold = state.holds.get((tenant, key))
    if hold is None:
        return None
    in_window = hold.window_ends_at is not None and now < hold.window_ends_at
    return hold.job_id if hold.live or in_window else None


def hold_of(job: Job, rule: UniqueHold) -> Hold:
    """The hold a live job has by its rule; the window counts from when it was enqueued."""
    return Hold(
        job.id, live=True, window_ends_at=None if rule.window is None else job.created_at + rule.window
    )


def take(state: State, job: Job, rule: UniqueHold) -> None:
    """Give the key to this job."""
    state.rules[job.id] = rule
    state.holds[job.tenant, rule.key] = hold_of(job, rule)


def retake(state: State, job: Job, now: datetime) -> bool:
    """Give a job that is reopened its key again; False, and nothing done, while another job holds it."""
    rule = state.rules.get(job.id)
    if rule is None:
        return True
    if holder(state, job.tenant, rule.key, now) not in (None, job.id):
        return False
    take(state, job, rule)
    return True


def release(state: State, job: Job, now: datetime) -> None:
    """The job lets go of its key, if it has one; what is left of the window still blocks others."""
    rule = state.rules.get(job.id)
    hold = None if rule is None else state.holds.get((job.tenant, rule.key))
    if rule is None or hold is None or hold.job_id != job.id:
        return
    if hold.window_ends_at is not None and now < hold.window_ends_at:
        state.holds[job.tenant, rule.key] = replace(hold, live=False)
    else:
        del state.holds[job.tenant, rule.key]


def drop(state: State, job_id: UUID) -> None:
    """Whatever this job holds is free again, window or not."""
    for place in [place for place, hold in state.holds.items() if hold.job_id == job_id]:
        del state.holds[place]


def sweep(state: State, now: datetime) -> None:
    """Remove keys that nothing holds any more."""
    for place in [place for place, hold in state.holds.items() if _over(hold, now)]:
        del state.holds[place]


def _over(hold: Hold, now: datetime) -> bool:
    return not hold.live and (hold.window_ends_at is None or hold.window_ends_at <= now)
