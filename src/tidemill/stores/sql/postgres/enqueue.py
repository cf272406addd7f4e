"""The enqueue of the PostgreSQL store: single jobs, batches of similar jobs, and jobs created during the insert."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from tidemill.domain.calls import NUMBERS, call_pattern, new_job_topics
from tidemill.domain.job import NO_DETAILS, Enqueued, NewJob
from tidemill.domain.subscriptions import ENQUEUED, wants_any
from tidemill.errors import JobExists, StoreBusy
from tidemill.stores.sql.postgres.driver import PostgresDriver
from tidemill.stores.sql.postgres.statements import PreparedCall
from tidemill.stores.sql.store import SqlStore

LOT = 200
"""Jobs per statement: large enough to be cheap, small enough to give the server work early."""

_MOST_PLANS = 1_000
_DIFFERING = ("id", "tenant", "args", "expires_at")


class _Plan(NamedTuple):
    """The insert of single jobs of one task with the same settings."""

    call: PreparedCall  #: without a wake-up
    waking: PreparedCall  #: with a wake-up
    message: str  #: the wake-up, with ``%d`` for the number of the call


class PostgresEnqueue(SqlStore):
    """The verb ``enqueue`` with fewer parameters for the most frequent calls."""

    _db: PostgresDriver

    def __init__(self, driver: PostgresDriver) -> None:
        super().__init__(driver)
        self._plans: dict[tuple[object, ...], _Plan] = {}

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        if self.subscriptions and wants_any(self.subscriptions, ENQUEUED):
            return self._enqueue_watched(jobs, now)
        if not isinstance(jobs, Sequence):
            return self._enqueue_made(iter(jobs), now)
        if not jobs or not alike(jobs):
            return super().enqueue(jobs, now=now)
        if len(jobs) == 1 and now is None:
            return self._write_one(jobs[0], self._plan_of(jobs[0]).call)
        rows = self._db.run("enqueue_alike", common_values(jobs[0], now), columns_of(jobs))
        if rows:
            raise _stored([row[0] for row in rows])
        return [Enqueued(job.id, True) for job in jobs]

    def enqueue_and_wake(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs and wake workers. After a quiet period, the wake-up of a single job is sent with its commit."""
        if len(jobs) != 1 or not alike(jobs) or self.subscriptions:
            return super().enqueue_and_wake(jobs)
        (job,) = jobs
        plan = self._plan_of(job)
        if self._db.may_wake():
            return self._write_one(job, plan.waking, plan.message % (job.id.int % NUMBERS))
        written = self._write_one(job, plan.call)
        self._db.notify(new_job_topics(jobs))
        return written

    def _write_one(self, job: NewJob, call: PreparedCall, *message: str) -> list[Enqueued]:
        if not self._db.run_prepared(call, (job.id, job.tenant, job.args, job.expires_at, *message)):
            raise _stored([job.id])
        return [Enqueued(job.id, True)]

    def _plan_of(self, job: NewJob) -> _Plan:
        key = (job.task, job.queue, job.priority, job.max_attempts, job.timeout)
        return self._plans.get(key) or self._add_plan(key, job)

    def _add_plan(self, key: tuple[object, ...], job: NewJob) -> _Plan:
        takes = common_values(job, None)
        topic = f"ready:{job.queue}".replace("%", "%%")
        plan = _Plan(
            self._db.prepare("enqueue_one", takes, _DIFFERING),
            self._db.prepare("enqueue_one", {**takes, "channel": self._db.channel}, (*_DIFFERING, "payload")),
            # Two topics always fit into one message.
            json.dumps([topic, call_pattern(1)]),
        )
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _enqueue_made(self, jobs: Iterator[NewJob], now: datetime | None) -> list[Enqueued]:
        """Let the server insert jobs while further ones are created, as long as they are similar."""
        bulk = _BulkEnqueue(jobs)
        if not bulk.alike:
            return self.enqueue(bulk.all(), now=now)
        try:
            lots = self._db.run_each(
                "enqueue_alike",
                common_values(bulk.made[0], now),
                bulk.columns(),
                lambda lots: not any(lots),
            )
        except (_DifferentShape, StoreBusy):
            lots = None
        if lots is None:
            return self.enqueue(bulk.all(), now=now)
        taken = [row[0] for rows in lots for row in rows]
        if taken:
            raise _stored(taken)
        return [Enqueued(job.id, True) for job in bulk.made]


class _DifferentShape(Exception):
    """A job differs from the previous ones in more than its id and its arguments."""


class _BulkEnqueue:
    """Jobs from an iterator, in lots; ``made`` holds all jobs so far."""

    def __init__(self, jobs: Iterator[NewJob]) -> None:
        self._jobs = jobs
        self.made: list[NewJob] = []
        self._more()
        self.alike = len(self.made) == LOT and alike(self.made)

    def _more(self) -> list[NewJob]:
        lot = list(islice(self._jobs, LOT))
        self.made += lot
        return lot

    def columns(self) -> Iterator[dict[str, list[Any]]]:
        """One lot after another, each created on demand; ``_DifferentShape`` if a job is not like the first."""
        lot, first = self.made[:], self.made[0]
        while lot:
            yield columns_of(lot)
            lot = self._more()
            if lot and not alike([first, *lot]):
                raise _DifferentShape

    def all(self) -> list[NewJob]:
        """All jobs; exhausts the iterator."""
        self.made += self._jobs
        return self.made


def alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs differ only in id and arguments, are due now, and have neither unique keys, limits nor details."""
    first = jobs[0]
    if first.run_at or first.delay or first.unique or first.limits or first.waiting is not None or first.tied:
        return False
    if first.details is not NO_DETAILS and first.details != NO_DETAILS:
        return False
    if len(jobs) == 1:
        return True
    task, rest = first.task, first[3:]
    return all(job[1] == task and job[3:] == rest for job in jobs)


def columns_of(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """The columns in which similar jobs differ."""
    return {"id": [job.id for job in jobs], "args": [job.args for job in jobs]}


def common_values(job: NewJob, now: datetime | None) -> dict[str, Any]:
    """The common values of similar jobs, as single parameters."""
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


def _stored(ids: Sequence[Any]) -> JobExists:
    return JobExists(f"job {ids[0]} is already stored; nothing was enqueued", ids=frozenset(ids))
