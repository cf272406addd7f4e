"""The PostgreSQL store: as the SQL store, but a batch of jobs that ended for good goes with the next claim in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import NO_DETAILS, Enqueued, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ENDED
from tidemill.errors import JobExists
from tidemill.stores.base import Step
from tidemill.stores.sql.flow import claim_takes, claims_of, end_columns, lane_columns, wants
from tidemill.stores.sql.store import SqlStore

_LOST = 18  # its place in a row of ``step``


class PostgresStore(SqlStore):
    """A store in PostgreSQL."""

    def enqueue(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        if not jobs or not _alike(jobs):
            return super().enqueue(jobs, now=now)
        if len(jobs) == 1:
            return self._enqueue_one(jobs[0], now)
        columns: dict[str, list[Any]] = {
            "id": [job.id for job in jobs],
            "args": [job.args for job in jobs],
        }
        taken = [row[0] for row in self._db.run("enqueue_alike", _common(jobs[0], now), columns)]
        if taken:
            raise JobExists(f"job {taken[0]} is already stored; nothing was enqueued", ids=frozenset(taken))
        return [Enqueued(job.id, True) for job in jobs]

    def _enqueue_one(self, job: NewJob, now: datetime | None) -> list[Enqueued]:
        takes = _common(job, now)
        takes["id"], takes["args"] = job.id, job.args
        takes |= self._db.carried(f"ready:{job.queue}")
        if not self._db.run("enqueue_one", takes):
            raise JobExists(f"job {job.id} is already stored; nothing was enqueued", ids=frozenset({job.id}))
        return [Enqueued(job.id, True)]

    def step(self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None) -> Step:
        if not finishes:
            return Step(frozenset(), self.claim(request, now=now))
        if not wants(request):
            return Step(self.finish(finishes, now=now), [])
        if not all(item.transition.state in ENDED and item.claim.unique_key is None for item in finishes):
            return super().step(finishes, request, now=now)
        takes = claim_takes(request, now) | lane_columns(request.lanes)
        if all(item.transition is COMPLETED for item in finishes):
            rows = self._db.run("step_done", takes, _done_columns(finishes))
        else:
            rows = self._db.run("step", takes, end_columns(finishes))
        lost = [row[_LOST] for row in rows if row[_LOST] is not None]
        claimed = [row[:_LOST] for row in rows if row[_LOST] is None]
        return Step(frozenset(lost), claims_of(claimed, request))


def _common(job: NewJob, now: datetime | None) -> dict[str, Any]:
    """What jobs that are alike share, as single parameters."""
    return {
        "now": now,
        "tenant": job.tenant,
        "queue": job.queue,
        "task": job.task,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "expires_at": job.expires_at,
    }


def _done_columns(finishes: Sequence[Finish]) -> dict[str, list[Any]]:
    """What differs among jobs that all succeeded."""
    return {
        "id": [item.claim.id for item in finishes],
        "token": [item.claim.token for item in finishes],
        "result": [item.result for item in finishes],
        "started_ago": [item.started_ago for item in finishes],
        "ended_ago": [item.ended_ago for item in finishes],
    }


def _alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs differ only in id and arguments, are due now, and hold and describe nothing."""
    first = jobs[0]
    if first.run_at or first.delay or first.unique or first.limits or first.waiting is not None:
        return False
    if first.details is not NO_DETAILS and first.details != NO_DETAILS:
        return False
    if len(jobs) == 1:
        return True
    task, rest = first.task, first[3:]
    return all(job[1] == task and job[3:] == rest for job in jobs)
