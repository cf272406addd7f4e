"""Unique keys in memory: lookup, acquisition and release."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import JobRow, UniqueHold
from tidemill.stores.memory.state import State, UniqueKeyHold


def holder(state: State, tenant: str, key: str, now: datetime) -> UUID | None:
    """The job that blocks this key now."""
    hold = state.holds.get((tenant, key))
    if hold is None:
        return None
    in_window = hold.window_ends_at is not None and now < hold.window_ends_at
    return hold.job_id if hold.live or in_window else None


def hold_of(job: JobRow, rule: UniqueHold) -> UniqueKeyHold:
    """The hold of a live job under its rule; the window counts from its enqueue."""
    return UniqueKeyHold(
        job.id, live=True, window_ends_at=None if rule.window is None else job.created_at + rule.window
    )


def take(state: State, job: JobRow, rule: UniqueHold) -> None:
    """Assign the key to this job."""
    state.rules[job.id] = rule
    state.holds[job.tenant, rule.key] = hold_of(job, rule)


def retake(state: State, job: JobRow, now: datetime) -> bool:
    """Assign its key to a reopened job again; False, without a change, while another job holds it."""
    rule = state.rules.get(job.id)
    if rule is None:
        return True
    if holder(state, job.tenant, rule.key, now) not in (None, job.id):
        return False
    take(state, job, rule)
    return True


def release(state: State, job: JobRow, now: datetime) -> None:
    """Release the job's key, if it has one; the rest of the window still blocks others."""
    rule = state.rules.get(job.id)
    hold = None if rule is None else state.holds.get((job.tenant, rule.key))
    if rule is None or hold is None or hold.job_id != job.id:
        return
    if hold.window_ends_at is not None and now < hold.window_ends_at:
        state.holds[job.tenant, rule.key] = replace(hold, live=False)
    else:
        del state.holds[job.tenant, rule.key]


def drop(state: State, job_id: UUID) -> None:
    """Release all keys of this job, regardless of windows."""
    for place in [place for place, hold in state.holds.items() if hold.job_id == job_id]:
        del state.holds[place]


def sweep(state: State, now: datetime) -> None:
    """Delete keys that are no longer held."""
    for place in [place for place, hold in state.holds.items() if _over(hold, now)]:
        del state.holds[place]


def _over(hold: UniqueKeyHold, now: datetime) -> bool:
    return not hold.live and (hold.window_ends_at is None or hold.window_ends_at <= now)
