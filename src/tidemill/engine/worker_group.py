"""Embedded workers of several stores, which start and stop together."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self
from uuid import UUID

from tidemill.engine.embedded_worker import EmbeddedWorker, Tick
from tidemill.engine.exchange.planner import RunnerStats
from tidemill.errors import StoreBusy, StoreUnavailable, UsageError

_log = logging.getLogger("tidemill.engine")

_AGAIN = 3.0  # seconds between two attempts to start the worker of a store that does not answer
_OUTAGE = (StoreUnavailable, StoreBusy)


class WorkerGroup:
    """Runs the jobs of several stores in this process, with one ``EmbeddedWorker`` for each.

    A store that does not answer delays only its own worker. ``make`` creates the worker of a store.
    """

    def __init__(self, make: Mapping[str, Callable[[], EmbeddedWorker]]) -> None:
        self._make = dict(make)
        self.workers: dict[str, EmbeddedWorker] = {}  #: those that have started, by store
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._retry: threading.Thread | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores."""
        return tuple(self._make)

    def start(self) -> Self:
        """Start working. Raises only if no store can be used, or if one needs the user: for example, migrations."""
        if self.workers or self._over.is_set():
            raise UsageError("this worker was already started; create another one")
        missing: dict[str, Exception] = {}
        try:
            for name in self._make:
                try:
                    self._begin(name)
                except _OUTAGE as outage:
                    missing[name] = outage
            if not self.workers:
                raise next(iter(missing.values()))
        except BaseException:
            self.stop(0.0)
            raise
        if missing:
            for name, error in missing.items():
                _log.warning("the worker of the store %r waits for it: %s", name, error)
            self._retry = threading.Thread(
                target=self._start_late, args=[list(missing)], name="tidemill-late-stores", daemon=True
            )
            self._retry.start()
        return self

    def _begin(self, name: str) -> None:
        worker = self._make[name]()
        worker.start()
        with self._lock:
            if not self._over.is_set():
                self.workers[name] = worker
                return
        worker.stop(0.0)

    def _start_late(self, names: list[str]) -> None:
        while names and not self._over.wait(_AGAIN):
            for name in list(names):
                try:
                    self._begin(name)
                except _OUTAGE:
                    continue
                except Exception:  # noqa: BLE001  (the other stores are still served)
                    _log.exception("the worker of the store %r cannot start", name)
                else:
                    _log.info("the worker of the store %r has started", name)
                names.remove(name)

    def stop(self, grace: float | None = None) -> None:
        """Stop all workers at the same time; each lets its jobs finish. Harmless if called twice."""
        self._over.set()
        if self._retry is not None:
            self._retry.join()
        with self._lock:
            workers = list(self.workers.values())
        ending = [
            threading.Thread(target=worker.stop, args=[grace], name="tidemill-stop") for worker in workers
        ]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    @property
    def ids(self) -> dict[str, UUID | None]:
        """The current id of the worker of each store."""
        return {name: worker.id for name, worker in self.workers.items()}

    def stats(self) -> dict[str, RunnerStats | None]:
        """Return the current figures of each store."""
        return {name: worker.stats() for name, worker in self.workers.items()}

    def tick(self, budget: float) -> Tick:
        """Run due jobs of all stores at the same time, for at most about ``budget`` seconds, then stop.

        Raises the error of a store only if no store could be worked.
        """
        ticks: list[Tick] = []
        errors: list[BaseException] = []

        def act(name: str) -> None:
            try:
                ticks.append(self._make[name]().tick(budget))
            except BaseException as error:  # noqa: BLE001  (another store's tick goes on)
                _log.warning("the jobs of the store %r were not run: %s", name, error)
                errors.append(error)

        threads = [
            threading.Thread(target=act, args=[name], name=f"tidemill-tick-{name}") for name in self._make
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not ticks:
            raise errors[0]
        return Tick(sum(tick.processed for tick in ticks), sum(tick.errors for tick in ticks))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
