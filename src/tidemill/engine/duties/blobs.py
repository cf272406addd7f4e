"""Blobs: deletes large values that no job refers to."""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store
from tidemill.stores.large_values import sweep_blobs

EVERY = timedelta(minutes=10)
_BATCH = 100


class SweepBlobs:
    """Deletes one batch of orphans: values whose row never came, and objects of deleted jobs."""

    def __init__(self, store: Store, *, batch: int = _BATCH) -> None:
        self._store, self._batch = store, batch

    def __call__(self) -> Done:
        swept = sweep_blobs(self._store, self._batch)
        return Done(swept, more=swept >= self._batch)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("blobs", every, self)
