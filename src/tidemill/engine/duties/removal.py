"""Deletion of ended jobs in a store without an archive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from tidemill.domain.retention import ArchivedJob, ArchivePolicy
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=30)

MEMORY_RETENTION = (
    ArchivePolicy("completed", frozenset({JobState.COMPLETED}), max_age=timedelta(minutes=15), to=None),
    ArchivePolicy("ended", ENDED - {JobState.COMPLETED}, max_age=timedelta(minutes=60), to=None),
)
"""The retention of an in-memory store: 15 minutes for completed jobs, one hour for all other ended jobs."""


class DropEnded:
    """Deletes one batch of each policy. Nothing is archived."""

    def __init__(self, store: Store, policies: Sequence[ArchivePolicy] = MEMORY_RETENTION) -> None:
        self._store, self._policies = store, policies

    def __call__(self) -> Done:
        items, more = 0, False
        for policy in self._policies:
            due = self._store.archivable(policy.aged(self._store.now()), policy=policy.name, tier=policy.tier)
            gone = self._forget(due) if due else frozenset[UUID]()
            items += len(gone)
            more = more or (len(due) >= policy.batch and bool(gone))
        return Done(items, more=more)

    def _forget(self, due: Sequence[ArchivedJob]) -> frozenset[UUID]:
        # One transaction: forget marks the blobs as archived, and no sweep deletes those.
        with self._store.transaction():
            gone = self._store.forget(due)
            self._store.drop_blobs(gone)
        return gone

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("retention", every, self)
