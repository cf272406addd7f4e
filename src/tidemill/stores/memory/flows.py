"""Flows in memory: starts, growth, reopening, reads.

Every verb checks all its arguments before it writes, as everywhere in this store.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, page_size
from tidemill.domain.graph import (
    OWNER,
    Edge,
    EndOutcome,
    FlowFilter,
    FlowRow,
    FlowState,
    GroupCounts,
    GroupKind,
    Join,
    NewGroup,
    NewJoin,
    Recounted,
    Started,
    UnreachableJob,
    counts_of,
    outcome_of,
    tied_jobs,
)
from tidemill.domain.job import JobRow, Move, NewJob
from tidemill.domain.join_counts import JoinCount, is_unreachable
from tidemill.domain.node_results import LARGEST_READ_AHEAD, MOST_READ_AHEAD, JobStarts, NodeResult
from tidemill.domain.references import INPUTS
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BatchEnded, FlowNotFound, JobExists
from tidemill.stores.flows import FlowQueries, FlowStore, NodeResults
from tidemill.stores.graph_checks import keyed_by_flow, refuse_bad_graph, refuse_cycle, refuse_unknown
from tidemill.stores.memory import join_counts
from tidemill.stores.memory.control import MemoryControl
from tidemill.stores.memory.copies import json_copy, shown_job
from tidemill.stores.memory.inserts import inserted, prepared
from tidemill.stores.memory.state import State


class MemoryFlows(MemoryControl, FlowStore, FlowQueries, NodeResults):
    """Graphs of jobs."""

    def start_flow(
        self,
        groups: Sequence[NewGroup],
        jobs: Sequence[NewJob],
        edges: Sequence[Edge],
        joins: Sequence[NewJoin],
        *,
        now: datetime | None = None,
    ) -> Started:
        with self._open() as state:
            moment = self._at(now)
            first = keyed_by_flow(groups)
            if first.key is not None:
                keyed = (first.tenant, first.name, first.key)
                for flow in state.flows.values():
                    if (flow.tenant, flow.name, flow.key) == keyed:
                        return Started(flow.id, False)
            jobs = tied_jobs(jobs, edges)
            made = check_graph(state, first.tenant, groups, jobs, edges, moment)
            inserted(state, jobs, made, moment)
            self._ring(put_graph(state, groups, edges, joins, frozenset(), moment))
            return Started(first.id, True)

    def attach(
        self, edges: Sequence[Edge], joins: Sequence[NewJoin], *, tenant: str, now: datetime | None = None
    ) -> None:
        with self._open() as state:
            moment = self._at(now)
            check_graph(state, tenant, (), (), edges, moment)
            self._ring(put_graph(state, (), edges, joins, frozenset(), moment))

    def grow_group(
        self,
        group_id: UUID,
        jobs: Sequence[NewJob],
        joins: Sequence[NewJoin],
        *,
        tenant: str,
        now: datetime | None = None,
    ) -> None:
        with self._open() as state:
            moment = self._at(now)
            flow = state.flows.get(group_id)
            if flow is None or tenant not in (ALL_TENANTS, flow.tenant):
                raise FlowNotFound(f"there is no batch {group_id}", id=group_id)
            if flow.ended_at is not None or not flow.held:
                raise BatchEnded(
                    f"batch {group_id} is closed; jobs can be added while it is open", id=group_id
                )
            jobs = tied_jobs(jobs, ())
            made = check_graph(state, flow.tenant, (), jobs, (), moment)
            inserted(state, jobs, made, moment)
            self._ring(put_graph(state, (), (), joins, frozenset(), moment))

    def change_flow(
        self,
        id: UUID,
        *,
        tenant: str,
        cancel_reason: str | None = None,
        stops: bool = False,
        release: bool = False,
        now: datetime | None = None,
    ) -> FlowRow | None:
        with self._open() as state:
            flow = self._live(state, id, tenant)
            if flow is None:
                return None
            reason = flow.cancel_reason if flow.cancel_reason is not None else cancel_reason
            held = flow.held
            state.flows[id] = replace(
                flow, cancel_reason=reason, stops=flow.stops or stops, held=0 if release else held
            )
            if release and held:
                root = state.joins[id][0]
                state.joins[id][0] = root._replace(required=root.required - held)
                count = JoinCount(id, 0, held)
                self._ring(join_counts.apply(state, [count], self._at(now)))
            return shown_flow(state.flows[id])

    @staticmethod
    def _live(state: State, id: UUID, tenant: str) -> FlowRow | None:
        flow = state.flows.get(id)
        if flow is None or tenant not in (ALL_TENANTS, flow.tenant) or flow.ended_at is not None:
            return None
        return flow

    def reopen(
        self,
        flow_id: UUID,
        moves: Sequence[Move],
        *,
        tenant: str,
        edges: Sequence[Edge] = (),
        joins: Sequence[NewJoin] = (),
        now: datetime | None = None,
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            flow = state.flows.get(flow_id)
            if flow is None or tenant not in (ALL_TENANTS, flow.tenant):
                raise FlowNotFound(f"there is no flow {flow_id}", id=flow_id)
            ours = [
                move
                for move in moves
                if (job := state.jobs.get(move.id)) is not None and job.details.flow_id == flow_id
            ]
            changed = self.move(ours, now=moment)
            renewed = {row.id for row in joins} & changed
            if renewed:
                own = [edge for edge in edges if edge.job_id in renewed]
                rows = [row for row in joins if row.id in renewed]
                self._ring(put_graph(state, (), own, rows, renewed, moment))
            flow = state.flows[flow_id]
            state.flows[flow_id] = replace(flow, cancel_reason=None, stops=False)
            self._ring(repair(state, changed, moment)[1])
            # A node that waits again although all that it needs has ended gets no further count.
            full = [id for id in changed if id in state.joins and state.joins[id][0].remaining <= 0]
            queues = (join_counts.release(state, id, moment) for id in full)
            self._ring(f"ready:{queue}" for queue in queues if queue is not None)
            waiting = {move.id for move in ours if move.state is JobState.WAITING}
            join_counts.note_again(state, waiting & changed, moment)
            return changed

    def recount_joins(
        self, *, after: UUID | None = None, limit: int = 500, now: datetime | None = None
    ) -> Recounted:
        with self._open() as state:
            ids = sorted((id for id in state.joins if after is None or id.int > after.int), key=_number)
            page = ids[:limit]
            wrong, topics = repair(state, page, self._at(now))
            self._ring(topics)
            return Recounted(frozenset(wrong), page[-1] if len(ids) > limit else None)

    def still_unreachable(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            rows = [row for id in ids for row in state.joins.get(id, {}).values()]
            return frozenset(row.id for row in rows if is_unreachable(row))

    def drop_unreachable(self, ids: Collection[UUID]) -> None:
        with self._open() as state:
            for id in ids:
                state.unreachable.pop(id, None)

    # Reads ---------------------------------------------------------------------------------------------------------------

    def unreachable(self, limit: int) -> list[UnreachableJob]:
        with self._open() as state:
            rows = [
                row
                for row in state.unreachable.values()
                if row.job_id in state.jobs and state.jobs[row.job_id].state is JobState.WAITING
            ]
            return sorted(rows, key=lambda row: (row.created_at, row.job_id.int))[: max(limit, 0)]

    def edges_of(self, ids: Collection[UUID]) -> list[Edge]:
        with self._open() as state:
            found = {edge for id in ids for edge in state.edges.get(id, {}).values()}
            found |= {state.edges[job][id] for id in ids for job in state.needed.get(id, ())}
            return sorted(found, key=lambda edge: (edge.job_id.int, edge.needs_id.int))

    def joins_of(self, ids: Collection[UUID]) -> list[Join]:
        with self._open() as state:
            rows = [row for id in set(ids) for row in state.joins.get(id, {}).values()]
            return sorted(rows, key=lambda row: (row.id.int, row.shard))

    def flow(self, ids: Collection[UUID], *, tenant: str) -> list[FlowRow]:
        with self._open() as state:
            found = [state.flows[id] for id in sorted(set(ids), key=_number) if id in state.flows]
            return [shown_flow(flow) for flow in found if tenant in (ALL_TENANTS, flow.tenant)]

    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        size = page_size(limit)
        with self._open() as state:
            ids = sorted((id for id in state.flows if after is None or id.int < after.int), key=_number)
            now = self._at(where.now)
            flows = [state.flows[id] for id in reversed(ids) if flow_matches(where, state.flows[id], now)]
            if where.abandoned:
                flows = [flow for flow in flows if _is_abandoned(state, flow)]
            return [shown_flow(flow) for flow in flows[:size]]

    def flow_jobs(
        self, flow_id: UUID, *, tenant: str, after: UUID | None = None, limit: int = 1000
    ) -> list[JobRow]:
        size = page_size(limit)
        with self._open() as state:
            rows = [
                job
                for job in state.jobs.values()
                if job.details.flow_id == flow_id
                and tenant in (ALL_TENANTS, job.tenant)
                and (after is None or job.id.int > after.int)
            ]
            return [shown_job(job) for job in sorted(rows, key=lambda job: job.id.int)[:size]]

    def group_jobs(self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000) -> list[JobRow]:
        size = page_size(limit)
        with self._open() as state:
            rows = [
                (job.details.position, job)
                for job in state.jobs.values()
                if job.details.group_id == group_id
                and tenant in (ALL_TENANTS, job.tenant)
                and job.details.position is not None
                and job.details.position > after
            ]
            rows.sort(key=lambda row: (row[0], row[1].id.int))
            return [shown_job(job) for _, job in rows[:size]]

    def job_starts(self, ids: Collection[UUID]) -> JobStarts:
        with self._open() as state:
            jobs = [job for id in ids if (job := state.jobs.get(id)) is not None]
            results: dict[UUID, NodeResult] = {}
            for job in jobs:
                inputs: Any = job.details.options.get(INPUTS, ())
                for text in inputs:
                    need = state.jobs.get(UUID(text))
                    if need is None or need.tenant != job.tenant or need.state not in ENDED:
                        continue
                    if len(results) < MOST_READ_AHEAD and len(need.result or "") <= LARGEST_READ_AHEAD:
                        results[need.id] = _node_result(need)
            return JobStarts({job.id: shown_job(job).details for job in jobs}, results)

    def group_results(
        self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000
    ) -> list[NodeResult]:
        return [
            _node_result(job) for job in self.group_jobs(group_id, tenant=tenant, after=after, limit=limit)
        ]

    def group_counts(self, ids: Collection[UUID]) -> list[GroupCounts]:
        with self._open() as state:
            flows = [state.flows[id] for id in sorted(set(ids), key=_number) if id in state.flows]
            return [counts_of(flow.id, state.joins.get(flow.id, {}).values(), flow.held) for flow in flows]


def check_graph(
    state: State,
    tenant: str,
    groups: Sequence[NewGroup],
    jobs: Sequence[NewJob],
    edges: Sequence[Edge],
    now: datetime,
    earlier: Sequence[Edge] = (),
) -> list[JobRow]:
    """The rows of new jobs of a graph; raises before anything is written. ``earlier`` edges of the batch are not stored yet."""
    refuse_bad_graph(tenant, groups, jobs, edges)
    stored = [group.id for group in groups if group.id in state.flows]
    if stored:
        raise JobExists(f"group {stored[0]} is already stored", ids=tuple(stored))
    new = {job.id for job in jobs} | {group.id for group in groups}
    named = {edge.needs_id for edge in edges} | {edge.job_id for edge in edges}
    named |= {job.details.group_id for job in jobs if job.details.group_id is not None}
    named |= {group.group_id for group in groups if group.group_id is not None}
    refuse_unknown(id for id in named - new if tenant not in (ALL_TENANTS, _tenant_of(state, id)))
    for job_id in {edge.job_id for edge in edges} - new:
        needs = {edge.needs_id for edge in edges if edge.job_id == job_id}
        refuse_cycle(job_id, needs, join_counts.waiters(state, job_id, [*earlier, *edges]))
    return prepared(state, jobs, now)


def _tenant_of(state: State, id: UUID) -> str | None:
    row = state.jobs.get(id) or state.flows.get(id) or state.archive.get(id)
    return None if row is None else row.tenant


def put_graph(
    state: State,
    groups: Sequence[NewGroup],
    edges: Sequence[Edge],
    joins: Sequence[NewJoin],
    replaced: Collection[UUID],
    now: datetime,
) -> set[str]:
    """Write groups, edges and joins, and count what has ended. Returns wake-up topics."""
    new_groups = {group.id for group in groups}
    for group in groups:
        state.flows[group.id] = _row(group, now)
    known = {edge.job_id for edge in edges if edge.job_id in state.joins and edge.job_id not in replaced}
    counts = join_counts.put_joins(state, joins, replaced)
    for edge in edges:
        again = edge.job_id in known and edge.needs_id in state.edges.get(edge.job_id, {})
        state.put_edge(edge)
        if edge.needs_id in state.jobs:
            state.tied.add(edge.needs_id)
        if edge.needs_id in new_groups or again:
            continue
        count = join_counts.need_counts(state, edge)
        if count is not None:
            counts.append(count)
    return join_counts.apply(state, counts, now)


def repair(state: State, ids: Collection[UUID], now: datetime) -> tuple[list[UUID], set[str]]:
    """Recount the joins of waiting jobs and live groups. Returns the ids that were wrong, and wake-up topics."""
    wrong: list[UUID] = []
    counts: list[JoinCount] = []
    for id in ids:
        flow, job = state.flows.get(id), state.jobs.get(id)
        live = flow is not None and flow.ended_at is None
        if id not in state.joins or not (live or (job is not None and job.state is JobState.WAITING)):
            continue
        rows = join_counts.expected(state, id)
        if rows == [state.joins[id][shard] for shard in sorted(state.joins[id])]:
            continue
        wrong.append(id)
        root = state.joins[id][0]
        for row in rows[1:]:
            state.joins[id][row.shard] = row
        state.joins[id][0] = rows[0]._replace(remaining=root.remaining, bad=rows[0].bad)
        counts.append(JoinCount(id, 0, root.remaining - rows[0].remaining))
    return wrong, join_counts.apply(state, counts, now)


def _row(group: NewGroup, now: datetime) -> FlowRow:
    return FlowRow(
        id=group.id,
        tenant=group.tenant,
        kind=group.kind,
        name=group.name,
        key=group.key,
        state=FlowState.RUNNING,
        created_at=now,
        rules=json_copy(group.rules),
        group_id=group.group_id,
        group_shard=group.group_shard,
        created_by=group.created_by,
        expires_at=group.expires_at,
        held=group.held,
        correlation_id=group.correlation_id,
    )


def shown_flow(flow: FlowRow) -> FlowRow:
    """A group to return to a caller."""
    return replace(flow, rules=json_copy(flow.rules))


def flow_matches(where: FlowFilter, flow: FlowRow, now: datetime) -> bool:
    """Whether a group meets the conditions."""
    live = flow.ended_at is None
    return (
        where.tenant in (ALL_TENANTS, flow.tenant)
        and (not where.kinds or flow.kind in where.kinds)
        and where.name in (None, flow.name)
        and where.key in (None, flow.key)
        and (not where.states or flow.state in where.states)
        and where.group_id in (None, flow.group_id)
        and (not where.ending or (live and _is_ending(flow, now)))
    )


def _is_ending(flow: FlowRow, now: datetime) -> bool:
    expired = flow.expires_at is not None and flow.expires_at <= now
    return flow.stops or flow.cancel_reason is not None or expired


def _is_abandoned(state: State, flow: FlowRow) -> bool:
    """Whether this is a live map whose owner was cancelled."""
    owner = flow.rules.get(OWNER)
    if flow.ended_at is not None or flow.cancel_reason is not None or flow.kind is not GroupKind.MAP:
        return False
    job = None if owner is None else state.jobs.get(UUID(str(owner)))
    return job is not None and job.state in ENDED and outcome_of(job.state) is EndOutcome.CANCEL


def _number(id: UUID) -> int:
    return id.int


def _node_result(job: JobRow) -> NodeResult:
    ended = job.state in ENDED
    return NodeResult(
        job.id,
        job.task if ended else "",
        job.details.node,
        job.details.position,
        job.state if ended else None,
        job.result if ended else None,
    )
