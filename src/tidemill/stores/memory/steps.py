"""Records of steps in the memory store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.graph import StepRecord
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.steps import StepStore


class MemorySteps(MemoryPart, StepStore):
    """Records of the steps of durable functions."""

    def record_steps(self, entries: Sequence[StepRecord], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            lost = set()
            for entry in entries:
                job = state.find_held(entry.job_id, entry.number, entry.worker)
                if job is None:
                    lost.add(entry.job_id)
                    continue
                records = state.checkpoints.setdefault(entry.job_id, {})
                if entry.name not in records:
                    records[entry.name] = entry.value
                    if job.attempt > 1 or job.crashes:
                        state.place(replace(job, attempt=1, crashes=0))
            return frozenset(lost)
