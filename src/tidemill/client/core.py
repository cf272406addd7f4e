"""The client behind all handles and bound tasks: builds, stores and reads jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import copy
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID
from weakref import WeakSet

from tidemill.archive.contents import read_archived
from tidemill.archive.objects import is_file_url, parse_location
from tidemill.archive.places import ArchivePlace, StorePlace
from tidemill.archive.tiers import TierChoice
from tidemill.client.access import carried, who
from tidemill.client.enqueue.options import CallOptions, Template
from tidemill.client.enqueue.routes import Enqueuer
from tidemill.client.own_connection import OwnConnections
from tidemill.client.placement import Placement, StoreFor, default_name
from tidemill.client.watch import Waiter
from tidemill.clock import Clock, ManualClock
from tidemill.delivery.batch_handler import BatchHandler
from tidemill.delivery.durable import DurableHandler
from tidemill.delivery.live import LiveSubscription
from tidemill.delivery.settings import DeliverySettings
from tidemill.domain.decide import MOVE_EVENTS
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.limits import Rule
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.record import Record
from tidemill.domain.retention import ARCHIVE, ArchivedJob
from tidemill.domain.retention_settings import Retention
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.subscriptions import TOPIC, NewEvent, dump_data, row_event
from tidemill.errors import BadSettings, JobNotFound, StoreError, StoreUnavailable
from tidemill.shards.absence import note_missing
from tidemill.shards.settings import ALL_SHARDS, ShardSettings
from tidemill.stores.base import Store
from tidemill.stores.standby_reads import StandbyReads
from tidemill.tasks.ambient import current_tenant
from tidemill.tasks.events import Event, Events
from tidemill.tasks.hooks import AllHooks
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.delivery.intake import IntakeRule
    from tidemill.shards.fan_out import FanOut
    from tidemill.shards.map import ShardMap

_OF_THE_STORES = (
    "stores", "clock", "placement", "enqueuer", "_waiting", "_pool", "_closing", "_file_places", "_routed", "_routed_reads",
    "_fan_out", "_shard_map",
)  # fmt: skip
"""Attributes of a client that depend on its stores and its clock."""


EVERYWHERE = TierChoice(tables=True, files=True)


class HasClient(Protocol):
    """An app, as the layers above the client see it."""

    _client: Client


class Client:
    """Stores and tasks by name, and the operations that connect them."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        *,
        clock: Clock,
        tenant: str,
        limits: PayloadLimits,
        rules: Mapping[str, Rule] | None = None,
        retention: Retention | None = None,
        places: Mapping[str, str] | None = None,
        store_for: StoreFor | None = None,
        logging: tuple[int | None, bool] = (None, False),
        delivery: DeliverySettings | None = None,
        shards: ShardSettings | None = None,
    ) -> None:
        self._shards = shards
        self.delivery = delivery or DeliverySettings()  #: channels, owners and rules of notifications
        self.durable: dict[str, DurableHandler] = {}  #: handlers of durable subscriptions by name
        self.intakes: list[IntakeRule] = []  #: queues of a broker whose messages become jobs
        self._tenant = tenant
        #: returns the tenant that a framework works for, or None; for calls outside of jobs and tenant blocks
        self.tenant_source: Callable[[], str | None] | None = None
        self.limits = limits
        self.rules = dict(rules or {})  #: limits that the app itself declares
        self.retention = retention or Retention()
        self.places = dict(places or {})  #: URLs of the stores that hold only archive files
        self.registry = Registry()
        self.events = Events()
        self.events.record = self.record_event
        self.hooks = AllHooks.create()
        self.hooks.find_schedule = self._schedule
        self.hooks.set_logging(logging[0], log_jobs=logging[1])
        self.hooks.site_url = self.delivery.url
        self.store_for = store_for
        self.is_closed = False
        #: returns the user's connection whose transaction a call without ``connection=`` joins, or None
        self.open_transaction: Callable[[], object | None] | None = None
        self._lock = threading.Lock()
        self.live: WeakSet[LiveSubscription] = WeakSet()  #: subscriptions to events of all processes
        self._standbys: dict[str, StandbyReads] = {}
        self._is_view = False
        self._views: WeakSet[Client] = WeakSet()
        self._use(stores, clock)
        self.connections = OwnConnections(partial(self.store, None))

    def template(self, declared: Declared, call: CallOptions, tenant: str | None = None) -> Template:
        """Return the common part of a call's jobs. A task of another environment is refused here, once per call."""
        self.registry.check_environment(declared)
        tenant = tenant or call.tenant or current_tenant() or self.tenant
        return Template(declared, call, tenant=tenant, limits=self.limits, clock=self.clock)

    @property
    def tenant(self) -> str:
        """The tenant of calls that name none, outside of jobs and tenant blocks."""
        return self._tenant if self.tenant_source is None else self.tenant_source() or self._tenant

    def current_tenant(self) -> str:
        """The tenant of a call that names none: that of the block or the job around it, else the client's."""
        return current_tenant() or self.tenant

    def _use(
        self,
        stores: Mapping[str, Store],
        clock: Clock,
        fixed: str | None = None,
        shard_map: ShardMap | None = None,
    ) -> None:
        """Switch to these stores and this clock, and reset everything cached for the previous ones."""
        self.stores = dict(stores)
        self.clock = clock
        self._shard_map = shard_map or self._read_shards()
        self.declare_durable()
        self.placement = self._placement(fixed)
        self._fan_out: FanOut | None = None
        self._routed: Store | None = None
        self._routed_reads: Store | None = None
        if (shards := self.placement.shards) is not None:
            from tidemill.shards.fan_out import FanOut
            from tidemill.shards.store import ShardedStore

            self._fan_out = FanOut()
            self._routed = ShardedStore(shards, self.stores.__getitem__, self._fan_out).as_store()
            self._routed_reads = ShardedStore(shards, self.reader, self._fan_out).as_store()
        self._waiting: dict[str, Waiter] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._closing: list[Callable[[], None]] = []
        self._file_places: dict[tuple[str, str], ArchivePlace] = {}
        self.enqueuer = Enqueuer(self)

    def _placement(self, fixed: str | None = None) -> Placement:
        return Placement(
            self.stores,
            self.registry,
            self._tenant,
            self.store_for,
            fixed,
            self.places,
            shards=self._shard_map,
        )

    def _read_shards(self) -> ShardMap | None:
        if self._shards is None:
            return None
        from tidemill.shards.map import ShardMap  # few apps have shards

        return ShardMap(self._shards, self.stores, default_name(self.stores), self._tenant, self.clock)

    def read_from(self, standbys: Mapping[str, Store]) -> None:
        """Let these standbys answer reports, by the name of the store; the client closes them."""
        for reads in self._standbys.values():
            reads.close()
        self._standbys = {
            name: StandbyReads(self.stores[name], standby, self.clock) for name, standby in standbys.items()
        }

    def reader(self, name: str | None) -> Store:
        """Return the store that answers lists and statistics: the named one, its standby, or all shards."""
        name = self.store_name(name)
        if name == ALL_SHARDS:
            assert self._routed_reads is not None
            return self._routed_reads
        reads = self._standbys.get(name)
        if reads is None or reads.primary is not self.stores[name]:
            return self.stores[name]
        return reads.reader(who())

    def configure(
        self,
        stores: Mapping[str, Store] | None,
        *,
        tenant: str | None,
        limits: PayloadLimits,
        rules: Mapping[str, Rule],
        retention: Retention,
        store_for: StoreFor | None,
        places: Mapping[str, str] | None = None,
        logging: tuple[int | None, bool] = (None, False),
        delivery: DeliverySettings | None = None,
        shards: ShardSettings | None = None,
    ) -> None:
        """Change the settings. If stores are given, close the previous ones and use the new ones."""
        self._shards = shards
        self._tenant = self._tenant if tenant is None else tenant
        self.limits, self.rules, self.store_for = limits, dict(rules), store_for
        self.retention = retention
        self.delivery = delivery or self.delivery
        self.hooks.set_logging(logging[0], log_jobs=logging[1])
        self.hooks.site_url = self.delivery.url
        if stores is not None:
            self.close()
            self.is_closed = False
            self.places = dict(places or {})
            self._use(stores, self.clock)
        else:
            # These have cached the previous settings.
            self._shard_map = self._read_shards()
            self.placement = self._placement()
            self.enqueuer = Enqueuer(self)

    def end_services(self) -> None:
        """Close the APIs and dashboards that use this client."""
        while self._closing:
            self._closing.pop()()

    @property
    def is_served(self) -> bool:
        """Whether an API or a dashboard uses this client."""
        return bool(self._closing)

    @contextmanager
    def override(self, stores: Mapping[str, Store], clock: Clock) -> Iterator[None]:
        """Use other stores and another clock inside the block.

        On exit the given stores stay open, and the threads that used them stop.
        """
        parts = {name: getattr(self, name) for name in _OF_THE_STORES}
        self._use(stores, clock, self.placement.fixed)
        try:
            with ExitStack() as views:
                for view in list(self._views):
                    views.enter_context(view.override(stores, clock))
                yield
        finally:
            try:
                self._end_threads()
            finally:
                vars(self).update(parts)

    # Stores, caches and threads --------------------------------------------------------------------------------------

    def at(self, name: str) -> Client:
        """Return a client for the same app whose calls address this store. It is closed with this client."""
        view = copy(self)
        view._lock, view._views, view._is_view = threading.Lock(), WeakSet(), True
        view._use(self.stores, self.clock, self.placement.existing(name), self._shard_map)
        view.connections = OwnConnections(partial(view.store, None))
        self._views.add(view)
        return view

    def store_name(self, name: str | None, tenant: str | None = None) -> str:
        """Return the name of this store, or of the one that calls address here.

        In an app with shards that is ``"*"`` for all shards, or with a tenant the shard of that tenant.
        """
        if name is None:
            return self.placement.current(tenant)
        if name == ALL_SHARDS:
            return self.placement.routed(tenant)
        if name in self.places:
            raise BadSettings(
                f"store {name!r} holds archive files only ({self.places[name]}); "
                "give live jobs a database, such as sqlite:///jobs.db",
                store=name,
            )
        return self.placement.existing(name)

    def store(self, name: str | None, tenant: str | None = None) -> Store:
        """Return the named store, or the one that calls address here; with a tenant, in an app with shards, its shard."""
        name = self.store_name(name, tenant)
        if name == ALL_SHARDS:
            assert self._routed is not None
            return self._routed
        return self.stores[name]

    def missing_shards(self) -> tuple[str, ...]:
        """Return the shards that lists and statistics leave out at the moment, if calls address all shards here."""
        return () if self._fan_out is None or self.placement.fixed is not None else self._fan_out.missing

    def place_of_call(self, declared: Declared, call: CallOptions) -> str:
        """Return the name of the store that the jobs of a call go to."""
        return self.placement.place(declared, call.store, call.tenant or self.current_tenant())

    def place_of(self, tenant: str) -> str:
        """Return the store of new rows of a tenant that belong to no task, such as flows; a new tenant gets a shard."""
        if self.placement.shards is None:
            return self.store_name(None)
        return self.placement.place(None, None, tenant)

    def each_store(self) -> list[Client]:
        """Return a client for each store with tenants if calls address all shards here, else nothing."""
        if self.store_name(None) != ALL_SHARDS:
            return []
        return [self.at(name) for name in self.placement.live]

    def _schedule(self, id: UUID, store: str | None) -> ScheduleRow | None:
        """Return a schedule for integrations; None if it is gone or the store does not answer."""
        try:
            return next(iter(self.store(store).schedules(tenant=ALL_TENANTS, ids=[id])), None)
        except StoreError:
            return None

    def place(self, name: str) -> ArchivePlace:
        """Return the place of archived jobs with the name of a store, or with the URL of a directory or a bucket.

        Without a store ``archive``, that name stands for the jobs' own store.
        """
        url = self.places.get(name, name)
        if is_file_url(url):
            return self._file_place(url, self.placement.concrete(self.store_name(None)))
        return StorePlace(self.store(None if name == ARCHIVE and ARCHIVE not in self.stores else name))

    def _file_place(self, url: str, store: str) -> ArchivePlace:
        """Return the files at a URL; the store has their catalogue."""
        with self._lock:
            place = self._file_places.get((url, store))
            if place is None:
                from tidemill.archive.files import FilePlace  # few processes need it

                place = self._file_places[url, store] = FilePlace(url, self.stores[store])
            return place

    def archive_places(
        self, choice: TierChoice = EVERYWHERE, *, store: str | None = None
    ) -> list[ArchivePlace]:
        """Return the places of archived jobs that a choice of tiers covers: tables first, then files.

        The files are those of the app, of its policies, and of the catalogue. The jobs are those of ``store``.
        """
        name = self.store_name(store)
        if name == ALL_SHARDS:
            return [place for one in self.placement.live for place in self.archive_places(choice, store=one)]
        targets = [policy.to for policy in self.retention.policies if policy.to is not None]
        places: list[ArchivePlace] = []
        if choice.tables:
            stores = [self.stores[name]]
            for target in (ARCHIVE, *targets):
                if target in self.stores and not any(self.stores[target] is other for other in stores):
                    stores.append(self.stores[target])
            places += [StorePlace(store) for store in stores]
        if choice.files:
            urls = [*self.places.values(), *(target for target in targets if is_file_url(target))]
            listed = {parse_location(url).url for url in urls}
            urls += [url for url in self.stores[name].archive_places() if url not in listed]
            places += [self._file_place(url, name) for url in dict.fromkeys(urls)]
        return places

    @property
    def pin(self) -> datetime | None:
        """The time to pass to a store: None for the store's own clock, unless the client has a manual clock."""
        return self.clock.now() if isinstance(self.clock, ManualClock) else None

    def waiting(self, name: str | None) -> Waiter:
        """Return the watcher of jobs in that store."""
        with self._lock:
            key = self.store_name(name)
            waiter = self._waiting.get(key)
            if waiter is None:
                waiter = self._waiting[key] = Waiter(self.store(key))
            return waiter

    def executor(self) -> ThreadPoolExecutor:
        """Return the thread pool that runs store calls for coroutines."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(8, thread_name_prefix="tidemill-client")
            return self._pool

    async def in_thread(self, act: Any, *args: Any) -> Any:
        """Run a store call in a thread and await it, with the caller's tenant, store and identity."""
        return await asyncio.get_running_loop().run_in_executor(self.executor(), carried(act), *args)

    # Limits and events -------------------------------------------------------------------------------------------------

    @property
    def declares_limits(self) -> bool:
        """Whether a task or the app itself declares a limit."""
        return self.enqueuer.limits(None).declares(self.registry)

    def declare_limits(self, *, change: bool = True) -> list[str]:
        """Store the limits that the tasks and the app declare.

        Returns the names of stored limits that differ and were left unchanged.
        """
        return self.enqueuer.limits(None).declare(self.registry, change=change)

    def declare_durable(self) -> None:
        """Record the events of this app's durable subscriptions in all its stores."""
        declared = [handler.subscription for handler in self.durable.values()]
        for store in self.stores.values():
            store.declare_subscriptions(declared)

    def record_event(self, event: Event) -> None:
        """Record an event that a user publishes, for the subscriptions that want it."""
        store = self.store(None)
        if store.subscriptions:
            self._append(
                store,
                [
                    NewEvent(
                        event.name, event.job_id, event.task, event.tenant, event.state, dump_data(event.data)
                    )
                ],
            )

    def _append(self, store: Store, events: Sequence[NewEvent]) -> None:
        if store.append_events(events, now=self.pin):
            store.notify([TOPIC])

    def publish_acts(self, name: str, jobs: Iterable[JobRow], **data: object) -> None:
        """Publish an action of a person or a program on these jobs, each with its current state."""
        store = self.store(None)
        if store.subscriptions and name not in MOVE_EVENTS:
            jobs = list(jobs)
            self._append(store, [row_event(name, job, {"by": who(), **data}) for job in jobs])
        if self.events.wanted:
            now, by = self.clock.now(), who()
            for job in jobs:
                data_with_actor = {"by": by, **data}
                self.events.publish(
                    Event(name, now, job.id, job.task, job.tenant, job.state, data_with_actor)
                )

    # Reading ---------------------------------------------------------------------------------------------------------

    def get(self, id: UUID, *, tenant: str, store: str | None) -> JobRow:
        """Return the job with that id, live or archived, or raise ``JobNotFound``."""
        return self.find(id, tenant=tenant, store=store)[0]

    def find(self, id: UUID, *, tenant: str, store: str | None) -> tuple[JobRow, str]:
        """Return a job, live or archived, and the name of its store.

        Without a name, the store that calls address is searched first, then the other live ones in their order.
        """
        return self.find_in(self.search_order(store, tenant), id, tenant=tenant)

    def find_in(self, names: Sequence[str], id: UUID, *, tenant: str) -> tuple[JobRow, str]:
        """Return a job of one of these stores, live or archived, and the name of its store."""
        away: dict[str, StoreError] = {}
        for name in names:
            with self._tolerated(name, away):
                rows = self.stores[name].get([id], tenant=tenant)
                if rows:
                    return rows[0], name
        for name in names:
            with self._tolerated(name, away):
                archived = self.archived(id, tenant=tenant, store=name)
                if archived is not None:
                    return read_archived(archived), name
        for error in away.values():
            raise StoreUnavailable(
                f"job {id} is in none of the shards that answer; without an answer: {', '.join(away)} ({error})",
                id=id,
            ) from error
        raise JobNotFound(f"there is no job {id}{self._unrecorded()}", id=id)

    @contextmanager
    def _tolerated(self, name: str, away: dict[str, StoreError]) -> Iterator[None]:
        """Let a search among shards continue when one of them does not answer."""
        if self.placement.shards is None:
            yield
            return
        try:
            yield
        except StoreError as error:
            away[name] = error
            note_missing([name])

    def search_order(self, store: str | None = None, tenant: str = ALL_TENANTS) -> tuple[str, ...]:
        """Return the stores in which a job of a tenant is looked up: the named one, its shards, or all live ones."""
        if self.placement.shards is not None and store in (None, ALL_SHARDS):
            if self.placement.current() == ALL_SHARDS:
                return self.placement.search_order(tenant)
            store = None
        if store is None and self.placement.is_single:
            return (self.placement.default,)
        if store is not None or self.placement.fixed is not None or self.placement.is_single:
            return (self.store_name(store),)
        return self.placement.nearest(self.store_name(None))

    def _unrecorded(self) -> str:
        """Return the reason why a job that existed may be gone: some tasks keep nothing of jobs that succeed."""
        names = [task.name for task in self.registry if task.options.record is Record.NONE]
        if not names:
            return ""
        more = f" and {len(names) - 3} more tasks" if len(names) > 3 else ""
        return f"; completed jobs of {', '.join(names[:3])}{more} leave nothing behind (record='none')"

    def archived(self, id: UUID, *, tenant: str, store: str | None) -> ArchivedJob | None:
        """Return the archived copy of a job, if any: from the archive tables, then from files."""
        for place in self.archive_places(TierChoice(tables=True), store=store):
            if copies := place.get([id], tenant=tenant):
                return copies[0]
        # Only now, because a file place may need a network.
        for place in self.archive_places(TierChoice(files=True), store=store):
            if copies := place.get([id], tenant=tenant):
                return copies[0]
        return None

    def at_close(self, act: Callable[[], None]) -> None:
        """Register a function that ``close`` calls first, for components that use the client in their own threads."""
        self._closing.append(act)

    def close(self) -> None:
        """Stop the threads and close the stores."""
        self.is_closed = True
        self._end_threads()
        if not self._is_view:
            for store in self.stores.values():
                store.close()
            for reads in self._standbys.values():
                reads.close()

    def _end_threads(self) -> None:
        for view in list(self._views):
            view._end_threads()
        for act in self._closing:
            act()
        for waiting in list(self._waiting.values()):
            waiting.close()
        for live in list(self.live):
            live.close()
        for durable in self.durable.values():
            if isinstance(durable.handler, BatchHandler):
                durable.handler.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._fan_out is not None:
            self._fan_out.close()


def client_of(app: HasClient) -> Client:
    """Return the client of an app, for the command line, the HTTP API, the dashboard and tests of internals."""
    return app._client
