"""The client behind all handles and bound tasks: builds, stores and reads jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from tidemill.archive.contents import read_archived
from tidemill.archive.objects import is_file_url, parse_location
from tidemill.archive.places import ArchivePlace, StorePlace
from tidemill.archive.tiers import TierChoice
from tidemill.client.access import carried, who
from tidemill.client.enqueue.routes import Enqueuer
from tidemill.client.own_connection import OwnConnections
from tidemill.client.watch import Waiter
from tidemill.clock import Clock, ManualClock
from tidemill.domain.job import JobRow
from tidemill.domain.limits import Rule
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.retention import ARCHIVE, ArchivedJob
from tidemill.domain.retention_settings import Retention
from tidemill.errors import BadSettings, JobNotFound
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Events
from tidemill.tasks.hooks import Hooks
from tidemill.tasks.registry import Registry

_OF_THE_STORES = (
    "stores", "clock", "enqueuer", "_waiting", "_pool", "_closing", "_file_places",
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
    ) -> None:
        self.tenant = tenant
        self.limits = limits
        self.rules = dict(rules or {})  #: limits that the app itself declares
        self.retention = retention or Retention()
        self.policies = self.retention.effective()  #: which ended jobs leave the live tables, and when
        self.places = dict(places or {})  #: URLs of the stores that hold only archive files
        self.registry = Registry()
        self.events = Events()
        self.hooks = Hooks()
        self._lock = threading.Lock()
        self._use(stores, clock)
        self.connections = OwnConnections(partial(self.store, None))

    def _use(self, stores: Mapping[str, Store], clock: Clock) -> None:
        """Switch to these stores and this clock, and reset everything cached for the previous ones."""
        self.stores = dict(stores)
        self.clock = clock
        self._waiting: dict[str, Waiter] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._closing: list[Callable[[], None]] = []
        self._file_places: dict[str, ArchivePlace] = {}
        self.enqueuer = Enqueuer(self)

    @contextmanager
    def override(self, stores: Mapping[str, Store], clock: Clock) -> Iterator[None]:
        """Use other stores and another clock inside the block.

        On exit the given stores stay open, and the threads that used them stop.
        """
        kept = {name: getattr(self, name) for name in _OF_THE_STORES}
        self._use(stores, clock)
        try:
            yield
        finally:
            try:
                self._end_threads()
            finally:
                vars(self).update(kept)

    # Stores, caches and threads --------------------------------------------------------------------------------------

    def store(self, name: str | None) -> Store:
        """Return the named store; the default for jobs is ``jobs`` if it is configured, else ``default``."""
        wanted = name or ("jobs" if "jobs" in self.stores else "default")
        try:
            return self.stores[wanted]
        except KeyError:
            if wanted in self.places:
                raise BadSettings(
                    f"store {wanted!r} holds archive files only ({self.places[wanted]}); "
                    "give live jobs a database, such as sqlite:///jobs.db",
                    store=wanted,
                ) from None
            raise BadSettings(
                f"there is no store named {wanted!r}; there are {', '.join(sorted(self.stores))}"
            ) from None

    def place(self, name: str) -> ArchivePlace:
        """Return the place of archived jobs with the name of a store, or with the URL of a directory or a bucket.

        Without a store ``archive``, that name stands for the jobs' own store.
        """
        url = self.places.get(name, name)
        if is_file_url(url):
            return self._file_place(url)
        return StorePlace(self.store(None if name == ARCHIVE and ARCHIVE not in self.stores else name))

    def _file_place(self, url: str) -> ArchivePlace:
        with self._lock:
            found = self._file_places.get(url)
            if found is None:
                from tidemill.archive.files import FilePlace  # few processes need it

                found = self._file_places[url] = FilePlace(url, self.store(None))
            return found

    def archive_places(self, choice: TierChoice = EVERYWHERE) -> list[ArchivePlace]:
        """Return the places of archived jobs that a choice of tiers covers: tables first, then files.

        The files are those of the app, of its policies, and of the catalogue.
        """
        targets = [policy.to for policy in self.policies if policy.to is not None]
        found: list[ArchivePlace] = []
        if choice.tables:
            stores = [self.store(None)]
            for name in (ARCHIVE, *targets):
                if name in self.stores and not any(self.stores[name] is other for other in stores):
                    stores.append(self.stores[name])
            found += [StorePlace(store) for store in stores]
        if choice.files:
            urls = [*self.places.values(), *(target for target in targets if is_file_url(target))]
            known = {parse_location(url).url for url in urls}
            urls += [url for url in self.store(None).archive_places() if url not in known]
            found += [self._file_place(url) for url in dict.fromkeys(urls)]
        return found

    @property
    def pin(self) -> datetime | None:
        """The time to pass to a store: None for the store's own clock, unless the client has a manual clock."""
        return self.clock.now() if isinstance(self.clock, ManualClock) else None

    def waiting(self, name: str | None) -> Waiter:
        """Return the watcher of jobs in that store."""
        with self._lock:
            key = name or ""
            found = self._waiting.get(key)
            if found is None:
                found = self._waiting[key] = Waiter(self.store(name))
            return found

    def executor(self) -> ThreadPoolExecutor:
        """Return the thread pool that runs store calls for coroutines."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(8, thread_name_prefix="tidemill-client")
            return self._pool

    async def in_thread(self, act: Any, *args: Any) -> Any:
        """Run a store call in a thread and await it, with the caller's tenant and identity."""
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

    def publish_acts(self, name: str, jobs: Iterable[JobRow], **data: object) -> None:
        """Publish an action of a person or a program on these jobs, each with its current state."""
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
        found = self.store(store).get([id], tenant=tenant)
        if found:
            return found[0]
        kept = self.archived(id, tenant=tenant, store=store)
        if kept is None:
            raise JobNotFound(f"there is no job {id}", id=id)
        return read_archived(kept)

    def archived(self, id: UUID, *, tenant: str, store: str | None) -> ArchivedJob | None:
        """Return the archived copy of a job, if any: from the archive tables, then from files."""
        places = self.archive_places(TierChoice(tables=True))
        if store is not None:
            places.insert(0, StorePlace(self.store(store)))
        for place in places:
            if copies := place.get([id], tenant=tenant):
                return copies[0]
        # Only now, because a file place may need a network.
        for place in self.archive_places(TierChoice(files=True)):
            if copies := place.get([id], tenant=tenant):
                return copies[0]
        return None

    def at_close(self, act: Callable[[], None]) -> None:
        """Register a function that ``close`` calls first, for components that use the client in their own threads."""
        self._closing.append(act)

    def close(self) -> None:
        """Stop the threads and close the stores."""
        self._end_threads()
        for store in self.stores.values():
            store.close()

    def _end_threads(self) -> None:
        for act in self._closing:
            act()
        for waiting in list(self._waiting.values()):
            waiting.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def client_of(app: HasClient) -> Client:
    """Return the client of an app, for the command line, the HTTP API, the dashboard and tests of internals."""
    return app._client
