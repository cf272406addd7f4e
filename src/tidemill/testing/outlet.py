"""What a job under test says goes straight to the store, so that the test can read it back. It holds nothing back."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from datetime import datetime
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Checkpoint, Claim, LogEntry, Progress, Report
from tidemill.stores.base import Store


class StoreOutlet:
    """A context's words, written at once by the fenced verbs of the store."""

    def __init__(self, store: Store, claim: Claim, clock: Clock) -> None:
        self._store, self._claim, self._clock = store, claim, clock
        self._lost = threading.Event()

    def report(self, progress: Progress) -> None:
        report = Report(self._claim.id, self._claim.token, progress)
        self._note(self._store.report([report], now=self._clock.now()))
        self._store.notify(["progress"])

    def log(self, entry: LogEntry) -> None:
        self._note(self._store.log([entry]))

    def checkpoint(self, name: str) -> str | None:
        return self._store.checkpoints(self._claim.id, tenant=self._claim.tenant).get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        entry = Checkpoint(self._claim.id, self._claim.token, name, value)
        self._note(self._store.save_checkpoints([entry], now=self._clock.now()))

    def is_cancelled(self) -> bool:
        """Somebody asked for it, or the job is not ours any more."""
        return self._lost.is_set() or self.cancel_reason() is not None

    def cancel_reason(self) -> str | None:
        """Why somebody wants this execution stopped."""
        found = self._store.get([self._claim.id], tenant=self._claim.tenant)
        return next((job.cancel_reason for job in found if job.token == self._claim.token), None)

    def now(self) -> datetime:
        return self._clock.now()

    def transaction(self) -> AbstractContextManager[None]:
        return self._store.transaction()

    def _note(self, lost: frozenset[UUID]) -> None:
        if lost:
            self._lost.set()
