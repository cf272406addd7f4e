"""The placement part of the store contract: which shard of an app has which tenant.

42. **A placement is written once for each epoch.** ``place`` inserts a tenant that has no row, and returns the row of the
    first caller otherwise. ``replace`` changes a row only from the epoch that was read, and raises the epoch by one. The
    home store of an app decides; each shard has copies of the rows of its tenants, which ``copy_placements`` writes and
    which never go back to an older epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.tenant_placement import TenantPlacement


class PlacementStore(ABC):
    """The shards of tenants."""

    @abstractmethod
    def placed(self, tenants: Collection[str] | None = None) -> list[TenantPlacement]:
        """The placements of these tenants, or of all, by tenant."""

    @abstractmethod
    def place(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> list[TenantPlacement]:
        """Insert the placements of tenants without one, with epoch 1. Returns the stored row of each tenant, by tenant."""

    @abstractmethod
    def replace(
        self, placements: Sequence[TenantPlacement], *, now: datetime | None = None
    ) -> frozenset[str]:
        """Change placements, each only if the stored epoch is the given one. Returns the tenants that changed."""

    @abstractmethod
    def copy_placements(self, placements: Sequence[TenantPlacement]) -> None:
        """Store these rows as they are, unless a row of the same or a later epoch is stored."""
