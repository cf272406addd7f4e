"""Follow-up jobs of a finish, and their audit entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from tidemill.domain.job import Enqueued, Finish
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import JobState


def completing(finishes: Iterable[Finish], lost: Collection[UUID]) -> list[Finish]:
    """The finishes that were accepted, complete their job and have follow-up jobs."""
    return [
        item
        for item in finishes
        if item.then and item.transition.state is JobState.COMPLETED and item.claim.id not in lost
    ]


def following_entries(accepted: Iterable[Finish], answers: Sequence[Enqueued]) -> list[AuditEntry]:
    """The audit entries of the jobs that were created; a job whose unique key is held was not."""
    created = {answer.id for answer in answers if answer.created}
    return [entry for item in accepted for id, entry in item.audit if id in created]
