"""Callbacks to a URL at the end of a flow or batch: the job that sends them, and their content."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.graph import Edge, EdgeCondition, FlowRow, GroupCounts, NewGroup, NewJoin, job_joins
from tidemill.domain.job import Details, NewJob
from tidemill.domain.outgoing_addresses import read_url

CALLBACK = "tidemill.callback"
SIGNED_BY = "TIDEMILL_CALLBACK_SECRET"
"""The environment variable with the secret that signs callbacks and callback URLs."""
ATTEMPTS = 10
"""Tries of one callback. The delays between them grow to an hour."""
TIMEOUT = timedelta(minutes=1)


class CallbackRows(NamedTuple):
    """The rows that wait for the end of a group."""

    job: NewJob
    edge: Edge
    joins: list[NewJoin]


def callback_rows(group: NewGroup, url: str, id: UUID) -> CallbackRows:
    """The job that tells a URL about the end of a group. Raises ``BadSettings`` for an address that cannot be used."""
    read_url(url, what="callback_url")
    job = NewJob(
        id,
        CALLBACK,
        args=json.dumps({"url": url, "group": str(group.id)}),
        tenant=group.tenant,
        max_attempts=ATTEMPTS,
        timeout=TIMEOUT,
        details=Details(correlation_id=group.correlation_id, reference=(group.kind.value, str(group.id))),
        waiting=f"waits for {group.kind} {group.name}",
    )
    return CallbackRows(job, Edge(job.id, group.id, EdgeCondition.END), job_joins(job.id, 1))


def callback_body(row: FlowRow, counts: GroupCounts, at: datetime) -> bytes:
    """The content of a callback: the type of the event, its time, and the group."""
    data = {
        "id": str(row.id),
        "kind": row.kind.value,
        "name": row.name,
        "key": row.key,
        "tenant": row.tenant,
        "status": row.state.value,
        "total": counts.total,
        "failed": counts.bad,
        "created_at": row.created_at.isoformat(),
        "ended_at": None if row.ended_at is None else row.ended_at.isoformat(),
        "reason": row.cancel_reason,
    }
    event = {"type": f"{row.kind}.{row.state}", "timestamp": at.isoformat(), "data": data}
    return json.dumps(event, ensure_ascii=False).encode()
