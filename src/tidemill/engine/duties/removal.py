"""Deletion of ended jobs in a store without an archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from tidemill.archive.flows import drop_flow
from tidemill.domain.retention import ArchivedJob, ArchivePolicy
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=30)
_FLOWS = 100  # flows that one run looks at

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
            dropped, left = self._drop_flows(policy)
            items, more = items + dropped, more or left
        oldest = max((policy.max_age or timedelta(0) for policy in self._policies), default=timedelta(0))
        groups = self._store.empty_groups(self._store.now() - oldest)
        self._store.drop_flows([group.id for group in groups])
        return Done(items, more=more)

    def _drop_flows(self, policy: ArchivePolicy) -> tuple[int, bool]:
        """Delete due flows with their jobs, one batch of jobs at most. Returns how many jobs, and whether more are due."""
        dropped = 0
        for flow in self._store.due_flows(replace(policy.aged(self._store.now()), limit=_FLOWS)):
            if dropped >= policy.batch:
                return dropped, True
            dropped += drop_flow(self._store, flow, limit=policy.batch - dropped)[0]
        return dropped, False

    def _forget(self, due: Sequence[ArchivedJob]) -> frozenset[UUID]:
        # One transaction: forget marks the blobs as archived, and no sweep deletes those.
        with self._store.transaction():
            gone = self._store.forget(due)
            self._store.drop_blobs(gone)
        return gone

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("retention", every, self)
