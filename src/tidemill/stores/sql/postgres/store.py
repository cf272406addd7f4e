"""The PostgreSQL store: as the SQL store, but a batch of jobs that ended for good goes with the next claim in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
        first = jobs[0]
        takes = {
            "now": now,
            "tenant": first.tenant,
            "queue": first.queue,
            "task": first.task,
            "priority": first.priority,
            "max_attempts": first.max_attempts,
            "timeout": first.timeout,
            "expires_at": first.expires_at,
        }
        if len(jobs) == 1:
            done = self._db.run("enqueue_one", takes | {"id": first.id, "args": first.args})
            taken = [] if done else [first.id]
        else:
            columns: dict[str, list[Any]] = {
                "id": [job.id for job in jobs],
                "args": [job.args for job in jobs],
            }
            taken = [row[0] for row in self._db.run("enqueue_alike", takes, columns)]
        if taken:
            raise JobExists(f"job {taken[0]} is already stored; nothing was enqueued", ids=frozenset(taken))
        return [Enqueued(job.id, True) for job in jobs]

    def step(self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None) -> Step:
        if not finishes:
            return Step(frozenset(), self.claim(request, now=now))
        if not wants(request):
            return Step(self.finish(finishes, now=now), [])
        if not all(item.transition.state in ENDED and item.claim.unique_key is None for item in finishes):
            return super().step(finishes, request, now=now)
        takes = claim_takes(request, now) | lane_columns(request.lanes)
        rows = self._db.run("step", takes, end_columns(finishes))
        lost = [row[_LOST] for row in rows if row[_LOST] is not None]
        claimed = [row[:_LOST] for row in rows if row[_LOST] is None]
        return Step(frozenset(lost), claims_of(claimed, request))


def _alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs differ only in id and arguments, are due now, and hold and describe nothing."""
    first = jobs[0]
    if first.run_at or first.delay or first.unique or first.limits or first.details != NO_DETAILS:
        return False
    task, rest = first.task, first[3:]
    return all(job[1] == task and job[3:] == rest for job in jobs)
