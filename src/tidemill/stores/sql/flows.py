"""Flows in the SQL store: starts, growth, reopening, reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import page_size
from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
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
)
from tidemill.domain.job import JobRow, Move, NewJob
from tidemill.domain.join_counts import JoinCount, is_unreachable
from tidemill.domain.node_results import LARGEST_READ_AHEAD, MOST_READ_AHEAD, JobStarts, NodeResult
from tidemill.domain.states import JobState
from tidemill.errors import BatchEnded, FlowNotFound, OldWorkers
from tidemill.stores.flows import FlowQueries, FlowStore, NodeResults
from tidemill.stores.graph_checks import keyed_by_flow, refuse_bad_graph
from tidemill.stores.sql.cluster import COUNTS_ENDS
from tidemill.stores.sql.control import SqlControl
from tidemill.stores.sql.driver import QueryCall, Row
from tidemill.stores.sql.graph_writes import GraphWrites
from tidemill.stores.sql.job_rows import at_most, load_details, tenant_of

_LOT = 1_000  # jobs of a graph that one statement inserts


class SqlFlows(SqlControl, GraphWrites, FlowStore, FlowQueries, NodeResults):
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
        first = keyed_by_flow(groups)
        refuse_bad_graph(first.tenant, groups, jobs, edges)
        with self._db.transaction():
            self._refuse_old_workers(now)
            keyed = None
            if first.key is not None:
                keyed = {"tenant": first.tenant, "name": first.name, "key": first.key}
                rows = self._db.run("keyed_flow", keyed)
                if rows:
                    return Started(rows[0][0], False)
            if not self._put_groups(groups[:1], now) and keyed is not None:
                rows = self._db.run("keyed_flow", keyed)
                if rows:
                    return Started(rows[0][0], False)
            additions = Additions(tuple(jobs), tuple(edges), tuple(joins), tuple(groups[1:]))
            self._write_graph(additions, first.tenant, now, new=[first.id])
            return Started(first.id, True)

    def attach(
        self, edges: Sequence[Edge], joins: Sequence[NewJoin], *, tenant: str, now: datetime | None = None
    ) -> None:
        refuse_bad_graph(tenant, (), (), edges)
        with self._db.transaction():
            self._refuse_old_workers(now)
            self._write_graph(Additions(edges=tuple(edges), joins=tuple(joins)), tenant, now)

    def grow_group(
        self,
        group_id: UUID,
        jobs: Sequence[NewJob],
        joins: Sequence[NewJoin],
        *,
        tenant: str,
        now: datetime | None = None,
    ) -> None:
        with self._db.transaction():
            flow = self._locked_flow(group_id, tenant)
            if flow is None:
                raise FlowNotFound(f"there is no batch {group_id}", id=group_id)
            if flow.ended_at is not None or not flow.held:
                raise BatchEnded(
                    f"batch {group_id} is closed; jobs can be added while it is open", id=group_id
                )
            refuse_bad_graph(flow.tenant, (), jobs, ())
            self._write_graph(
                Additions(jobs=tuple(jobs), joins=tuple(joins)), flow.tenant, now, new=[group_id]
            )

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
        with self._db.transaction():
            # Counter rows before groups, as in a finish.
            rows = self._locked([(id, 0)]) if release else {}
            flow = self._locked_flow(id, tenant)
            if flow is None or flow.ended_at is not None:
                return None
            held = 0 if release else flow.held
            takes = {"id": id, "cancel_reason": cancel_reason, "stops": stops, "held": held}
            self._db.run("change_flow", takes)
            if release and flow.held:
                root = rows[id, 0]
                self._put_joins([root._replace(required=root.required - flow.held)])
                self._apply([JoinCount(id, 0, flow.held)], now)
            return self.flow([id], tenant=tenant)[0]

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
        with self._db.transaction():
            if not self.flow([flow_id], tenant=tenant):
                raise FlowNotFound(f"there is no flow {flow_id}", id=flow_id)
            details = self._details([move.id for move in moves])
            ours = [move for move in moves if move.id in details and details[move.id].flow_id == flow_id]
            changed = self.move(ours, now=now)
            renewed = {row.id for row in joins} & changed
            if renewed:
                again = Additions(
                    edges=tuple(edge for edge in edges if edge.job_id in renewed),
                    joins=tuple(row for row in joins if row.id in renewed),
                )
                self._write_graph(again, tenant, now, replaced=renewed)
            self._db.run("resume_flow", {"id": flow_id})
            if changed:
                self._repair(changed, now)
                # A node that waits again although all that it needs has ended gets no further count.
                rows = [row for joined in self._joins(changed).values() for row in joined]
                self._cross([row for row in rows if not row.shard and row.remaining <= 0], [], now)
                self._note_again({move.id for move in ours if move.state is JobState.WAITING} & changed, now)
            return changed

    def recount_joins(
        self, *, after: UUID | None = None, limit: int = 500, now: datetime | None = None
    ) -> Recounted:
        rows = self._db.run("join_ids", {"after": after, "limit": at_most(limit) + 1})
        ids = [row[0] for row in rows[:limit]]
        wrong: frozenset[UUID] = frozenset()
        if ids:
            with self._db.transaction():
                wrong = self._repair(ids, now)
        return Recounted(wrong, ids[-1] if len(rows) > limit else None)

    def still_unreachable(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._db.transaction():
            keys = sorted((row.id, row.shard) for rows in self._joins(ids).values() for row in rows)
            return frozenset(row.id for row in self._locked(keys).values() if is_unreachable(row))

    def drop_unreachable(self, ids: Collection[UUID]) -> None:
        if ids:
            self._db.run("drop_unreachable", {"ids": list(ids)})

    def _refuse_old_workers(self, now: datetime | None) -> None:
        rows = self._db.run("old_workers", {"now": now, "schema_version": COUNTS_ENDS})
        if rows:
            names = ", ".join(row[0] for row in rows)
            raise OldWorkers(
                f"worker {names} has an older version, which would end jobs of flows without counting them; stop it first",
                workers=[row[0] for row in rows],
            )

    def _locked_flow(self, id: UUID, tenant: str) -> FlowRow | None:
        rows = self._db.run("lock_groups", {"ids": [id]})
        flows = [flow for flow in map(load_flow, rows) if tenant_of(tenant) in (None, flow.tenant)]
        return flows[0] if flows else None

    # Reads ---------------------------------------------------------------------------------------------------------------

    def unreachable(self, limit: int) -> list[UnreachableJob]:
        return [UnreachableJob(*row) for row in self._db.run("unreachable", {"limit": at_most(limit)})]

    def edges_of(self, ids: Collection[UUID]) -> list[Edge]:
        rows = self._db.run("edges_of", {"ids": list(ids)}) if ids else []
        return [Edge(job, need, EdgeCondition(condition), shard) for job, need, condition, shard in rows]

    def joins_of(self, ids: Collection[UUID]) -> list[Join]:
        return [Join(*row) for row in self._db.run("joins_of", {"ids": list(ids)})] if ids else []

    def flow(self, ids: Collection[UUID], *, tenant: str) -> list[FlowRow]:
        if not ids:
            return []
        return [
            load_flow(row) for row in self._db.run("flow", {"ids": list(ids), "tenant": tenant_of(tenant)})
        ]

    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        takes = {
            "tenant": tenant_of(where.tenant),
            "after": after,
            "kinds": sorted(where.kinds) or None,
            "name": where.name,
            "key": where.key,
            "states": sorted(where.states) or None,
            "group_id": where.group_id,
            "now": where.now,
            "limit": page_size(limit),
        }
        flags = ("ending",) * where.ending + ("abandoned",) * where.abandoned
        return [load_flow(row) for row in self._db.run("flows", takes, flags=flags)]

    def flow_jobs(
        self, flow_id: UUID, *, tenant: str, after: UUID | None = None, limit: int = 1000
    ) -> list[JobRow]:
        takes = {"flow_id": flow_id, "after_id": after, "limit": page_size(limit)}
        return self._found([row[0] for row in self._db.run("flow_jobs", takes)], tenant)

    def group_jobs(self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000) -> list[JobRow]:
        takes = {"group_id": group_id, "after": after, "limit": page_size(limit)}
        return self._found([row[0] for row in self._db.run("flow_jobs", takes)], tenant)

    def _found(self, ids: Sequence[UUID], tenant: str) -> list[JobRow]:
        """The jobs with these ids, in this order."""
        if not ids:
            return []
        rows = self._db.run("get", {"ids": list(ids), "tenant": tenant_of(tenant)})
        jobs = {job.id: job for job in self._jobs(rows)}
        return [jobs[id] for id in ids if id in jobs]

    def group_counts(self, ids: Collection[UUID]) -> list[GroupCounts]:
        if not ids:
            return []
        rows = self._db.run("flow", {"ids": list(ids)})
        joins = self._joins([row[0] for row in rows])
        return [counts_of(row[0], joins.get(row[0], []), row[16]) for row in rows]

    def job_starts(self, ids: Collection[UUID]) -> JobStarts:
        if not ids:
            return JobStarts({}, {})
        return job_starts(*self._db.run_together(job_start_calls(ids)))

    def group_results(
        self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000
    ) -> list[NodeResult]:
        takes = {
            "group_id": group_id,
            "tenant": tenant_of(tenant),
            "after": after,
            "limit": page_size(limit),
        }
        return [_node_result(row) for row in self._db.run("group_results", takes)]


def job_start_calls(ids: Collection[UUID]) -> list[QueryCall]:
    """The calls that read what these jobs need to begin; ``job_starts`` takes their rows."""
    takes = {"ids": list(ids)}
    inputs = {**takes, "limit": MOST_READ_AHEAD, "largest": LARGEST_READ_AHEAD}
    return [QueryCall("details", takes), QueryCall("input_results", inputs)]


def job_starts(details: Sequence[Row], results: Sequence[Row]) -> JobStarts:
    """The rows of ``job_start_calls`` as data."""
    return JobStarts(
        {row[0]: load_details(row[1:]) for row in details}, {row[0]: _node_result(row) for row in results}
    )


def _node_result(row: Row) -> NodeResult:
    id, task, node, position, state, result = row
    return NodeResult(id, task, node, position, None if state is None else JobState(state), result)


def load_flow(row: Row) -> FlowRow:
    """A group from a row of ``flow``."""
    (id, tenant, kind, name, key, state, created_at, rules, group_id, group_shard, created_by, expires_at, ended_at,
     cancel_reason, stops, turn, held, correlation_id) = row  # fmt: skip
    return FlowRow(
        id=id,
        tenant=tenant,
        kind=GroupKind(kind),
        name=name,
        key=key,
        state=FlowState(state),
        created_at=created_at,
        rules=rules,
        group_id=group_id,
        group_shard=group_shard,
        created_by=created_by,
        expires_at=expires_at,
        ended_at=ended_at,
        cancel_reason=cancel_reason,
        stops=stops,
        round=turn,
        held=held,
        correlation_id=correlation_id,
    )
