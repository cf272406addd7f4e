"""JSON documents of jobs, executions, log lines, workers, leases and more.

The field names are those of the Python API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic_core import from_json

from tidemill.client.limits import LimitState
from tidemill.client.schedules.schedule import Schedule
from tidemill.client.stats.loads import liveness
from tidemill.domain.access import Key
from tidemill.domain.archive_totals import LEASE as ARCHIVE
from tidemill.domain.cluster import Lease, Worker, holder_of
from tidemill.domain.estimate import eta_of, fraction_done, percent_done
from tidemill.domain.job import ErrorInfo, Execution, JobRow, LogEntry
from tidemill.domain.large_values import PREFIX, is_reference, read_reference
from tidemill.domain.log_search import FoundLine
from tidemill.domain.records import AuditRecord, Pause, Setting
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.schedules import Definition, Fired
from tidemill.domain.sealed_values import SEALED, is_sealed
from tidemill.domain.sessions import SHORT_SESSION, StoredSession
from tidemill.domain.stages import Stage
from tidemill.domain.states import JobState
from tidemill.domain.steps import StepView
from tidemill.domain.streams import StreamItem
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.domain.trace_context import trace_id
from tidemill.tasks.secret_values import masked_seals

if TYPE_CHECKING:
    from tidemill.app_shards import ShardStatus
    from tidemill.client.control import TenantState
    from tidemill.client.error_groups import ErrorGroup
    from tidemill.client.notifications import SentNotification
    from tidemill.client.subscriptions import SubscriptionStatus
    from tidemill.domain.alert_history import StoredAlert
    from tidemill.domain.failures import FailureCount


def instant(value: datetime | None) -> str | None:
    """Format an instant as an ISO 8601 text in UTC."""
    if value is None:
        return None
    return (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()


def seconds(value: timedelta | None) -> float | None:
    """Convert a duration to seconds."""
    return None if value is None else value.total_seconds()


def error_document(error: ErrorInfo | None) -> dict[str, object] | None:
    """Return the document of an exception that a task raised."""
    if error is None:
        return None
    return {"type": error.type, "message": error.message, "traceback": error.traceback}


def blob_document(text: str | None) -> dict[str, object] | None:
    """Return the document of a large value that is not in the row of its job; None for any other value."""
    # Nearly all values are in the row, and need no parser.
    reference = read_reference(text) if text is not None and text.startswith(PREFIX) else None
    if reference is None:
        return None
    return {"size": reference.size, "sha256": reference.sha256, "note": reference.refused}


def plain(text: str | None) -> Any:
    """Return a stored payload as plain data, or the text itself if it is not JSON. A reference has no data of its own."""
    if text is None or is_reference(text):
        return None
    try:
        values = from_json(text)
        return masked_seals(values) if SEALED in text else values
    except ValueError:  # either a lone surrogate, which only `json.loads` accepts, or not JSON at all
        try:
            return json.loads(text)
        except ValueError:
            return text


def without_seals(args: str) -> Any:
    """Return a job's arguments as plain data, without the secret ones."""
    values = plain(args)
    if not isinstance(values, dict):
        return values
    given = json.loads(args)
    return {name: value for name, value in values.items() if not is_sealed(given.get(name))}


@lru_cache(maxsize=1024)
def _name_of(worker: UUID) -> str:
    """Return a worker's id as a text, cached because a few workers occur in many jobs."""
    return str(worker)


def job_document(job: JobRow, now: datetime) -> dict[str, object]:
    """Return the document of one job.

    A page holds hundreds of jobs, so this function skips conversions wherever a field is empty.
    """
    progress, details, id, state = job.progress, job.details, str(job.id), job.state
    created_at = instant(job.created_at)
    ended = job.result is not None
    fraction = fraction_done(job)
    return {
        "id": id,
        "task": job.task,
        "status": state.value,
        "reason": job.reason,
        "tenant": job.tenant,
        "queue": job.queue,
        "priority": job.priority,
        "args": plain(job.args),
        "args_blob": blob_document(job.args),
        "run_at": created_at if job.run_at == job.created_at else instant(job.run_at),
        "created_at": created_at,
        "started_at": None if job.started_at is None else instant(job.started_at),
        "finished_at": None if job.finished_at is None else instant(job.finished_at),
        "duration": None if job.finished_at is None else seconds(job.duration),
        "expires_at": None if job.expires_at is None else instant(job.expires_at),
        "archived_at": None if job.archived_at is None else instant(job.archived_at),
        "tier": job.tier,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "crashes": job.crashes,
        "worker": None if job.worker is None else _name_of(job.worker),
        "cancel_reason": job.cancel_reason,
        "progress": fraction,
        "progress_percent": percent_done(fraction),
        "updated_at": None if progress is None else instant(progress.at),
        "message": None if progress is None else progress.message,
        "step": None if progress is None else progress.step,
        "total": None if progress is None else progress.total,
        "stage": None if progress is None else progress.stage,
        "eta": None if progress is None else instant(eta_of(job, now)),
        "value": plain(job.result) if ended and state is JobState.COMPLETED else None,
        "output": plain(job.result) if ended and state is JobState.REVIEW_NEEDED else None,
        "value_blob": blob_document(job.result) if ended else None,
        "error": None if job.error is None else error_document(job.error),
        "correlation_id": details.correlation_id or id,
        "trace_id": trace_id(details.headers),
        "parent_id": None if details.parent_id is None else str(details.parent_id),
        "definition_id": None if details.definition_id is None else str(details.definition_id),
        "definition_version": details.definition_version,
        "schedule_id": None if details.schedule_id is None else str(details.schedule_id),
        "fire_at": None if details.fire_at is None else instant(details.fire_at),
        "reference": None if details.reference is None else list(details.reference),
        "tags": list(details.tags),
        "metadata": dict(details.metadata),
        "headers": dict(details.headers),
        "unique_key": job.unique_key,
        "limits": list(job.limits),
    }


def archived_document(archived: ArchivedJob) -> dict[str, object]:
    """Return the document of one archived job, including the full archived content."""
    content: dict[str, Any] = json.loads(archived.document)
    return {
        "id": str(archived.id),
        "task": archived.task,
        "status": archived.state.value,
        "tenant": archived.tenant,
        "queue": archived.queue,
        "created_at": instant(archived.created_at),
        "finished_at": instant(archived.finished_at),
        "archived_at": instant(archived.archived_at),
        "correlation_id": archived.correlation_id or str(archived.id),
        "parent_id": None if archived.parent_id is None else str(archived.parent_id),
        "tier": archived.tier,
        "policy": archived.policy,
        "sound": archived.sound,
        "document": content,
    }


def execution_document(execution: Execution) -> dict[str, object]:
    """Return the document of one attempt at a job."""
    return {
        "number": execution.number,
        "attempt": execution.attempt,
        "status": execution.state.value,
        "worker": None if execution.worker is None else str(execution.worker),
        "claimed_at": instant(execution.claimed_at),
        "started_at": instant(execution.started_at),
        "finished_at": instant(execution.finished_at),
        "duration": seconds(execution.duration),
        "reason": execution.reason,
        "error": error_document(execution.error),
    }


def step_document(step: StepView) -> dict[str, object]:
    """Return the document of one recorded step of a job."""
    return step._asdict()


def stage_document(stage: Stage) -> dict[str, object]:
    """Return the document of one stage of a job."""
    return {
        "name": stage.name,
        "state": stage.words,
        "execution": stage.number or None,
        "began_at": instant(stage.began_at),
        "ended_at": instant(stage.ended_at),
        "took": seconds(stage.took),
    }


def log_document(entry: LogEntry) -> dict[str, object]:
    """Return the document of one log line of a job."""
    return {
        "at": instant(entry.at),
        "level": entry.level,
        "stage": entry.stage,
        "message": entry.message,
        "details": None if entry.details is None else dict(entry.details),
        "duration": seconds(entry.duration),
        "number": entry.number,
    }


def stream_item_document(item: StreamItem) -> dict[str, object]:
    """Return the document of one item of a stream."""
    return {"id": item.id, "execution": item.execution, "index": item.index, "value": item.value}


def found_line_document(line: FoundLine) -> dict[str, object]:
    """Return the document of a log line that a search found, with its job."""
    job = {"job_id": str(line.entry.job_id), "task": line.task, "queue": line.queue, "tenant": line.tenant}
    return log_document(line.entry) | job


def worker_document(worker: Worker, now: datetime, held: int) -> dict[str, object]:
    """Return the document of one worker process, with the number of jobs it holds."""
    return {
        "id": str(worker.id),
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "node": worker.node,
        "version": worker.version,
        "queues": list(worker.queues),
        "tasks": list(worker.tasks),
        "concurrency": worker.concurrency,
        "state": worker.state.value,
        "liveness": liveness(worker, now),
        "held": held,
        "started_at": instant(worker.started_at),
        "beat_at": instant(worker.beat_at),
        "expires_at": instant(worker.expires_at),
        "beats": worker.beats,
        "paused": worker.paused,
        **_report_fields(worker),
    }


def _report_fields(worker: Worker) -> dict[str, object]:
    """Return what a worker reported with its latest heartbeat; everything is None before the first one."""
    report = worker.report
    above = None if report is None else report.supervisor
    return {
        "memory": None if report is None else report.figures.memory,
        "cpu": None if report is None else report.figures.cpu,
        "slots": None if report is None else report.slots._asdict(),
        "place": worker.place or None,
        "supervisor": None
        if above is None
        else {
            "id": str(worker.supervisor),
            "name": above.name,
            "pid": above.pid,
            "processes": above.processes,
            "memory": above.figures.memory,
            "cpu": above.figures.cpu,
        },
    }


def duties_of(lease: Lease) -> dict[str, Mapping[str, Any]]:
    """Return the status that the lease holder reports for each of its duties."""
    duties = lease.metadata.get("duties", lease.metadata)
    if not isinstance(duties, Mapping):
        return {}
    return {str(name): row for name, row in duties.items() if isinstance(row, Mapping)}


def current_duties(lease: Lease, now: datetime) -> dict[str, Mapping[str, Any]]:
    """Return the duties that run under a lease now.

    An archive run leaves its totals in the lease for later readers. Every other expired lease only describes the past,
    so it has no current duties.
    """
    return duties_of(lease) if lease.held(now) or lease.name == ARCHIVE else {}


def lease_document(lease: Lease, now: datetime, workers: Iterable[Worker]) -> dict[str, object]:
    """Return the document of one lease, with its holder and the duties that run under it."""
    holder = holder_of(lease, workers)
    return {
        "name": lease.name,
        "holder": None if lease.holder is None else str(lease.holder),
        "holder_name": None if holder is None else holder.name,
        "holder_workers": [] if holder is None else [str(id) for id in holder.workers],
        "term": lease.term,
        "held": lease.held(now),
        "health": lease.health(now),
        "coordination": lease.unused_by or lease.kind,
        "acquired_at": instant(lease.acquired_at),
        "beat_at": instant(lease.beat_at),
        "expires_at": instant(lease.expires_at),
        "duties": {name: dict(row) for name, row in current_duties(lease, now).items()},
    }


def pause_document(pause: Pause) -> dict[str, object]:
    """Return the document of one pause: its subject, author and reason."""
    return {
        "kind": pause.kind.value,
        "name": pause.name,
        "reason": pause.reason,
        "paused_by": pause.paused_by,
        "paused_at": instant(pause.paused_at),
    }


def key_document(key: Key, now: datetime) -> dict[str, object]:
    """Return the document of one API key, without its hash. The store does not keep the secret."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "tenant": key.tenant,
        "state": key_state(key, now),
        "created_at": instant(key.created_at),
        "created_by": key.created_by,
        "expires_at": instant(key.expires_at),
        "revoked_at": instant(key.revoked_at),
        "max_priority": key.max_priority,
        "grants": [str(grant) for grant in key.access.grants],
        "roles": {tenant: role.value for tenant, role in key.access.roles},
        "environment": key.access.environment,
    }


def session_document(session: StoredSession) -> dict[str, object]:
    """Return the document of one sign-in session. The full id is the hash of its cookie, so it is shortened."""
    return {
        "id": session.id[:SHORT_SESSION],
        "who": session.who,
        "key_id": session.key_id,
        "issuer": session.issuer,
        "subject": session.subject,
        "created_at": instant(session.created_at),
        "expires_at": instant(session.expires_at),
    }


def key_state(key: Key, now: datetime) -> str:
    """Return ``active``, ``expired`` or ``revoked``."""
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.lives(now) else "expired"


def audit_document(record: AuditRecord) -> dict[str, object]:
    """Return the document of one audit record."""
    entry = record.entry
    return {
        "number": record.number,
        "at": instant(record.at),
        "who": entry.who,
        "action": entry.action,
        "subject": entry.subject,
        "tenant": entry.tenant,
        "before": None if entry.before is None else dict(entry.before),
        "after": None if entry.after is None else dict(entry.after),
        "hash": record.hash,
    }


def schedule_document(schedule: Schedule) -> dict[str, object]:
    """Return the document of one schedule."""
    row = schedule.row
    return {
        "id": str(row.id),
        "key": row.key,
        "task": row.task,
        "tenant": row.tenant,
        "definition_id": None if row.definition_id is None else str(row.definition_id),
        "trigger": dict(row.trigger),
        "words": schedule.words,
        "timezone": row.timezone,
        "calendar": row.calendar,
        "exclude": row.exclude,
        "args": plain(row.args),
        "options": schedule.options,
        "misfire": row.misfire,
        "overlap": row.overlap,
        "scope": row.scope.value,
        "source": row.source.value,
        "app": schedule.app,
        "enabled": row.enabled,
        "note": row.note,
        "broken": schedule.broken,
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
        "last_fire_at": instant(row.last_fire_at),
        "next_fire_at": instant(schedule.next_fire_at),
    }


def fire_document(fire: Fired) -> dict[str, object]:
    """Return the document of one fire and its outcome."""
    return {
        "fire_at": instant(fire.fire_at),
        "outcome": fire.outcome.value,
        "job_id": None if fire.job_id is None else str(fire.job_id),
        "node": fire.scope_key or None,
        "reason": fire.reason,
        "created_at": instant(fire.created_at),
    }


def definition_document(definition: Definition) -> dict[str, object]:
    """Return the document of one definition."""
    return {
        "id": str(definition.id),
        "key": definition.key,
        "name": definition.name,
        "task": definition.task,
        "tenant": definition.tenant,
        "version": definition.version,
        "args": masked_seals(plain(definition.args)),
        "settings": dict(definition.settings),
        "notifications": dict(definition.notifications),
        "owner": definition.owner,
        "enabled": definition.enabled,
        "created_at": instant(definition.created_at),
        "created_by": definition.created_by,
        "updated_at": instant(definition.updated_at),
        "deleted_at": instant(definition.deleted_at),
    }


def tenant_document(state: TenantState) -> dict[str, object]:
    """Return the document of one tenant: its jobs and its settings."""
    return {
        "tenant": state.name,
        "pending": state.pending,
        "ended": state.ended,
        "failed": state.failed,
        "weight": state.weight,
        "max_priority": state.max_priority,
        "paused": state.paused,
    }


def limit_document(limit: LimitState) -> dict[str, object]:
    """Return the document of one limit: its rule, its usage and its keys."""
    rule = limit.rule
    return {
        "name": limit.name,
        "kind": rule.kind.value,
        "max": rule.max,
        "per": seconds(rule.per),
        "burst": rule.burst,
        "used": limit.used,
        "room": limit.room,
        "opens_at": instant(limit.opens_at),
        "phase": None if limit.phase is None else limit.phase.value,
        "pinned": rule.pinned,
        "changed_at": instant(rule.changed_at),
        "changed_by": rule.changed_by,
        "keys": [
            {"name": key.name, "used": key.used, "room": key.room, "opens_at": instant(key.opens_at)}
            for key in limit.keys
        ],
    }


def setting_document(setting: Setting, value: object) -> dict[str, object]:
    """Return the document of one setting. The caller passes the value, so that it can mask a secret."""
    return {
        "key": setting.key,
        "value": value,
        "description": setting.description,
        "updated_at": instant(setting.updated_at),
        "updated_by": setting.updated_by,
    }


def alert_document(alert: StoredAlert) -> dict[str, Any]:
    """An alert with its history."""
    return {**_plain_fields(asdict(alert)), "open": alert.is_open}


def notification_document(notification: SentNotification) -> dict[str, Any]:
    """A notification."""
    return _plain_fields(asdict(notification))


def subscription_document(subscription: SubscriptionStatus) -> dict[str, Any]:
    """A subscription with its backlog."""
    return _plain_fields(subscription._asdict())


def _plain_fields(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)


def error_group_document(row: ErrorGroup) -> dict[str, Any]:
    """Return the document of a group of failures."""
    return asdict(row) | {
        "first_at": instant(row.first_at),
        "last_at": instant(row.last_at),
        "status": row.status.value,
        "marked_at": instant(row.marked_at),
        "example": None if row.example is None else str(row.example),
        "trend": list(row.trend),
    }


def failure_count_document(row: FailureCount) -> dict[str, Any]:
    """Return the document of the failures of one variant, task or tenant."""
    return row._asdict() | {
        "last_at": instant(row.last_at),
        "example": None if row.example is None else str(row.example),
    }


def shard_document(status: ShardStatus) -> dict[str, Any]:
    """Return a shard of an app."""
    return {
        "name": status.name,
        "url": status.url,
        "status": "ok" if status.code is None else "unavailable",
        "code": status.code,
        "home": status.is_home,
        "open": status.is_open,
        "weight": status.weight,
        "tenants": status.tenants,
        "workers": status.workers,
        "waiting": status.waiting,
    }


def placement_document(row: TenantPlacement) -> dict[str, Any]:
    """Return the shard of a tenant."""
    return {
        "tenant": row.tenant,
        "shard": row.shard,
        "state": row.state.value,
        "target": row.target,
        "former": list(row.former),
        "changed_at": row.changed_at,
    }
