"""Requests of a job that is kept away from the store, checked by its runner.

The job's process may send anything, so a runner accepts only what concerns the job and its tenant.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, NewJob
from tidemill.engine.frames import Data
from tidemill.errors import UsageError
from tidemill.tasks.ambient import Audited
from tidemill.tasks.secret_values import key_ring


def keyed(claim: Claim, definition: UUID | None, message: Data) -> object:
    """Seal a text, or open a sealed text of the running job or of its definition. Texts of other jobs stay closed."""
    job, field, text = UUID(message["job"]), str(message["field"]), str(message["text"])
    if message["kind"] == "seal":
        return key_ring().seal(text, job, field)
    if job not in (claim.id, definition):
        raise UsageError(
            f"job {claim.id} asked for a secret of job {job}; a job can open only its own secrets"
        )
    return key_ring().open(text, job, field)


def check_following(
    claim: Claim, jobs: Sequence[NewJob], audit: Sequence[Audited], additions: Additions | None
) -> None:
    """Refuse the end of a job that wants to write for another tenant or another job."""
    extra = () if additions is None else additions.jobs
    if any(job.tenant != claim.tenant for job in (*jobs, *extra)):
        raise ValueError("a follow-up job belongs to another tenant")
    if any(entry.tenant != claim.tenant for _, entry in audit):
        raise ValueError("an audit entry belongs to another tenant")
    if additions is None:
        return
    if any(record.job_id != claim.id for record in additions.records):
        raise ValueError("a record belongs to another job")
    if any(getattr(group, "tenant", claim.tenant) != claim.tenant for group in additions.groups):
        raise ValueError("a group belongs to another tenant")
