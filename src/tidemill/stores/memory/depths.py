"""Samples of the depth of queues in the memory store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.domain.depths import (
    EMPTY_STEP,
    LOOK_BACK,
    DepthSample,
    DepthSeries,
    DepthStep,
    depth_series,
    sample_minute,
    sampled_depths,
)
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.rollups import LENGTHS, Compaction, Unit, floored
from tidemill.domain.states import JobState
from tidemill.domain.stats import steps_of
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import DepthKey
from tidemill.stores.memory.stats import depths_of
from tidemill.stores.stats import DepthStore


class MemoryDepths(MemoryPart, DepthStore):
    """The depth of queues over time."""

    def measure_depths(self, *, now: datetime | None = None) -> list[DepthSample]:
        with self._open() as state:
            moment = self._at(now)
            minute = sample_minute(moment)
            if any(key.unit is Unit.MINUTE and key.at == minute for key in state.depths):
                return []
            jobs = (state.jobs[id] for run_at, id in state.alarms if run_at > moment)
            later = Counter(job.queue for job in jobs if job.state is JobState.SCHEDULED)
            return sampled_depths(moment, depths_of(state, moment, ALL_TENANTS), later)

    def put_depths(self, samples: Sequence[DepthSample], *, now: datetime | None = None) -> int:
        with self._open() as state:
            at = sample_minute(self._at(now))
            latest = {
                key.queue: cell
                for key, cell in sorted(state.depths.items())
                if key.unit is Unit.MINUTE and at - LOOK_BACK <= key.at < at
            }
            cells = {queue: EMPTY_STEP for queue, cell in latest.items() if cell.pending or cell.scheduled}
            cells |= {sample.queue: DepthStep(*sample[1:]) for sample in samples}
            new = {DepthKey(Unit.MINUTE, queue, at): cell for queue, cell in cells.items()}
            added = {key: cell for key, cell in new.items() if key not in state.depths}
            state.depths.update(added)
            return len(added)

    def depth_series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        queue: str | None = None,
        limit: int = 200,
        now: datetime | None = None,
    ) -> DepthSeries:
        with self._open() as state:
            steps, length = steps_of(self._at(now), window, step)
            cells: dict[tuple[str, datetime], DepthStep] = {}
            for key, cell in state.depths.items():
                if queue in (None, key.queue) and steps[0] <= key.at < steps[-1] + length:
                    at = key.queue, floored(key.at, length)
                    cells[at] = _highest(cells.get(at, EMPTY_STEP), cell)
            return depth_series(steps, length, [(*at, cell) for at, cell in cells.items()], limit)

    def compact_depths(self, compaction: Compaction) -> int:
        with self._open() as state:
            old = [key for key in state.depths if key.unit is compaction.unit and key.at < compaction.before]
            for key in old:
                slot = DepthKey(compaction.into, key.queue, floored(key.at, LENGTHS[compaction.into]))
                state.depths[slot] = _highest(state.depths.get(slot, EMPTY_STEP), state.depths.pop(key))
            return len(old)

    def drop_depths(self, before: datetime) -> int:
        with self._open() as state:
            old = [key for key in state.depths if key.at < before]
            for key in old:
                del state.depths[key]
            return len(old)


def _highest(one: DepthStep, other: DepthStep) -> DepthStep:
    return DepthStep(
        max(one.pending, other.pending),
        max(one.scheduled, other.scheduled),
        max(one.oldest, other.oldest),
    )
