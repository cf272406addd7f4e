"""Retention: a store that keeps no archive, such as the one in memory, forgets jobs some time after they ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=30)

MEMORY_RETENTION = (
    ArchivePolicy("completed", frozenset({JobState.COMPLETED}), max_age=timedelta(minutes=15)),
    ArchivePolicy("ended", ENDED - {JobState.COMPLETED}, max_age=timedelta(minutes=60)),
)
"""What a store in memory keeps: completed jobs for a quarter of an hour, other ends for an hour."""


class Retention:
    """One batch of each policy. Nothing is copied: what these policies let go is gone."""

    def __init__(self, store: Store, policies: Sequence[ArchivePolicy] = MEMORY_RETENTION) -> None:
        self._store, self._policies = store, policies

    def __call__(self) -> Done:
        items, more = 0, False
        for policy in self._policies:
            due = self._store.archivable(policy)
            gone = self._store.forget(due) if due else frozenset()
            items += len(gone)
            more = more or (len(due) >= policy.batch and bool(gone))
        return Done(items, more=more)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("retention", every, self)
