"""Conversion between rows and values, and the JSON texts of the SQL stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort, decode_cursor, needle
from tidemill.domain.job import NO_DETAILS, Claim, Details, ErrorInfo, Execution, JobRow, LogEntry, Progress
from tidemill.domain.limits import names_of
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.states import ENDED, HELD, ExecutionState, JobState
from tidemill.domain.worker_reports import WorkerReport
from tidemill.stores.sql.driver import Row

_TROUBLED = ENDED - {JobState.COMPLETED}
_DETAIL_FIELDS = (
    "correlation_id",
    "parent_id",
    "tags",
    "metadata",
    "headers",
    "options",
    "definition_id",
    "definition_version",
    "schedule_id",
    "flow_id",
    "node",
    "position",
    "group_id",
    "group_shard",
)


_values = attrgetter(*_DETAIL_FIELDS)
# ``json.dumps`` with separators creates an encoder for each call.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def at_most(limit: int) -> int:
    """A limit that every database accepts: at least zero, and at most the largest 32-bit integer.

    >>> at_most(-1), at_most(25), at_most(10**12)
    (0, 25, 2147483647)
    """
    return min(max(limit, 0), 2**31 - 1)


def dump(value: object) -> str:
    """Compact JSON text in ASCII, which every database stores unchanged."""
    return _encode(value)


def dump_mapping(mapping: Mapping[str, object] | None) -> str | None:
    """A mapping as JSON text."""
    return None if mapping is None else dump(dict(mapping))


def load_mapping(text: str | None) -> Any:
    """A mapping from its JSON text."""
    return None if text is None else json.loads(text)


def tenant_of(tenant: str) -> str | None:
    """The tenant as a parameter; None for all tenants."""
    return None if tenant == ALL_TENANTS else tenant


def dump_error(error: ErrorInfo | None) -> str | None:
    """An error as JSON text."""
    return None if error is None else dump([error.type, error.message, error.traceback])


def load_error(text: str | None) -> ErrorInfo | None:
    """An error from its JSON text."""
    return None if text is None else ErrorInfo(*json.loads(text))


def dump_progress(progress: Progress, now: datetime) -> str:
    """Progress as JSON text, with the time now."""
    at = now.astimezone(UTC).isoformat()
    return dump([progress.fraction, progress.step, progress.total, progress.message, progress.stage, at])


def load_progress(text: str | None) -> Progress | None:
    """Progress from its JSON text."""
    if text is None:
        return None
    fraction, step, total, message, stage, at = json.loads(text)
    return Progress(fraction, step, total, message, stage, datetime.fromisoformat(at))


def dump_details(details: Details) -> str | None:
    """The details as one JSON object; None if they are empty."""
    if details is NO_DETAILS or (details.flow_id is None and details == NO_DETAILS):
        return None
    body: dict[str, object] = {
        name: str(value) if isinstance(value, UUID) else value
        for name, value in zip(_DETAIL_FIELDS, _values(details), strict=True)
        if value or value == 0
    }
    if details.reference is not None:
        body["reference_type"], body["reference_id"] = details.reference
    if details.fire_at is not None:
        body["fire_at"] = details.fire_at.astimezone(UTC).isoformat()
    if details.may_fail:
        body["may_fail"] = True
    return dump(body)


def load_details(row: Row) -> Details:
    """Details from a row of the query ``details``, less its leading id."""
    (
        correlation,
        parent,
        kind,
        reference,
        tags,
        metadata,
        headers,
        options,
        definition,
        version,
        schedule,
        fire_at,
        flow,
        node,
        position,
        group,
        shard,
        may_fail,
    ) = row
    return Details(
        correlation_id=correlation,
        parent_id=parent,
        reference=None if kind is None else (kind, reference),
        tags=tuple(tags or ()),
        metadata=metadata or {},
        headers=headers or {},
        options=options or {},
        definition_id=definition,
        definition_version=version,
        schedule_id=schedule,
        fire_at=fire_at,
        flow_id=flow,
        node=node,
        position=position,
        group_id=group,
        group_shard=shard,
        may_fail=may_fail,
    )


def load_limits(text: str | None) -> tuple[str, ...] | None:
    """The limits a job counts against, from their JSON text."""
    return None if text is None else names_of(text)


def load_claim(row: Row) -> Claim:
    """A claim from a row of ``orphans``, ``overdue`` or ``held``."""
    limits, detailed, state, cancel_reason, worker = row[15:]
    tail = (load_limits(limits), detailed, None, JobState(state), cancel_reason, worker)
    return Claim._make(row[:15] + tail)


def load_job(row: Row, details: Details) -> JobRow:
    """A job from a row of the view ``jobs``."""
    (id_, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
     unique_key, limits, _, reason, args, state, _, worker, claimed_at, started_at, finished_at, cancel_reason, progress,
     result, error) = row  # fmt: skip
    return JobRow(
        id=id_,
        task=task,
        state=JobState(state),
        tenant=tenant,
        queue=queue,
        priority=priority,
        args=args,
        attempt=attempt,
        max_attempts=max_attempts,
        crashes=crashes,
        token=token,
        run_at=run_at,
        created_at=created_at,
        expires_at=expires_at,
        timeout=timeout,
        claimed_at=claimed_at,
        started_at=started_at,
        finished_at=finished_at,
        worker=worker,
        result=result,
        error=load_error(error),
        reason=reason,
        cancel_reason=cancel_reason,
        progress=load_progress(progress),
        unique_key=unique_key,
        limits=load_limits(limits) or (),
        details=details,
    )


def last_execution(row: Row) -> Execution | None:
    """The execution in a row of the view ``jobs``: the current one, or the one that ended the job."""
    id_, attempt, token, reason, execution = row[0], row[5], row[8], row[16], row[19]
    worker, claimed_at, started_at, finished_at, error = row[20], row[21], row[22], row[23], row[27]
    if execution is None:
        return None
    state = ExecutionState(execution)
    return Execution(
        id_, token, attempt, state, worker, claimed_at, started_at, finished_at, load_error(error), reason
    )


def load_execution(row: Row) -> Execution:
    """An execution from a row of the query ``executions``."""
    job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason = row
    return Execution(
        job_id,
        number,
        attempt,
        ExecutionState(state),
        worker,
        claimed_at,
        started_at,
        finished_at,
        load_error(error),
        reason,
    )


def load_log(row: Row) -> tuple[int, LogEntry]:
    """A log line and its position from a row of ``logs``."""
    position, job_id, number, at, level, stage, message, details, duration = row
    extra = None if details is None else json.loads(details)
    return position, LogEntry(job_id, number, at, message, level, stage, extra, duration)


def load_worker(row: Row) -> Worker:
    """A worker from a row of ``workers``."""
    (
        id_,
        name,
        host,
        pid,
        node,
        version,
        queues,
        tasks,
        concurrency,
        state,
        started_at,
        beat_at,
        expires_at,
        beats,
        supervisor,
        place,
        report,
        paused,
    ) = row
    return Worker(
        id=id_,
        name=name,
        host=host,
        pid=pid,
        node=node,
        version=version,
        queues=tuple(json.loads(queues)),
        tasks=tuple(json.loads(tasks)),
        concurrency=concurrency,
        state=WorkerState(state),
        started_at=started_at,
        beat_at=beat_at,
        expires_at=expires_at,
        beats=beats,
        supervisor=supervisor,
        place=place,
        report=WorkerReport.from_text(report),
        paused=paused,
    )


def load_archived(row: Row) -> ArchivedJob:
    """An archived job from a row of ``archived``."""
    fields = list(row)
    fields[4] = JobState(fields[4])
    return ArchivedJob(*fields)


def filter_takes(where: JobFilter) -> dict[str, Any]:
    """A filter as the parameters of ``jobs``, ``count`` and ``search_archive``."""
    kind, reference = where.reference or (None, None)
    # A single task, or a single failure state, is a separate parameter: then its index returns the rows in order.
    task = next(iter(where.tasks)) if len(where.tasks) == 1 else None
    trouble = next(iter(where.states)) if len(where.states) == 1 and where.states <= _TROUBLED else None
    return {
        "tenant": tenant_of(where.tenant),
        "trouble": trouble,
        "states": _list(where.states) if trouble is None else None,
        "task": task,
        "tasks": _list(where.tasks) if task is None else None,
        "queues": _list(where.queues),
        "ids": list(where.ids) or None,
        "created_after": where.created_after,
        "created_before": where.created_before,
        "correlation_id": where.correlation_id,
        "parent_id": where.parent_id,
        "parent_ids": list(where.parent_ids) or None,
        "definition_id": where.definition_id,
        "definition_version": where.definition_version,
        "schedule_id": where.schedule_id,
        "fire_at": where.fire_at,
        "flow_id": where.flow_id,
        "reference_type": kind,
        "reference_id": reference,
        "tag": where.tag,
        "metadata": _metadata(where.metadata),
        "error_group": where.error_group,
    }


def filter_flags(where: JobFilter) -> list[str]:
    """Flags for parts of the view that a filter excludes, because plans are made without the values."""
    rare = ["rare"] if where.queues and where.rare else []
    if not where.states:
        return rare
    parts = (("unended", ENDED), ("unheld", HELD), ("incomplete", {JobState.COMPLETED}))
    return rare + [flag for flag, states in parts if where.states.isdisjoint(states)]


def text_takes(where: JobFilter) -> dict[str, Any]:
    """The conditions of a filter that scans jobs, as parameters of ``jobs``."""
    takes: dict[str, Any] = {
        "id_suffix": where.id_suffix,
        "arguments": dump(dict(where.args)) if where.args else None,
        # An error is stored as a JSON list that begins with its class.
        "error": None if where.error is None else dump(where.error)[1:-1],
        "workers": list(where.workers) or None,
        "took_over": where.took_over,
    }
    if where.text:
        sought = needle(where.text)
        takes |= {"text": sought.plain, "escaped": sought.escaped, "digits": sought.digits}
    return takes


def page_takes(sort: Sort, limit: int, after: str | None) -> dict[str, Any]:
    """The start of a page, and a limit with one extra row, which shows whether there is a next page."""
    takes: dict[str, Any] = {"limit": limit + 1}
    if after is not None:
        takes["below" if sort is Sort.NEWEST else "above"] = decode_cursor(sort, after)
    return takes


def _list(names: Iterable[str]) -> list[str] | None:
    return sorted(str(name) for name in names) or None


def _metadata(metadata: Mapping[str, str]) -> str | None:
    return dump(dict(metadata)) if metadata else None
