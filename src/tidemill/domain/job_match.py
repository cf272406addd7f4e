"""Matching of live and archived jobs against filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
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
    """A function that checks the conditions that make a filter scan jobs."""
    sought = needle(where.text or "")

    def contains(job: JobRow) -> bool:
        if where.id_suffix is not None and not job.id.hex.endswith(where.id_suffix):
            return False
        if not _ran_as(where, job) or not _has_args(where.args, job.args):
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


def _ran_as(where: JobFilter, job: JobRow) -> bool:
    """Whether the last execution had this worker, this error and a longer run time."""
    if where.workers and job.worker not in where.workers:
        return False
    if where.took_over is not None and not (
        job.started_at and job.finished_at and job.finished_at - job.started_at > where.took_over
    ):
        return False
    return where.error is None or (
        job.error is not None
        and (job.error.type == where.error or job.error.type.endswith(f".{where.error}"))
    )


class _Number(str):
    """A number as it is written in a JSON text."""

    __slots__ = ()


def _has_args(wanted: Mapping[str, str], text: str) -> bool:
    """Whether the top-level arguments have these values. No argument of a job with an escaped NUL is found."""
    if not wanted:
        return True
    # PostgreSQL cannot read such a document.
    if "\\u0000" in text:
        return False
    args: Any = json.loads(text, parse_int=_Number, parse_float=_Number)
    return isinstance(args, dict) and all(
        name in args and _argument(args[name]) == value for name, value in wanted.items()
    )


def _argument(value: Any) -> str | None:
    """The value as a filter compares it; None for a list or an object, which no filter matches."""
    if isinstance(value, str):
        return str(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else None


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
