"""Matching of jobs against filters, and paging."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from tidemill.domain.filters import (
    ALL_TENANTS,
    JobFilter,
    Page,
    Sort,
    decode_cursor,
    encode_cursor,
    fitting,
    fold,
    needle,
    page_size,
)
from tidemill.domain.job import Details, JobRow
from tidemill.domain.retention import ArchivedJob

T = TypeVar("T")


def matches(where: JobFilter, job: JobRow) -> bool:
    """Whether every condition holds for this job."""
    return (
        _matches_row(where, job, job.details.correlation_id, job.details.parent_id)
        and (not where.parent_ids or job.details.parent_id in where.parent_ids)
        and (not where.definition_id or job.details.definition_id == where.definition_id)
        and where.definition_version in (None, job.details.definition_version)
        and (not where.schedule_id or job.details.schedule_id == where.schedule_id)
        and where.fire_at in (None, job.details.fire_at)
        and (not where.reference or job.details.reference == where.reference)
        and (not where.tag or where.tag in job.details.tags)
        and all(_metadata(job.details, key) == text for key, text in where.metadata.items())
    )


def finds(where: JobFilter) -> Callable[[JobRow], bool]:
    """A function that checks whether a job has the id suffix and contains the text."""
    sought = needle(where.text or "")

    def matches(job: JobRow) -> bool:
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

    return matches


def matches_archived(where: JobFilter, document: ArchivedJob) -> bool:
    """Whether every condition that applies to the archive holds for this document."""
    return _matches_row(where, document, document.correlation_id, document.parent_id)


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


def page_of(
    rows: Iterable[T], id_of: Callable[[T], UUID], *, sort: Sort, limit: int, after: str | None,
    weigh: Callable[[T], int] = lambda _: 0,
) -> Page[T]:  # fmt: skip
    """The rows after the cursor in the order of their ids, and the next cursor. ``weigh`` returns the size of a row in bytes."""
    size = page_size(limit)
    candidates = first_of(rows, id_of, sort=sort, size=size + 1, after=after)
    items = candidates[: fitting(map(weigh, candidates[:size]))]
    return Page(items, encode_cursor(sort, id_of(items[-1])) if len(candidates) > len(items) else None)


def page_with_text(
    rows: Iterable[T], id_of: Callable[[T], UUID], jobs: Callable[[T], bool], *,
    sort: Sort, limit: int, after: str | None, look: int, weigh: Callable[[T], int] = lambda _: 0,
) -> Page[T]:  # fmt: skip
    """The same, of those among the next ``look`` rows that contain the text."""
    size = page_size(limit)
    looked = first_of(rows, id_of, sort=sort, size=look, after=after)
    items = [row for row in looked if jobs(row)]
    kept = items[: fitting(map(weigh, items[:size]))]
    if len(items) > len(kept):
        return Page(kept, encode_cursor(sort, id_of(kept[-1])))
    return Page(items, encode_cursor(sort, id_of(looked[-1])) if len(looked) == look else None)


def first_of(
    rows: Iterable[T], id_of: Callable[[T], UUID], *, sort: Sort, size: int, after: str | None
) -> list[T]:
    """The first rows after the cursor."""
    last = None if after is None else decode_cursor(sort, after).int

    def number(row: T) -> int:
        return id_of(row).int

    if sort is Sort.NEWEST:
        return heapq.nlargest(size, (row for row in rows if last is None or number(row) < last), key=number)
    return heapq.nsmallest(size, (row for row in rows if last is None or number(row) > last), key=number)
