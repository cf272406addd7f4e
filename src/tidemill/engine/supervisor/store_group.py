"""The stores that a supervisor serves, with one ``StoreLink`` for each.

Each link has its own threads, so a store that fails or does not answer affects only its own runners. A worker of a
single store has exactly one link.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.worker_reports import WorkerReport
from tidemill.engine.store_shares import Wanted, divide, served_stores
from tidemill.engine.supervisor.runner_hooks import RunnerHooks
from tidemill.engine.supervisor.store_link import StoreLink, Told
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings
from tidemill.stores.requests import NO_REPORTS

_log = logging.getLogger("tidemill.worker")

_NO_ADDRESS = (
    "{} keeps its jobs in the memory of its own process, or in a store that was given as an object; a worker needs an address "
    "that other processes can open: App('sqlite:///jobs.db') or App('postgresql://…')"
)
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0  # seconds until a store that refused its worker is opened again


@dataclass(slots=True)
class ServedStore:
    """One store. ``name`` is None for the only store of an app."""

    link: StoreLink
    name: str | None = None
    url: str = ""
    processes: int = 0
    opened: bool = False
    refusal: str | None = None  #: why it cannot be used at present
    retry_at: float = float("inf")
    pause: float = _FIRST_PAUSE

    @property
    def relays(self) -> bool:
        """Whether its runners get their wake-ups from the supervisor.

        That saves connections to a server. A single runner is woken a little sooner by its own.
        """
        return self.url.startswith("postgres") and self.processes > 1

    @property
    def words(self) -> str:
        """The name in messages."""
        return "the store" if self.name is None else f"store {self.name!r}"


class StoreGroup:
    """Opens, watches and closes the links of all stores. Only the supervisor's loop changes it."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        emit: Callable[[Told], None],
        fire_hooks: RunnerHooks,
        report: Callable[[], Mapping[UUID, WorkerReport]] = lambda: NO_REPORTS,
    ) -> None:
        self._settings, self._clock, self._emit, self._report = settings, clock, emit, report
        self.fire_hooks = fire_hooks
        # The first link exists before a runner has named the stores, because stop requests may come first.
        self._stores = [ServedStore(self._new_link())]
        self._tasks: dict[str, Mapping[str, object]] = {}
        self._migrate = False

    def __iter__(self) -> Iterator[ServedStore]:
        return iter(self._stores)

    def _new_link(self, name: str | None = None) -> StoreLink:
        return StoreLink(self._settings, self._clock, self._emit, self.fire_hooks, name, self._report)

    @property
    def several(self) -> bool:
        """Whether the worker serves more than one store."""
        return len(self._stores) > 1

    @property
    def leading(self) -> bool:
        """Whether this process performs the duties of a store."""
        return any(store.link.leading for store in self._stores)

    def of(self, name: str | None) -> ServedStore:
        """Return the store of this name."""
        return next((store for store in self._stores if store.name == name), self._stores[0])

    # Requests ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first link."""
        self._stores[0].link.start()

    def expect(self, scheme: str) -> None:
        """Import the driver of these stores, because the app opens one and is still being imported."""
        self._stores[0].link.expect(scheme)

    def choose(
        self, app: str, hello: Mapping[str, Any], wanted: Wanted, processes: int
    ) -> Sequence[str | None]:
        """Settle which stores are served, from a runner's description of the app; return the store of each place.

        Raises ``BadSettings`` if that is impossible.
        """
        urls: Mapping[str, Any] = hello.get("stores") or {"default": hello.get("store")}
        names = served_stores(hello.get("live") or list(urls), urls, wanted)
        for name in names:
            if not urls[name] or str(urls[name]).startswith("memory:"):
                raise BadSettings(_NO_ADDRESS.format(app if len(urls) == 1 else f"store {name!r} of {app}"))
        first = self._stores[0]
        if len(urls) == 1:
            first.url, first.processes = str(urls[names[0]]), processes
            return [None] * processes
        shares = divide(processes, names, wanted)
        first.name = first.link.name = names[0]
        for name in names[1:]:
            self._stores.append(ServedStore(self._new_link(name), name))
            self._stores[-1].link.start()
        for store in self._stores:
            assert store.name is not None
            store.url, store.processes = str(urls[store.name]), shares[store.name]
        return [name for name in names for _ in range(shares[name])]

    def fits(self, hello: Mapping[str, Any]) -> bool:
        """Whether a later runner describes the same stores."""
        urls: Mapping[str, Any] = hello.get("stores") or {}
        return all(
            store.url == (hello.get("store") if store.name is None else urls.get(store.name))
            for store in self._stores
        )

    def learn(self, tasks: Mapping[str, Mapping[str, object]]) -> None:
        """Record the tasks that a runner described."""
        self._tasks |= tasks
        for store in self._stores:
            store.link.learn(tasks)

    def open(self, *, migrate: bool) -> None:
        """Open every store once it answers."""
        self._migrate = migrate
        for store in self._stores:
            store.link.open(store.url, migrate=migrate)

    def redeploy(self) -> None:
        """Start a new deployment in every store."""
        for store in self._stores:
            store.link.redeploy()

    def look_for_overdue(self) -> None:
        """Read from every store which jobs are past their timeout."""
        for store in self._stores:
            store.link.look_for_overdue()

    # Failures ----------------------------------------------------------------------------------------------------------

    def refuse(self, name: str | None, why: str) -> bool:
        """Record that a store cannot be used, and open it again later. Returns False if no store is left."""
        store = self.of(name)
        store.refusal, store.opened = why, False
        store.retry_at = self._clock.monotonic() + store.pause
        store.link.begin_close()
        _log.error("%s cannot be used, next attempt in %g s: %s", store.words, store.pause, why)
        store.pause = min(store.pause * 2, _LONGEST_PAUSE)
        return any(link.refusal is None for link in self._stores)

    def retry(self) -> None:
        """Open the stores again whose pause is over."""
        now = self._clock.monotonic()
        for store in self._stores:
            if now >= store.retry_at:
                store.retry_at = float("inf")
                store.link.join(0.0)
                store.link = self._new_link(store.name)
                store.link.start()
                store.link.learn(self._tasks)
                store.link.open(store.url, migrate=self._migrate)

    def opened(self, name: str | None) -> ServedStore:
        """Record that a store answers."""
        store = self.of(name)
        if store.refusal is not None:
            _log.info("%s can be used again", store.words)
        store.opened, store.refusal, store.pause = True, None, _FIRST_PAUSE
        return store

    def close(self, seconds: float) -> bool:
        """Close every link. Returns whether that took at most ``seconds``."""
        until = self._clock.monotonic() + seconds
        for store in self._stores:
            store.link.begin_close()
        closed = [store.link.join(max(0.0, until - self._clock.monotonic())) for store in self._stores]
        return all(closed)
