"""An outlet that writes a tested job's output to the store immediately."""

from __future__ import annotations

import threading
from datetime import datetime
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import NO_DETAILS, Checkpoint, Claim, Details, LogEntry, Progress, ProgressReport
from tidemill.domain.large_values import SpilledText
from tidemill.domain.record import Record
from tidemill.engine.completion import Connections
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value, store_value
from tidemill.tasks.task import Declared


class StoreOutlet:
    """The output of a job, written immediately by the fenced verbs of the store."""

    start_by: float | None = None  #: rates are not enforced here

    def __init__(
        self,
        store: Store,
        claim: Claim,
        clock: Clock,
        declared: Declared,
        connections: Connections | None,
        store_name: str | None = None,
        details: Details = NO_DETAILS,
    ) -> None:
        self._details = details
        self._store, self._claim, self._clock, self.declared = store, claim, clock, declared
        self.connections, self.store_name = connections, store_name
        self.completes = False  #: a user's transaction may have completed the job
        self._began = clock.monotonic()
        self._lost = threading.Event()

    def report(self, progress: Progress) -> None:
        report = ProgressReport(self._claim.id, self._claim.token, self._claim.worker, progress)
        self._note(self._store.report([report], now=self._clock.now()))
        self._store.notify(["progress"])

    def log(self, entry: LogEntry) -> None:
        self._note(self._store.log([entry]))

    def checkpoint(self, name: str) -> str | None:
        return self._store.checkpoints(self._claim.id, tenant=self._claim.tenant).get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        entry = Checkpoint(self._claim.id, self._claim.token, self._claim.worker, name, value)
        self._note(self._store.save_checkpoints([entry], now=self._clock.now()))

    def is_timed_out(self) -> bool:
        return False  # the test runner judges the time after the execution

    def renew_start(self) -> None:
        """No effect: rates are not enforced here."""

    def is_cancelled(self) -> bool:
        """Whether cancellation was requested, or the job was lost."""
        return self._lost.is_set() or self.cancel_reason() is not None

    def cancel_reason(self) -> str | None:
        """The reason of a cancel request for this execution."""
        found = self._store.get([self._claim.id], tenant=self._claim.tenant)
        return next((job.cancel_reason for job in found if job.token == self._claim.token), None)

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def claim(self) -> Claim:
        return self._claim

    def completing(self) -> float:
        self.completes = True
        return self._clock.monotonic() - self._began

    @property
    def record(self) -> Record:
        return self.declared.record(self._details)

    @property
    def is_private(self) -> bool:
        return False  # every tested job runs in this process

    def spill(self, value: SpilledText) -> str:
        return store_value(self._store, value, in_table=self.completes, now=self._clock.now())

    def fetch(self, text: str) -> str:
        return read_value(self._store, text)

    def flush(self) -> None:
        """No effect: everything is written immediately."""

    def unwritten(self) -> tuple[list[LogEntry], list[ProgressReport]]:
        return [], []

    def _note(self, lost: frozenset[UUID]) -> None:
        if lost:
            self._lost.set()
