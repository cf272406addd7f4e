"""Placements of tenants in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.tenant_placement import PlacementState, TenantPlacement
from tidemill.stores.placements import PlacementStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row


class SqlPlacements(SqlPart, PlacementStore):
    """placed, place, replace, copy_placements."""

    def placed(self, tenants: Collection[str] | None = None) -> list[TenantPlacement]:
        takes = {"tenants": None if tenants is None else list(tenants)}
        return [_placement(row) for row in self._db.run("placed", takes)]

    def place(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> list[TenantPlacement]:
        if not placements:
            return []
        with self._db.transaction():
            for row in placements:
                self._db.run("place", {"now": now, **_columns(row)})
            return self.placed({row.tenant for row in placements})

    def replace(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> frozenset[str]:
        if not placements:
            return frozenset()
        with self._db.transaction():
            return frozenset(
                row.tenant
                for row in placements
                if self._db.run("replace_placement", {"now": now, "epoch": row.epoch, **_columns(row)})
            )

    def copy_placements(self, placements: Sequence[TenantPlacement]) -> None:
        if not placements:
            return
        with self._db.transaction():
            for row in placements:
                takes = {"epoch": row.epoch, "changed_at": self._time(row.changed_at), **_columns(row)}
                self._db.run("copy_placement", takes)


def _columns(row: TenantPlacement) -> dict[str, object]:
    return {
        "tenant": row.tenant,
        "shard": row.shard,
        "state": row.state.value,
        "target": row.target,
        "former": json.dumps(row.former),
    }


def _placement(row: Row) -> TenantPlacement:
    tenant, shard, state, target, former, epoch, changed_at = row
    return TenantPlacement(
        tenant, shard, PlacementState(state), target, tuple(json.loads(former)), epoch, changed_at
    )
