"""Jobs whose stored arguments this worker's code cannot read.

A separate thread reads a job's history, so that no job and no claim waits for it. Each task is logged once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution
from tidemill.domain.misfits import tried
from tidemill.domain.outcome import Misfit
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

_BATCH = 100
_CLOSING = 2.0  # seconds

Item = tuple[HeldJob, ExecutionEnd, Misfit]


class Misfits:
    """Adds the job's history to each misfit outcome and passes it to ``on_ended``."""

    def __init__(
        self, store: Store, wait: timedelta, on_ended: Callable[[HeldJob, ExecutionEnd], None]
    ) -> None:
        self._store, self._wait, self._on_ended = store, wait, on_ended
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._warned: set[str] = set()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def takes(self, held: HeldJob, ended: ExecutionEnd | None) -> bool:
        """Queue the job if its outcome is a misfit, and return whether it was.

        ``on_ended`` receives the completed outcome later.
        """
        if ended is None or type(ended.outcome) is not Misfit:
            return False
        self._items.put((held, ended, ended.outcome))
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemill-misfits", daemon=True)
                self._thread.start()
        return True

    def close(self) -> None:
        """End the thread. The next worker handles jobs that are still queued here."""
        self._items.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSING)

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            batch = [item]
            while len(batch) < _BATCH and not self._items.empty():
                following = self._items.get()
                if following is None:
                    self._items.put(None)
                    break
                batch.append(following)
            self._complete(batch)

    def _complete(self, batch: Sequence[Item]) -> None:
        history = self._history([held.claim.id for held, _, _ in batch])
        for held, ended, misfit in batch:
            known = tried(history[held.claim.id], held.claim.token)
            self._warn(held, misfit)
            completed = replace(misfit, times=known.times, since=known.since, wait=self._wait)
            self._on_ended(held, ended._replace(outcome=completed))

    def _history(self, ids: Sequence[UUID]) -> dict[UUID, list[Execution]]:
        found: dict[UUID, list[Execution]] = defaultdict(list)
        try:
            for execution in self._store.executions(ids, tenant=ALL_TENANTS):
                found[execution.job_id].append(execution)
        except StoreError as error:
            _log.debug("cannot read the history of %d jobs; treating them as new: %s", len(ids), error)
        return found

    def _warn(self, held: HeldJob, misfit: Misfit) -> None:
        if held.claim.task not in self._warned:
            self._warned.add(held.claim.task)
            _log.warning(
                "jobs of task %s have arguments that do not fit this worker's version of it (first seen: job %s, %s);"
                " they wait up to %s for a worker with newer code",
                held.claim.task,
                held.claim.id,
                misfit.problem,
                self._wait,
            )
