"""Encoding of the jobs that a child process has collected during a run."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.job import NewJob, UniqueHold
from tidemill.domain.records import AuditEntry
from tidemill.engine.frames import (
    Data,
    details_from_data,
    details_to_data,
    instant_from_data,
    instant_to_data,
    span_from_data,
    span_to_data,
)
from tidemill.tasks.ambient import Audited


def following_to_data(jobs: Sequence[NewJob], audit: Sequence[Audited]) -> Data:
    """Encode collected jobs and their audit entries; empty if there are none, as for most executions."""
    if not jobs:
        return {}
    entries = [
        [str(id), entry.who, entry.action, entry.subject, entry.tenant, entry.after] for id, entry in audit
    ]
    return {"then": [job_to_data(job) for job in jobs], "audit": entries}


def following_from_data(data: Data) -> tuple[tuple[NewJob, ...], tuple[Audited, ...]]:
    """Decode the jobs and the audit entries."""
    jobs = tuple(job_from_data(job) for job in data.get("then", ()))
    audit = tuple(
        (UUID(id), AuditEntry(who, action, subject, tenant, None, after))
        for id, who, action, subject, tenant, after in data.get("audit", ())
    )
    return jobs, audit


def job_to_data(job: NewJob) -> Data:
    """Encode a new job."""
    hold = job.unique
    return job._asdict() | {
        "id": str(job.id),
        "timeout": span_to_data(job.timeout),
        "run_at": instant_to_data(job.run_at),
        "delay": span_to_data(job.delay),
        "expires_at": instant_to_data(job.expires_at),
        "unique": None if hold is None else [hold.key, hold.until_claimed, span_to_data(hold.window)],
        "details": details_to_data(job.details),
    }


def job_from_data(data: Data) -> NewJob:
    """Decode a new job."""
    unique = data["unique"]
    changed: Data = {
        "id": UUID(data["id"]),
        "timeout": span_from_data(data["timeout"]),
        "run_at": instant_from_data(data["run_at"]),
        "delay": span_from_data(data["delay"]),
        "expires_at": instant_from_data(data["expires_at"]),
        "unique": None if unique is None else UniqueHold(unique[0], unique[1], span_from_data(unique[2])),
        "limits": tuple(data["limits"]),
        "details": details_from_data(data["details"]),
    }
    return NewJob(**data | changed)
