"""Placement of tenants on the shards of an app: the stored row, and the choice for a new tenant."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tidemill.errors import BadSettings


class PlacementState(StrEnum):
    """Whether a tenant is at rest in its shard."""

    PLACED = "placed"
    MOVING = "moving"  #: a move to ``target`` has begun; the tenant's jobs wait in ``shard``
    DRAINING = (
        "draining"  #: ``shard`` is the new one; ``target`` names the old one, which still has unfinished jobs
    )


@dataclass(frozen=True, slots=True)
class TenantPlacement:
    """The shard of a tenant. Every change raises ``epoch`` by one.

    ``former`` are the shards that may still have ended jobs of the tenant, the latest one first.
    """

    tenant: str
    shard: str
    state: PlacementState = PlacementState.PLACED
    target: str | None = None
    former: tuple[str, ...] = ()
    epoch: int = 0
    changed_at: datetime | None = None

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that may have jobs of the tenant, the current one first."""
        return (self.shard, *(name for name in self.former if name != self.shard))


def choose_shard(tenant: str, weights: Mapping[str, float]) -> str:
    """Return the shard of a new tenant, by weighted rendezvous hashing over the open shards.

    The choice depends on the names and the weights alone, so two processes make the same one. A further shard takes
    tenants from all others evenly, and no tenant changes between two of the others. A stored placement is never computed
    again.

    >>> choose_shard("acme", {"eu": 1.0, "us": 1.0})
    'eu'
    """
    if not weights:
        raise BadSettings(
            f"tenant {tenant!r} is new, and no shard is open; open one: Shard(url, open=True)", tenant=tenant
        )
    return max(sorted(weights), key=lambda name: _score(tenant, name, weights[name]))


def _score(tenant: str, shard: str, weight: float) -> float:
    digest = hashlib.sha256(f"{shard}\x00{tenant}".encode("utf-8", "surrogatepass")).digest()
    # An even number in (0, 1); zero would have no logarithm.
    share = (int.from_bytes(digest[:8]) + 0.5) / 2**64
    return -weight / math.log(share)
