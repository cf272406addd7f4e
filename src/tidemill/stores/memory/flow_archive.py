"""The end of flows in memory, and the documents of archived flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.archived_flows import ARCHIVED_KINDS, ArchivedFlow, read_flow_row
from tidemill.domain.filters import ALL_TENANTS, page_size
from tidemill.domain.graph import FlowFilter, FlowRow, FlowTotals, GroupKind
from tidemill.domain.job import JobRow
from tidemill.domain.retention import ArchivedJob, Position, Selection
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.stores.flows import ArchivedFlowStore, FlowArchive, FlowStats
from tidemill.stores.memory.archive import document_of
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.flows import flow_matches, shown_flow
from tidemill.stores.memory.state import State


class MemoryFlowArchive(MemoryPart, FlowArchive, FlowStats, ArchivedFlowStore):
    """Flows that leave the live tables, and flows that have left them."""

    def due_flows(self, selection: Selection) -> list[FlowRow]:
        with self._open() as state:
            due = sorted(
                (position, flow)
                for flow in state.flows.values()
                if flow.ended_at is not None
                and flow.kind in ARCHIVED_KINDS
                and flow.group_id is None
                and selection.contains(
                    JobState(flow.state.value),
                    flow.name,
                    flow.tenant,
                    position := Position(flow.ended_at, flow.id),
                )
                and not _needed(state, flow.id)
            )
            return [shown_flow(flow) for _, flow in due[: selection.limit]]

    def flow_documents(
        self, flow_id: UUID, *, policy: str, tier: str, limit: int = 500, after: Position | None = None
    ) -> list[ArchivedJob]:
        with self._open() as state:
            positions = sorted(
                position
                for job in state.jobs.values()
                if job.details.flow_id == flow_id
                and job.finished_at is not None
                and job.state in ENDED
                and (after is None or Position(job.finished_at, job.id) > after)
                and (position := Position(job.finished_at, job.id))
            )
            return [
                document_of(state, state.jobs[one.id], policy, tier) for one in positions[: max(limit, 0)]
            ]

    def empty_groups(self, before: datetime, *, limit: int = 100) -> list[FlowRow]:
        with self._open() as state:
            rows = [
                flow
                for flow in state.flows.values()
                if flow.ended_at is not None
                and flow.ended_at < before
                and flow.kind is GroupKind.MAP
                and flow.group_id is None
                and _is_empty(state, flow.id)
                and not _needed(state, flow.id)
            ]
            rows.sort(key=lambda flow: (flow.ended_at, flow.id.int))
            return [shown_flow(flow) for flow in rows[: max(limit, 0)]]

    def drop_flows(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            dropped = {
                id
                for id in ids
                if id in state.flows and state.flows[id].ended_at is not None and _is_empty(state, id)
            }
            inner = {one for id in dropped for one in _groups_in(state, id)}
            for id in dropped | inner:
                del state.flows[id]
                state.remove_edges(id)
            return frozenset(dropped)

    # Numbers -------------------------------------------------------------------------------------------------------------

    def flow_totals(self, *, tenant: str, ended_after: datetime) -> FlowTotals:
        with self._open() as state:
            flows = [
                flow
                for flow in state.flows.values()
                if flow.kind is GroupKind.FLOW
                and tenant in (ALL_TENANTS, flow.tenant)
                and (flow.ended_at is None or flow.ended_at > ended_after)
            ]
            states = Counter(flow.state.value for flow in flows)
            waiting = [
                job
                for job in state.jobs.values()
                if job.state is JobState.WAITING and tenant in (ALL_TENANTS, job.tenant)
            ]
            alarms = {id for _, id in state.alarms}
            kinds = Counter(_wait_kind(state, job.id, alarms) for job in waiting)
            ids = {job.id for job in waiting}
            noted = [row.created_at for row in state.unreachable.values() if row.job_id in ids]
            return FlowTotals(
                states["running"],
                states["completed"],
                states["failed"],
                states["cancelled"],
                kinds["jobs"],
                kinds["signal"],
                kinds["event"],
                kinds["sleep"],
                len(noted),
                min(noted, default=None),
            )

    def stalled_flows(self, *, tenant: str, before: datetime, limit: int = 100) -> list[FlowRow]:
        with self._open() as state:
            jobs: dict[UUID, list[JobRow]] = {}
            for job in state.jobs.values():
                if job.details.flow_id is not None:
                    jobs.setdefault(job.details.flow_id, []).append(job)
            rows = [
                flow
                for flow in state.flows.values()
                if flow.ended_at is None
                and tenant in (ALL_TENANTS, flow.tenant)
                and any(
                    job.state is JobState.PENDING and job.run_at < before for job in jobs.get(flow.id, ())
                )
                and not any(
                    job.state in HELD or (job.finished_at is not None and job.finished_at >= before)
                    for job in jobs.get(flow.id, ())
                )
            ]
            rows.sort(key=lambda flow: flow.id.int)
            return [shown_flow(flow) for flow in rows[: max(limit, 0)]]

    # Documents -----------------------------------------------------------------------------------------------------------

    def put_archived_flow(self, flow: ArchivedFlow, *, now: datetime | None = None) -> None:
        with self._open() as state:
            state.archived_flows[flow.id] = replace(flow, archived_at=self._at(now))

    def archived_flows(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedFlow]:
        with self._open() as state:
            rows = [state.archived_flows[id] for id in set(ids) if id in state.archived_flows]
            ours = [row for row in rows if tenant in (ALL_TENANTS, row.tenant)]
            return sorted(ours, key=lambda row: row.id.int)

    def search_archived_flows(
        self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None
    ) -> list[ArchivedFlow]:
        size = page_size(limit)
        with self._open() as state:
            rows = [
                replace(row, document="")
                for row in state.archived_flows.values()
                if (after is None or row.id.int < after.int)
                and flow_matches(where, read_flow_row(row), self._at(where.now))
            ]
            return sorted(rows, key=lambda row: -row.id.int)[:size]

    def move_archived_flows(self, selection: Selection, *, tier: str | None, policy: str) -> int:
        with self._open() as state:
            moved = sorted(
                position
                for row in state.archived_flows.values()
                if row.tier == selection.tier
                and selection.contains(
                    JobState(row.state.value),
                    row.name,
                    row.tenant,
                    position := Position(row.ended_at, row.id),
                )
            )[: selection.limit]
            for _, id in moved:
                if tier is None:
                    del state.archived_flows[id]
                else:
                    state.archived_flows[id] = replace(state.archived_flows[id], tier=tier, policy=policy)
            return len(moved)

    def erase_archived_flows(self, tenant: str) -> int:
        with self._open() as state:
            ids = [row.id for row in state.archived_flows.values() if tenant in (ALL_TENANTS, row.tenant)]
            for id in ids:
                del state.archived_flows[id]
            return len(ids)


def _wait_kind(state: State, id: UUID, alarms: Collection[UUID]) -> str | None:
    """The reason why a job waits; None for one of a schedule that waits for another one."""
    waits = [wait.event for wait in state.waits.get(id, (0, ()))[1]]
    if waits:
        return "event" if all(waits) else "signal"
    root = state.joins.get(id, {}).get(0)
    if root is not None and root.remaining > 0:
        return "jobs"
    return "sleep" if id in alarms else None


def _needed(state: State, flow_id: UUID) -> bool:
    """Whether a job of the flow has not ended, or one outside that needs the flow or one of its jobs."""
    jobs = [job for job in state.jobs.values() if job.details.flow_id == flow_id]
    if any(job.state not in ENDED for job in jobs):
        return True
    needs = [flow_id, *(job.id for job in jobs)]
    dependants = (state.jobs.get(one) for need in needs for one in state.needed.get(need, ()))
    return any(job is not None and job.state not in ENDED for job in dependants)


def _groups_in(state: State, id: UUID) -> set[UUID]:
    """The groups in a group, at any depth."""
    groups: set[UUID] = set()
    layer = {id}
    while layer:
        layer = {flow.id for flow in state.flows.values() if flow.group_id in layer} - groups
        groups |= layer
    return groups


def _is_empty(state: State, id: UUID) -> bool:
    """Whether no live job belongs to a flow or to a group in it."""
    groups = {id} | _groups_in(state, id)
    return not any(
        job.details.flow_id in groups or job.details.group_id in groups for job in state.jobs.values()
    )
