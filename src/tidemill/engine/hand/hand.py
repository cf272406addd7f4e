"""A hand: a worker that reaches the database through a hub."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.engine.completion import Connections
from tidemill.engine.duty import Duties
from tidemill.engine.embedded_worker import EmbeddedWorker
from tidemill.engine.executors.kinds import PROCESS, kind_of
from tidemill.engine.hand.claimer import HandClaimer
from tidemill.engine.listener import WakeupListener
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.hub.store import HubStore
from tidemill.tasks.events import Events
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.registry import Registry


class Hand(EmbeddedWorker):
    """A worker on the store of a hand: it performs no duties, and its id belongs to its key."""

    _make_claimer = HandClaimer

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        settings: WorkerSettings,
        *,
        events: Events | None = None,
        hooks: Hooks = NO_HOOKS,
        connections: Connections | None = None,
    ) -> None:
        if not isinstance(store, HubStore):
            raise BadSettings("a hand needs a hub; give its wire, such as nats://broker/shop")
        self._hub = store
        super().__init__(
            store, registry, clock, settings, events=events, hooks=hooks, connections=connections
        )

    def _new_worker_id(self) -> UUID:
        return self._hub.new_worker_id()

    def duties(self, listener: WakeupListener | None) -> Duties:
        """None: they need the database."""
        return self._none(listener)

    def duties_here(self, listener: WakeupListener | None) -> Duties:
        """None: they need the database."""
        return self._none(listener)

    def _none(self, listener: WakeupListener | None) -> Duties:
        return Duties(
            self._store,
            self._clock,
            new_id(),
            [],
            coordination=Coordination.EVERYONE,
            random=Random(),  # noqa: S311  (spreads load, keeps no secret)
            listener=listener,
        )

    def describe(self) -> Mapping[str, object]:
        """The configuration of the hand, for its announcement."""
        return {
            "wire": self._store.url,
            "worker": str(self.id),
            "tasks": sorted(task.name for task in self._registry if kind_of(task) != PROCESS),
            "queues": list(self._settings.queues or ()),
            "slots": self._settings.concurrency + self._settings.threads,
        }
