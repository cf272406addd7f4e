"""Placement: which of an app's stores a call addresses, and where a new job goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.client.stats.loads import is_living
from tidemill.domain.bounds import check_name
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.tenant_placement import PlacementState
from tidemill.errors import BadSettings, CrossShard, StoreError
from tidemill.shards.settings import ALL_SHARDS
from tidemill.stores.base import Store
from tidemill.tasks.ambient import JOB, current_collector, current_store, current_tenant
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.shards.map import ShardMap

_log = logging.getLogger("tidemill.client")

StoreFor = Callable[[str], str | None]
"""A user's function from a tenant to the name of its store; None leaves the choice to the next rule."""


def default_name(names: Iterable[str]) -> str:
    """Return the default store: ``jobs`` if there is one, else ``default``, else the first that is worked.

    >>> default_name(["default", "jobs", "archive"]), default_name(["eu", "us"])
    ('jobs', 'eu')
    """
    given = list(names)
    live = [name for name in given if not is_archive_name(name)] or given
    return next((name for name in ("jobs", "default") if name in given), live[0])


def is_archive_name(name: str) -> bool:
    """Whether a store of this name is for archived jobs only: ``archive``, ``archive-cold``, ``archive_2026``."""
    return name == "archive" or name.startswith(("archive-", "archive_"))


def live_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the stores that workers serve by default, the default store first.

    >>> live_names(["eu", "jobs", "archive"])
    ('jobs', 'eu')
    """
    given = list(names)
    live = [name for name in given if not is_archive_name(name)] or given
    first = default_name(given)
    return tuple(sorted(live, key=lambda name: name != first))


def check_stores(stores: Mapping[str, object], store_for: StoreFor | None) -> None:
    """Check the names of an app's stores, and the function that routes its tenants."""
    if not stores:
        raise BadSettings(
            "stores is empty; give at least one store, such as {'default': 'sqlite:///jobs.db'}"
        )
    for name in stores:
        check_name("store", name)
        if "," in name or "=" in name:
            raise BadSettings(f"{name!r} is not a store's name; leave out commas and equals signs")
    if store_for is not None and not callable(store_for):
        raise BadSettings(
            f"store_for is {store_for!r}; give a function that takes a tenant and returns a store's name",
            setting="store_for",
        )


class Placement:
    """Chooses among the stores of a client. ``fixed`` is the store that ``app.at_store`` has chosen, if any."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        registry: Registry,
        tenant: str,
        store_for: StoreFor | None,
        fixed: str | None = None,
        places: Mapping[str, str] | None = None,
        *,
        shards: ShardMap | None = None,
    ) -> None:
        self._places = places or {}
        self._stores, self._registry, self._tenant = stores, registry, tenant
        self._store_for = store_for
        self.is_single = len(stores) == 1  #: there is nothing to choose
        self.default = default_name(stores)
        self.live = live_names(stores)
        self.shards = shards
        self.fixed = None if fixed is None else self.existing(fixed)
        self._checked: set[str] = set()  # stores whose workers were looked for
        self._lock = threading.Lock()

    def existing(self, name: str) -> str:
        """Return the name of a store that exists, or raise ``BadSettings``."""
        if name in self._places:
            raise BadSettings(
                f"store {name!r} holds archive files only ({self._places[name]}); "
                "give live jobs a database, such as sqlite:///jobs.db",
                store=name,
            )
        if name not in self._stores:
            raise BadSettings(
                f"there is no store named {name!r}; there are {', '.join(sorted(self._stores))}", store=name
            )
        return name

    def current(self, tenant: str | None = None) -> str:
        """Return the store that calls address: of ``at_store``, the block, the running job, or the default.

        An app with shards addresses all of them instead of the last two, or the shard of ``tenant``.
        """
        if self.is_single:
            return self.default
        chosen = self.fixed or current_store(self._registry)
        if chosen is not None or self.shards is None:
            return chosen or self.of_job() or self.default
        return self.routed(tenant)

    def routed(self, tenant: str | None) -> str:
        """Return the shard of a tenant; ``"*"`` for all tenants."""
        if self.shards is None:
            raise BadSettings(f"store {ALL_SHARDS!r} stands for the shards of an app, and this one has none")
        if tenant is None or tenant == ALL_TENANTS:
            return ALL_SHARDS
        return self.shards.find(tenant).shard

    def addressed(self, name: str | None) -> str:
        """Return the store that a handle remembers: a named one, or all shards for any of them."""
        if name is None:
            return self.current()
        is_shard = self.shards is not None and name in self.shards.names
        return self.current() if is_shard and self.current() == ALL_SHARDS else name

    def concrete(self, name: str) -> str:
        """Return the name of a store; the home store for all shards."""
        return self.default if name == ALL_SHARDS else name

    def search_order(self, tenant: str) -> tuple[str, ...]:
        """Return the shards in which a job of a tenant is looked up; all live stores for all tenants."""
        assert self.shards is not None
        if tenant == ALL_TENANTS:
            return self.live
        return self.shards.find(tenant).shards

    def leaving_shard(self, tenant: str) -> str | None:
        """Return the shard in which jobs of a tenant still end after it has moved to another one, if there is one."""
        if self.shards is None or self.fixed is not None:
            return None
        row = self.shards.find(tenant)
        return row.target if row.state is PlacementState.DRAINING else None

    def nearest(self, name: str) -> tuple[str, ...]:
        """Return this store, then the other live ones."""
        return (name, *(other for other in self.live if other != name))

    def of_job(self) -> str | None:
        """Return the store of the running job, if it is a job of this app."""
        job = JOB.get()
        if job is None or job.store_name is None or job.store_name not in self._stores:
            return None
        running = job.declared
        ours = running.name in self._registry and self._registry.get(running.name) is running
        return job.store_name if ours else None

    def place(self, declared: Declared | None, given: str | None, tenant: str | None) -> str:
        """Return the store of a new job or schedule: the first of these that names one.

        The call itself, ``at_store``, the ``using_store`` block, the task, ``store_for``, the running job, the default.
        """
        if given is not None and self.shards is None:
            return self.live_name(given)
        if self.is_single:
            return self.default
        if self.shards is not None:
            return self._sharded(declared, given, tenant or current_tenant() or self._tenant)
        chosen = self.fixed or current_store(self._registry)
        if chosen is None and declared is not None:
            chosen = declared.options.store
        if chosen is None and self._store_for is not None:
            chosen = self._routed(tenant or current_tenant() or self._tenant)
        return self.live_name(chosen or self.of_job() or self.default)

    def _sharded(self, declared: Declared | None, given: str | None, tenant: str) -> str:
        """Return the shard of a tenant, unless a store that is no shard was chosen."""
        assert self.shards is not None
        chosen = given or self.fixed or current_store(self._registry)
        if chosen is None and declared is not None:
            chosen = declared.options.store
        if chosen is not None and chosen not in self.shards.names:
            return self.live_name(chosen)
        shard = self._collecting_shard(tenant) or self.shards.shard_of(tenant)
        if chosen is not None and chosen != shard:
            raise CrossShard(
                f"tenant {tenant!r} is placed in the shard {shard!r}, and the call names {chosen!r}; leave the store out",
                tenant=tenant,
                shard=shard,
            )
        return shard

    def _collecting_shard(self, tenant: str) -> str | None:
        """Return the store of the running job, if it collects jobs of its own tenant.

        They are written with the end of that job, also if the tenant is moving to another shard.
        """
        job, block = JOB.get(), current_collector()
        if job is None or block is None or block.declared is None or job.tenant != tenant:
            return None
        return self.of_job()

    def _routed(self, tenant: str) -> str | None:
        assert self._store_for is not None
        chosen = self._store_for(tenant)
        if chosen is not None and chosen not in self._stores:
            raise BadSettings(
                f"store_for returned {chosen!r} for tenant {tenant}; there are {', '.join(sorted(self._stores))}",
                tenant=tenant,
            )
        return chosen

    def live_name(self, name: str) -> str:
        """Return the name of a store that jobs may be placed in, or raise ``BadSettings``."""
        if self.existing(name) not in self.live:
            raise BadSettings(
                f"store {name!r} is for archived jobs, and no worker serves it; choose one of {', '.join(self.live)}",
                store=name,
            )
        return name

    # A store without a worker ------------------------------------------------------------------------------------------

    def is_unchecked(self, name: str) -> bool:
        """Whether ``warn_unserved`` has something to do for this store."""
        return not self.is_single and name not in self._checked

    def warn_unserved(self, name: str, now: datetime | None) -> None:
        """Log a warning, once in this process, if no living worker serves a store that has just received a job."""
        with self._lock:
            if name in self._checked:
                return
            self._checked.add(name)
        try:
            store = self._stores[name]
            if has_worker(store.workers(), now or store.now()):
                return
        except StoreError:
            return
        _log.warning(
            "no living worker serves the store %r, in which a job was just placed; start one with"
            " tidemill worker APP --stores %s",
            name,
            name,
        )


def has_worker(workers: Iterable[Worker], now: datetime) -> bool:
    """Whether one of these workers is alive."""
    return any(is_living(worker, now) for worker in workers)
