"""``app.shards``: the shards of an app, and the tenants in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidemill.client._base import StoreApi, async_twin
from tidemill.client.access import note
from tidemill.client.stats.loads import is_living
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.errors import BadSettings, TidemillError
from tidemill.shards.move import MoveProgress, TenantMove

if TYPE_CHECKING:
    from tidemill.shards.map import ShardMap

COUNTED = 10_000
"""Maximum number of waiting jobs that are counted in each shard."""


class ShardStatus(NamedTuple):
    """A shard of an app. ``code`` is the error code if it does not answer; its figures are zero then."""

    name: str
    url: str  #: without a password
    weight: float  #: share of the new tenants; 0 for the home store if it is no shard
    is_open: bool  #: whether it gets new tenants
    is_home: bool  #: whether it has the placements and the app's own tenant
    tenants: int
    workers: int  #: living ones
    waiting: int  #: pending jobs, at most ``COUNTED``
    code: str | None = None


class Shards(StoreApi):
    """The shards of an app, and the placements of its tenants."""

    @property
    def _map(self) -> ShardMap:
        shards = self._client.placement.shards
        if shards is None:
            raise BadSettings(
                "this app has no shards; give it some: App(url, shards={'eu': 'postgresql://…'})",
                setting="shards",
            )
        return shards

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stores that tenants may be in, the home store first; none for an app without shards."""
        shards = self._client.placement.shards
        return () if shards is None else shards.names

    def list(self) -> Sequence[ShardStatus]:
        """Return every shard with its tenants, workers and waiting jobs, the home store first."""
        shards = self._map
        tenants = Counter(row.shard for row in shards.rows())
        return [self._status(name, tenants[name]) for name in shards.names]

    alist = async_twin(list)  # noqa: A003  (the method above)

    def _status(self, name: str, tenants: int) -> ShardStatus:
        shards, store = self._map, self._client.stores[name]
        workers, waiting, code = 0, 0, None
        try:
            now = store.now()
            workers = sum(is_living(worker, now) for worker in store.workers())
            waiting = store.depth(most=COUNTED)
        except TidemillError as error:
            code = error.code
        weights = shards.weights
        return ShardStatus(
            name,
            store.url,
            weights.get(name, 0.0),
            name in weights,
            name == shards.home,
            tenants,
            workers,
            waiting,
            code,
        )

    def placements(self) -> Sequence[TenantPlacement]:
        """Return the shard of every tenant that has one, by tenant."""
        return self._map.rows()

    aplacements = async_twin(placements)

    def of(self, tenant: str) -> TenantPlacement:
        """Return the shard of a tenant; a tenant without one is in the home store, and is not placed by this call."""
        return self._map.find(tenant)

    aof = async_twin(of)

    def place(self, tenant: str, shard: str | None = None) -> TenantPlacement:
        """Place a new tenant, in this shard if one is given. The placement of a known tenant is returned unchanged."""
        return self._map.place(tenant, shard)

    aplace = async_twin(place)

    def move(
        self, tenant: str, to: str, *, report: Callable[[MoveProgress], object] | None = None
    ) -> TenantPlacement:
        """Move a tenant to another shard while the app runs; return its placement when the move has ended.

        Jobs that have not begun are carried; those that have begun end in the old shard, and the new one starts no job of the
        tenant before that. Call it again with the same shard to continue a move that was interrupted. ``report`` is called with
        the progress after each lot of jobs.

        Raises ``TenantMoving`` while another move of the tenant is under way, and ``UsageError`` for a tenant that cannot
        move: the app's own, or one with live flows, suspended jobs, or schedules that react to events.
        """
        move = TenantMove(self._map, self._client.stores, tenant)
        row, is_new = move.begin(to)
        if is_new:
            self._note("tenant.move_started", row, {"from": row.shard, "to": to})
        row = move.run(to, report)
        self._note("tenant.moved", row, {"to": to})
        return row

    amove = async_twin(move)

    def cancel_move(self, tenant: str) -> TenantPlacement:
        """Take back a move that has not sent new jobs to the new shard yet; return the placement.

        Raises ``TenantMoving`` after that, or while a process is performing the move.
        """
        row = TenantMove(self._map, self._client.stores, tenant).cancel()
        self._note("tenant.move_cancelled", row, {"stays_in": row.shard})
        return row

    acancel_move = async_twin(cancel_move)

    def _note(self, action: str, row: TenantPlacement, after: dict[str, object]) -> None:
        note(self._store, action, f"tenant:{row.tenant}", row.tenant, after=after)
