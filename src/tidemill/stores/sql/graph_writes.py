"""The rows of a graph in the SQL store: jobs, groups, edges and joins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.graph import Additions, NewGroup, tied_jobs
from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import JobExists
from tidemill.stores.graph_checks import refuse_cycle, refuse_unknown
from tidemill.stores.sql.job_rows import dump_mapping, tenant_of
from tidemill.stores.sql.join_counts import JoinCounts

_LOT = 1_000  # jobs of a graph that one statement inserts


class GraphWrites(JoinCounts):
    """Base of the verbs that add to a graph."""

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        raise NotImplementedError

    def _put_groups(self, groups: Sequence[NewGroup], now: datetime | None) -> frozenset[UUID]:
        columns: dict[str, list[Any]] = {
            "id": [group.id for group in groups],
            "tenant": [group.tenant for group in groups],
            "kind": [group.kind for group in groups],
            "name": [group.name for group in groups],
            "key": [group.key for group in groups],
            "rules": [dump_mapping(group.rules) for group in groups],
            "group_id": [group.group_id for group in groups],
            "group_shard": [group.group_shard for group in groups],
            "created_by": [group.created_by for group in groups],
            "expires_at": [group.expires_at for group in groups],
            "held": [group.held for group in groups],
            "correlation_id": [group.correlation_id for group in groups],
        }
        return frozenset(row[0] for row in self._db.run("put_groups", {"now": now}, columns))

    def _write_graph(
        self,
        additions: Additions,
        tenant: str,
        now: datetime | None,
        *,
        new: Collection[UUID] = (),
        replaced: Collection[UUID] = (),
    ) -> None:
        """Write jobs, groups, edges and joins, and count what has ended; within the transaction of the caller."""
        jobs, edges, joins, groups = additions.jobs, additions.edges, additions.joins, additions.groups
        known = {job.id for job in jobs} | {group.id for group in groups} | set(new)
        named = {edge.needs_id for edge in edges} | {
            edge.job_id for edge in edges if edge.job_id not in replaced
        }
        named |= {job.details.group_id for job in jobs if job.details.group_id is not None}
        named |= {group.group_id for group in groups if group.group_id is not None}
        needed = {edge.needs_id for edge in edges}
        needs = self._tie(named & needed - known, tenant)
        self._refuse_strangers(named - needed - known, tenant)
        if groups:
            stored = {group.id for group in groups} - self._put_groups(groups, now)
            if stored:
                raise JobExists(f"group {min(stored)} is already stored", ids=frozenset(stored))
        made = tied_jobs(jobs, edges)
        for at in range(0, len(made), _LOT):
            self.enqueue(made[at : at + _LOT], now=now)
        fresh = known | set(replaced)
        counts = self._grow_joins(joins, replaced)
        counts += self._put_edges(edges, needs, fresh, now)
        for job_id in {edge.job_id for edge in edges} - known:
            waiters = {row[0] for row in self._db.run("waiters", {"id": job_id})}
            refuse_cycle(job_id, {edge.needs_id for edge in edges if edge.job_id == job_id}, waiters)
        self._apply(counts, now)

    def _refuse_strangers(self, ids: Collection[UUID], tenant: str) -> None:
        """Refuse waiting jobs and parent groups that the tenant does not have."""
        if not ids:
            return
        takes = {"ids": sorted(ids), "tenant": tenant_of(tenant)}
        found = {row[0] for row in self._db.run("get", takes)}
        found |= {row[0] for row in self._db.run("flow", takes)}
        refuse_unknown(set(ids) - found)
