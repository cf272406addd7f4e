"""The shard of each tenant, as a process knows it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.clock import Clock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.tenant_placement import TenantPlacement, choose_shard
from tidemill.errors import BadSettings, StoreError, StoreUnavailable
from tidemill.shards.settings import ShardSettings
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.client")

FRESH = 5.0
"""Seconds for which a placement is used without reading it again, counted from before the read."""

_AGAIN = 1.0  # seconds between two attempts to read from a home store that does not answer
_TOGETHER = 500  # placements that are refreshed with one read


@dataclass(slots=True)
class _CachedPlacement:
    """A placement, and until when it is used without a read, on the monotonic clock."""

    row: TenantPlacement
    until: float


class ShardMap:
    """Finds the shards of tenants, and places new tenants. Any thread may use it.

    ``stores`` are all stores of the app; ``home`` is the name of the one with the placements. The app's own tenant is
    always in the home store.
    """

    def __init__(
        self, settings: ShardSettings, stores: Mapping[str, Store], home: str, tenant: str, clock: Clock
    ) -> None:
        self._settings, self._stores, self.home, self._tenant = settings, stores, home, tenant
        self._clock = clock
        self.names = (home, *(name for name in settings.shards if name != home))  #: stores that have tenants
        self._cached: dict[str, _CachedPlacement] = {}
        self._lock = threading.Lock()
        self._is_home_away = False

    def shard_of(self, tenant: str) -> str:
        """Return the shard of a tenant; a new tenant is placed."""
        cached = self._cached.get(tenant)
        if cached is not None and self._clock.monotonic() < cached.until:
            return cached.row.shard
        return self.placement(tenant).shard

    def placement(self, tenant: str) -> TenantPlacement:
        """Return the placement of a tenant; a new tenant is placed."""
        if tenant in (self._tenant, ALL_TENANTS):
            return TenantPlacement(tenant, self.home)
        cached = self._cached.get(tenant)
        now = self._clock.monotonic()
        if cached is None:
            return self._first(tenant, now)
        if now >= cached.until:
            self._refresh(tenant, now)
        return self._cached[tenant].row

    def find(self, tenant: str) -> TenantPlacement:
        """Return the placement of a tenant; the home store for one that has none, which is not placed."""
        if tenant in self._cached or tenant in (self._tenant, ALL_TENANTS):
            return self.placement(tenant)
        now = self._clock.monotonic()
        row = self._read(tenant)
        if row is None:
            return TenantPlacement(tenant, self.home)
        return self._learn([row], now)[0]

    def place(self, tenant: str, shard: str | None) -> TenantPlacement:
        """Place a new tenant, in this shard if one is given; return the placement of a known one."""
        if shard is None or tenant in (self._tenant, ALL_TENANTS):
            return self.placement(tenant)
        self.check(shard)
        now = self._clock.monotonic()
        row = self._read(tenant) or self._place(tenant, shard)
        return self._learn([row], now)[0]

    def check(self, shard: str) -> None:
        """Raise ``BadSettings`` for a shard that the app does not have."""
        if shard not in self.names:
            raise BadSettings(
                f"there is no shard named {shard!r}; there are {', '.join(self.names)}", shard=shard
            )

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the shards that get new tenants."""
        return self._settings.weights

    def forget(self, tenant: str) -> None:
        """Read the placement of a tenant again before its next use."""
        with self._lock:
            self._cached.pop(tenant, None)

    def is_own(self, tenant: str) -> bool:
        """Whether this is the app's own tenant, or stands for all."""
        return tenant in (self._tenant, ALL_TENANTS)

    def has_rows(self, tenant: str) -> bool:
        """Whether the home store has jobs, schedules or definitions of a tenant."""
        return _has_rows(self._stores[self.home], tenant)

    def rows(self) -> list[TenantPlacement]:
        """Return all placements of the home store, by tenant."""
        return self._stores[self.home].placed()

    def _first(self, tenant: str, now: float) -> TenantPlacement:
        row = self._read(tenant)
        if row is None:
            row = self._place(tenant)
        return self._learn([row], now)[0]

    def _read(self, tenant: str) -> TenantPlacement | None:
        try:
            rows = self._stores[self.home].placed([tenant])
        except StoreError as error:
            copy = self._copy(tenant)
            if copy is None:
                raise StoreUnavailable(
                    f"the shard of tenant {tenant!r} is unknown, because the home store {self.home!r} does not answer:"
                    f" {error}",
                    tenant=tenant,
                ) from error
            return copy
        return rows[0] if rows else None

    def _copy(self, tenant: str) -> TenantPlacement | None:
        """Return the latest copy of a placement among the shards that answer."""
        copies: list[TenantPlacement] = []
        for name in self.names[1:]:
            try:
                copies += self._stores[name].placed([tenant])
            except StoreError:
                continue
        return max(copies, key=lambda row: row.epoch, default=None)

    def _place(self, tenant: str, shard: str | None = None) -> TenantPlacement:
        """Place a new tenant, or return where another process has placed it at the same moment."""
        home = self._stores[self.home]
        if _has_rows(home, tenant):
            shard = self.home
        elif shard is None:
            shard = self._choose(tenant)
        (row,) = home.place([TenantPlacement(tenant, shard)])
        if row.shard != self.home and row.shard in self._stores:
            try:
                self._stores[row.shard].copy_placements([row])
            except StoreError as error:
                # The home store decides; a copy only helps while that is away.
                _log.warning("the shard %r has no copy of the placement of %s: %s", row.shard, tenant, error)
        return row

    def _choose(self, tenant: str) -> str:
        place = self._settings.place
        chosen = None if place is None else place(tenant)
        if chosen is None:
            return choose_shard(tenant, self._settings.weights)
        if chosen not in self.names:
            raise BadSettings(
                f"place returned {chosen!r} for tenant {tenant}; there are {', '.join(self.names)}",
                tenant=tenant,
            )
        return chosen

    def _refresh(self, tenant: str, now: float) -> None:
        """Read expired placements again, this one and others with it. They stay in use while the home store is away."""
        with self._lock:
            expired = [name for name, cached in self._cached.items() if cached.until <= now]
            expired = [tenant, *(name for name in expired if name != tenant)][:_TOGETHER]
            for name in expired:
                # Other threads use the known ones during this read.
                self._cached[name].until = now + _AGAIN
        try:
            rows = self._stores[self.home].placed(expired)
        except StoreError as error:
            if not self._is_home_away:
                self._is_home_away = True
                _log.warning(
                    "known placements stay in use, because the home store does not answer: %s", error
                )
            return
        self._is_home_away = False
        self._learn(rows, now)

    def _learn(self, rows: list[TenantPlacement], since: float) -> list[TenantPlacement]:
        for row in rows:
            if row.shard not in self.names:
                raise BadSettings(
                    f"tenant {row.tenant} is placed in the shard {row.shard!r}, which this app does not have;"
                    f" there are {', '.join(self.names)}",
                    tenant=row.tenant,
                )
        with self._lock:
            for row in rows:
                self._cached[row.tenant] = _CachedPlacement(row, since + FRESH)
        return rows


def _has_rows(home: Store, tenant: str) -> bool:
    """Whether the home store has jobs, schedules or definitions of a tenant, from before the app had shards."""
    return bool(
        home.jobs(JobFilter(tenant), limit=1).items
        or home.schedules(tenant=tenant)
        or home.definitions(tenant=tenant)
        or home.search_archive(JobFilter(tenant), limit=1).items
    )
