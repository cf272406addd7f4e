"""Embedded workers of several stores, which start and stop together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Self
from uuid import UUID

from tidemill.engine.embedded_worker import EmbeddedWorker, Tick
from tidemill.engine.exchange.planner import RunnerStats, combined_stats
from tidemill.errors import StoreBusy, StoreUnavailable, UsageError

_log = logging.getLogger("tidemill.engine")

_AGAIN = 3.0  # seconds between two attempts to start the worker of a store that does not answer
_OUTAGE = (StoreUnavailable, StoreBusy)


class WorkerGroup(EmbeddedWorker):
    """Runs the jobs of several stores in this process, with one ``EmbeddedWorker`` for each.

    A store that does not answer delays only its own worker. ``make`` creates the worker of a store.
    """

    # It has the interface of an ``EmbeddedWorker`` and none of its parts: those belong to the workers.
    def __init__(self, make: Mapping[str, Callable[[], EmbeddedWorker]]) -> None:
        self._make = dict(make)
        self.workers: dict[str, EmbeddedWorker] = {}  #: those that have started, by store
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._retry: threading.Thread | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores."""
        return tuple(self._make)

    def start(self) -> Self:
        """Start working. Raises only if no store can be used, or if one needs the user: for example, migrations."""
        if self.workers or self._ended.is_set():
            raise UsageError("this worker was already started; create another one")
        missing: dict[str, Exception] = {}
        try:
            for name in self._make:
                try:
                    self._start_worker(name)
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

    def _start_worker(self, name: str) -> None:
        worker = self._make[name]()
        worker.start()
        with self._lock:
            if not self._ended.is_set():
                self.workers[name] = worker
                return
        worker.stop(0.0)

    def _start_late(self, names: list[str]) -> None:
        while names and not self._ended.wait(_AGAIN):
            for name in list(names):
                try:
                    self._start_worker(name)
                except _OUTAGE:
                    continue
                except Exception:  # noqa: BLE001  (the other stores are still served)
                    _log.exception("the worker of the store %r cannot start", name)
                else:
                    _log.info("the worker of the store %r has started", name)
                names.remove(name)

    def stop(self, grace: float | None = None) -> None:
        """Stop all workers at the same time; each lets its jobs finish. Harmless if called twice."""
        self._ended.set()
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
    def id(self) -> UUID | None:
        """The current id of the first store's worker; ``workers`` has those of the others."""
        first = next(iter(self.workers.values()), None)
        return None if first is None else first.id

    def stats(self) -> RunnerStats | None:
        """Return the current figures of all stores together; ``workers`` has those of each."""
        parts = [stats for worker in self.workers.values() if (stats := worker.stats()) is not None]
        return combined_stats(parts) if parts else None

    def tick(self, budget: float) -> Tick:
        """Run due jobs of all stores at the same time, for at most about ``budget`` seconds, then stop.

        Raises the error of a store only if no store could be worked.
        """
        ticks: list[Tick] = []
        errors: list[BaseException] = []

        def act(name: str) -> None:
            try:
                ticks.append(self._make[name]().tick(budget))
            except BaseException as error:  # noqa: BLE001  (the ticks of other stores continue)
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
