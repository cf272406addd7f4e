"""Matching of live and archived jobs against filters."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, JobFilter, fold, needle
from tidemill.domain.job import Details, JobRow
from tidemill.domain.retention import ArchivedJob


def matches(where: JobFilter, job: JobRow) -> bool:
    """Whether every condition holds for this job."""
    return (
        _matches_row(where, job, job.details.correlation_id, job.details.parent_id)
        and (not where.parent_ids or job.details.parent_id in where.parent_ids)
        and (not where.definition_id or job.details.definition_id == where.definition_id)
        and where.definition_version in (None, job.details.definition_version)
        and (not where.schedule_id or job.details.schedule_id == where.schedule_id)
        and (not where.flow_id or job.details.flow_id == where.flow_id)
        and where.fire_at in (None, job.details.fire_at)
        and (not where.reference or job.details.reference == where.reference)
        and (not where.tag or where.tag in job.details.tags)
        and all(_metadata(job.details, key) == text for key, text in where.metadata.items())
    )


def finds(where: JobFilter) -> Callable[[JobRow], bool]:
    """A function that checks whether a job has the id suffix and contains the text."""
    sought = needle(where.text or "")

    def contains(job: JobRow) -> bool:
        if where.id_suffix is not None and not job.id.hex.endswith(where.id_suffix):
            return False
        if sought.plain in fold(job.task) or (sought.digits is not None and sought.digits in job.id.hex):
            return True
        if any(sought.plain in fold(tag) for tag in job.details.tags):
            return True
        if where.text_in_args and (sought.plain in (args := fold(job.args)) or sought.escaped in args):
            return True
        error = job.error
        if error is None:
            return False
        text = json.dumps([error.type, error.message, error.traceback], separators=(",", ":"))
        return sought.escaped in fold(text)

    return contains


def matches_archived(where: JobFilter, document: ArchivedJob) -> bool:
    """Whether every condition that applies to the archive holds for this document."""
    return _matches_row(where, document, document.correlation_id, document.parent_id) and (
        not where.tiers or document.tier in where.tiers
    )


def _matches_row(
    where: JobFilter, row: JobRow | ArchivedJob, correlation_id: str | None, parent_id: UUID | None
) -> bool:
    return (
        where.tenant in (ALL_TENANTS, row.tenant)
        and (not where.states or row.state in where.states)
        and (not where.tasks or row.task in where.tasks)
        and (not where.queues or row.queue in where.queues)
        and (not where.ids or row.id in where.ids)
        and (not where.correlation_id or correlation_id == where.correlation_id)
        and (not where.parent_id or parent_id == where.parent_id)
        and (where.created_after is None or row.created_at >= where.created_after)
        and (where.created_before is None or row.created_at < where.created_before)
    )


def _metadata(details: Details, key: str) -> str | None:
    """A metadata value as a filter compares it: a string unchanged, anything else as JSON text."""
    if key not in details.metadata:
        return None
    value = details.metadata[key]
    return value if isinstance(value, str) else json.dumps(value)
