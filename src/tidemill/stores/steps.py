"""The step part of the store contract: results that a job's steps keep.

Law 28. **The record of a step is written once.** ``record_steps`` is fenced like every write of a worker. It never replaces a
checkpoint: the first value of a name stands. A job with a new record has made progress, so its attempts and crashes count from
this execution: the held row gets attempt 1 and no crashes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.graph import StepRecord


class StepStore(ABC):
    """Records of the steps of durable functions. ``RecordStore.checkpoints`` reads them."""

    @abstractmethod
    def record_steps(self, entries: Sequence[StepRecord], *, now: datetime | None = None) -> frozenset[UUID]:
        """Insert records of held jobs, fenced by their ``number`` (the token) and ``worker``. Returns the lost ids.

        A record whose name the job already has is ignored, and so is a later one of the same name in the batch. A job that got a
        new record has attempt 1 and no crashes afterwards.
        """
