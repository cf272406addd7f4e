"""Requests of a job that is kept away from the store, checked by its runner.

The job's process may send anything, so a runner accepts only what concerns the job and its tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, NewJob
from tidemill.engine.frames import Data
from tidemill.errors import UsageError
from tidemill.tasks.ambient import Audited
from tidemill.tasks.events import Event
from tidemill.tasks.secret_values import key_ring

_OWN_EVENTS = ("job.", "alert.")
_LONGEST_ACTOR = 400


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


def check_event(claim: Claim, event: Event) -> None:
    """Refuse an event of another tenant, and one that only Tidemill itself publishes."""
    if event.tenant not in (None, claim.tenant):
        raise ValueError("an event belongs to another tenant")
    if event.name.startswith(_OWN_EVENTS):
        raise ValueError(f"an event has the name {event.name[:100]!r}, which only Tidemill uses")


def attributed(claim: Claim, jobs: Iterable[NewJob], audit: Sequence[Audited]) -> tuple[Audited, ...]:
    """The audit entries of the jobs that a job enqueues, with the job itself as their actor. Others are refused."""
    ids = {job.id for job in jobs}
    entries: list[Audited] = []
    for id, entry in audit:
        if entry.tenant != claim.tenant:
            raise ValueError("an audit entry belongs to another tenant")
        if id not in ids or (entry.action, entry.subject) not in (
            ("job.enqueued", f"job:{id}"),
            ("jobs.enqueued", "jobs"),
        ):
            raise ValueError("an audit entry is not about a job that this one enqueues")
        # The process may name anybody.
        entries.append((id, replace(entry, who=f"job:{claim.id} ({entry.who})"[:_LONGEST_ACTOR])))
    return tuple(entries)


def check_following(
    claim: Claim, jobs: Sequence[NewJob], audit: Sequence[Audited], additions: Additions | None
) -> tuple[Audited, ...]:
    """Refuse the end of a job that wants to write for another tenant or another job. Return its audit entries."""
    extra = () if additions is None else additions.jobs
    if any(job.tenant != claim.tenant for job in (*jobs, *extra)):
        raise ValueError("a follow-up job belongs to another tenant")
    entries = attributed(claim, (*jobs, *extra), audit)
    if additions is None:
        return entries
    if any(record.job_id != claim.id for record in additions.records):
        raise ValueError("a record belongs to another job")
    if any(getattr(group, "tenant", claim.tenant) != claim.tenant for group in additions.groups):
        raise ValueError("a group belongs to another tenant")
    return entries
