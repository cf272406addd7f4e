"""Placements of tenants in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.placements import PlacementStore


class MemoryPlacements(MemoryPart, PlacementStore):
    """The shards of tenants."""

    def placed(self, tenants: Collection[str] | None = None) -> list[TenantPlacement]:
        with self._open() as state:
            rows = state.placements.values()
            return sorted(
                (row for row in rows if tenants is None or row.tenant in tenants), key=lambda row: row.tenant
            )

    def place(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> list[TenantPlacement]:
        with self._open() as state:
            moment = self._at(now)
            for row in placements:
                state.placements.setdefault(row.tenant, replace(row, epoch=1, changed_at=moment))
            return self.placed({row.tenant for row in placements})

    def replace(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            changed = set()
            for row in placements:
                stored = state.placements.get(row.tenant)
                if stored is not None and stored.epoch == row.epoch:
                    state.placements[row.tenant] = replace(row, epoch=row.epoch + 1, changed_at=moment)
                    changed.add(row.tenant)
            return frozenset(changed)

    def copy_placements(self, placements: Sequence[TenantPlacement]) -> None:
        with self._open() as state:
            for row in placements:
                stored = state.placements.get(row.tenant)
                if stored is None or stored.epoch < row.epoch:
                    state.placements[row.tenant] = row
