"""The ends of jobs that a durable function waits for."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from tidemill.domain.graph import FlowRow, FlowState, GroupKind
from tidemill.domain.job import JobRow
from tidemill.domain.references import look_up, read_stored
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.inputs import group_data, members
from tidemill.stores.base import Store
from tidemill.stores.flows import FlowQueries, FlowStore
from tidemill.stores.large_values import read_value

_PAGE = 1_000
_STATES = {
    FlowState.RUNNING: JobState.RUNNING,
    FlowState.COMPLETED: JobState.COMPLETED,
    FlowState.FAILED: JobState.FAILED,
    FlowState.CANCELLED: JobState.CANCELLED,
}


class JobEnd(NamedTuple):
    """A job that another one waits for: its state, and its result or problem once it has ended."""

    id: UUID
    state: JobState
    result: str | None
    problem: str | None
    finished_at: datetime | None

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED


class GroupEnds(NamedTuple):
    """A group of jobs: whether it has ended, and its members by position."""

    is_ended: bool
    members: list[JobEnd]


def job_ends(store: Store, ids: Collection[UUID], tenant: str) -> list[JobEnd]:
    """The jobs, flows and batches with these ids, in their order; those that do not exist are missing."""
    wanted = list(ids)
    rows = {
        row.id: row
        for at in range(0, len(wanted), _PAGE)
        for row in store.get(wanted[at : at + _PAGE], tenant=tenant)
    }
    ends = {id: _end(row) for id, row in rows.items()}
    groups = [id for id in wanted if id not in ends]
    if groups:
        ends |= {row.id: _group_end(store, row) for row in store.flow(groups, tenant=tenant)}
    return [ends[id] for id in wanted if id in ends]


def group_ends(store: Store, group_id: UUID, tenant: str) -> GroupEnds:
    """The members of a map, by position; none while the group has not ended and no member has failed."""
    flows = cast(FlowQueries, store)
    groups = flows.flow([group_id], tenant=tenant)
    members: list[JobEnd] = []
    after = -1
    while page := flows.group_jobs(group_id, tenant=tenant, after=after, limit=_PAGE):
        members += map(_end, page)
        after = page[-1].details.position or 0
    return GroupEnds(all(group.ended_at is not None for group in groups), members)


def stop_group(store: Store, id: UUID, reason: str, tenant: str, now: datetime | None = None) -> None:
    """Request that the members of a group that have not ended are cancelled."""
    cast(FlowStore, store).change_flow(id, tenant=tenant, cancel_reason=reason, now=now)
    store.notify(["cascade"])


def _end(row: JobRow) -> JobEnd:
    problem = row.reason if row.error is None else f"{row.error.type}: {row.error.message}"
    return JobEnd(row.id, row.state, row.result, problem, row.finished_at)


def _group_end(store: Store, group: FlowRow) -> JobEnd:
    """A flow or batch as the end of a job; its result is what the flow returns, or the counts of the batch."""
    state = _STATES[group.state]
    result = None
    if group.state is FlowState.COMPLETED:
        value = group_data(store, group) if group.kind is GroupKind.BATCH else _returned(store, group)
        result = json.dumps(value)
    problem = group.cancel_reason or ("a node of it failed" if group.state is FlowState.FAILED else None)
    return JobEnd(group.id, state, result, problem, group.ended_at)


def _returned(store: Store, group: FlowRow) -> Any:
    stored = read_stored(group.rules.get("returns"))
    if stored is None:
        return None
    if stored.many:
        jobs = list(members(store, stored.id, group.tenant))
        return look_up([_value(store, job) for job in jobs], stored.path)
    rows = store.get([stored.id], tenant=group.tenant)
    return look_up(_value(store, rows[0]), stored.path) if rows else None


def _value(store: Store, job: JobRow) -> Any:
    return None if job.result is None else json.loads(read_value(store, job.result))


def ends_to_data(ends: Sequence[JobEnd]) -> list[list[str | None]]:
    """Encode ends for a message between processes."""
    return [
        [str(id), state.value, result, problem, None if at is None else at.isoformat()]
        for id, state, result, problem, at in ends
    ]


def ends_from_data(data: Sequence[Sequence[Any]]) -> list[JobEnd]:
    """Decode ends."""
    return [
        JobEnd(UUID(id), JobState(state), result, problem, None if at is None else datetime.fromisoformat(at))
        for id, state, result, problem, at in data
    ]
