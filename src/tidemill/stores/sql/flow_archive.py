"""The end of flows in the SQL store, and the documents of archived flows."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tidemill.domain.archived_flows import ArchivedFlow
from tidemill.domain.filters import page_size
from tidemill.domain.graph import FlowFilter, FlowRow, FlowState, FlowTotals, GroupKind
from tidemill.domain.retention import ArchivedJob, Position, Selection
from tidemill.stores.flows import ArchivedFlowStore, FlowArchive, FlowStats
from tidemill.stores.sql.archive import SqlArchive, range_takes
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.flows import load_flow
from tidemill.stores.sql.job_rows import at_most, tenant_of


class SqlFlowArchive(SqlArchive, FlowArchive, FlowStats, ArchivedFlowStore):
    """Flows that leave the live tables, and flows that have left them."""

    def due_flows(self, selection: Selection) -> list[FlowRow]:
        rows = self._db.run("due_flows", range_takes(selection) | {"limit": selection.limit})
        return [load_flow(row) for row in rows]

    def flow_documents(
        self, flow_id: UUID, *, policy: str, tier: str, limit: int = 500, after: Position | None = None
    ) -> list[ArchivedJob]:
        takes = {
            "flow_id": flow_id,
            "after_at": after and after.ended_at,
            "after_id": after and after.id,
            "limit": at_most(limit),
        }
        return self._documents(self._db.run("flow_documents", takes), policy, tier)

    def empty_groups(self, before: datetime, *, limit: int = 100) -> list[FlowRow]:
        rows = self._db.run("empty_groups", {"before": before, "limit": at_most(limit)})
        return [load_flow(row) for row in rows]

    def drop_flows(self, ids: Collection[UUID]) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("drop_flows", {"ids": list(ids)}))

    # Numbers -------------------------------------------------------------------------------------------------------------

    def flow_totals(self, *, tenant: str, ended_after: datetime) -> FlowTotals:
        takes = {"tenant": tenant_of(tenant), "ended_after": ended_after}
        return FlowTotals(*self._db.run("flow_totals", takes)[0])

    def stalled_flows(self, *, tenant: str, before: datetime, limit: int = 100) -> list[FlowRow]:
        takes = {"tenant": tenant_of(tenant), "before": before, "limit": at_most(limit)}
        return [load_flow(row) for row in self._db.run("stalled_flows", takes)]

    # Documents -----------------------------------------------------------------------------------------------------------

    def put_archived_flow(self, flow: ArchivedFlow, *, now: datetime | None = None) -> None:
        names = (
            "id", "tenant", "kind", "name", "key", "state", "created_at", "ended_at", "tier", "policy", "summary", "document",
            "fingerprint",
        )  # fmt: skip
        self._db.run("put_archived_flow", {name: getattr(flow, name) for name in names} | {"now": now})

    def archived_flows(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedFlow]:
        if not ids:
            return []
        rows = self._db.run("archived_flows", {"ids": list(ids), "tenant": tenant_of(tenant)})
        return [_load_archived_flow(row) for row in rows]

    def search_archived_flows(
        self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None
    ) -> list[ArchivedFlow]:
        # Archived flows have ended and are in no group.
        if where.ending or where.group_id is not None:
            return []
        takes = {
            "tenant": tenant_of(where.tenant),
            "after": after,
            "kinds": sorted(where.kinds) or None,
            "name": where.name,
            "key": where.key,
            "states": sorted(where.states) or None,
            "limit": page_size(limit),
        }
        return [_load_archived_flow(row) for row in self._db.run("search_archived_flows", takes)]

    def move_archived_flows(self, selection: Selection, *, tier: str | None, policy: str) -> int:
        takes = range_takes(selection) | {"tier": selection.tier, "limit": selection.limit}
        with self._db.transaction():
            ids = [row[0] for row in self._db.run("archived_flows_due", takes)]
            if ids and tier is None:
                self._db.run("drop_archived_flows", {"ids": ids})
            elif ids:
                self._db.run("move_archived_flows", {"ids": ids, "tier": tier, "policy": policy})
        return len(ids)

    def erase_archived_flows(self, tenant: str) -> int:
        return len(self._db.run("drop_archived_flows", {"tenant": tenant_of(tenant)}))


def _load_archived_flow(row: Row) -> ArchivedFlow:
    fields = list(row)
    fields[2], fields[5] = GroupKind(fields[2]), FlowState(fields[5])
    return ArchivedFlow(*fields)
