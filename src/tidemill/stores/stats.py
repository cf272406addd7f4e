"""The statistics part of the store contract: bounded reads.

22. **A query about the past reads a bounded number of jobs**, the latest to end; the tenant restricts the result, not the
    jobs read. If the bound is reached, the answer has ``sampled`` set and is complete from ``since_at`` on.
    ``count_ended`` alone is always exact, because alerts depend on it.
23. **A query about the present** reads the tables of waiting and held jobs, which are small, or an index of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime, timedelta

from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    LOOK,
    LOOK_AT_TIMES,
    SAMPLES,
    Depth,
    EndedGroups,
    EndedTiming,
    FailedJob,
    Group,
    HeldRow,
    HeldSelection,
    Holder,
    Series,
    UnfinishedCounts,
)


class StatsStore(ABC):
    """The queries about ended jobs and totals, for statistics, alerts and the dashboard."""

    @abstractmethod
    def ended_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        failures: bool = False,
        limit: int = 100,
        look: int = LOOK,
        now: datetime | None = None,
    ) -> EndedGroups:
        """Jobs that ended within the window before now, counted by task, tenant, queue, worker or state: the ``limit`` largest
        groups. ``failures`` reads only failed jobs and so reaches further back.
        """

    @abstractmethod
    def count_ended(
        self, window: timedelta, *, tenant: str, now: datetime | None = None
    ) -> dict[JobState, int]:
        """The exact number of jobs that ended within the window before now, by state, without zeros."""

    @abstractmethod
    def standing(self, *, tenant: str) -> dict[JobState, int]:
        """The number of jobs by state, as ``count`` returns it; fast for all tenants."""

    @abstractmethod
    def series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        look: int = LOOK_AT_TIMES,
        samples: int = SAMPLES,
        now: datetime | None = None,
    ) -> Series:
        """Ended jobs per step. Steps begin at whole multiples of their length since 1970 UTC, and the last one contains now.
        Run times and lags are those of the latest ``samples`` jobs of each step.
        """

    @abstractmethod
    def troubles(
        self, window: timedelta, *, tenant: str, limit: int = 1000, now: datetime | None = None
    ) -> list[FailedJob]:
        """Failures that ended within the window, latest first: those of the tenant among the ``limit`` latest of all."""

    @abstractmethod
    def lately(self, tasks: Collection[str], *, tenant: str, per_task: int = SAMPLES) -> list[EndedTiming]:
        """For each task, those of its ``per_task`` most recently created ended jobs that belong to the tenant; by task, newest
        first.
        """


class OccupancyStore(ABC):
    """The queries about jobs that wait or are held now."""

    @abstractmethod
    def depths(self, *, tenant: str, now: datetime | None = None) -> list[Depth]:
        """The queues with waiting or due jobs, by name. ``oldest_at`` is the earliest due time of the first job of any of its
        lanes.
        """

    @abstractmethod
    def crowd(self, *, tenant: str, look: int = LOOK) -> UnfinishedCounts:
        """The number of unfinished jobs of each task, by state. At most ``look`` jobs are read of each of these groups: pending,
        scheduled, waiting or in review, held.
        """

    @abstractmethod
    def holding(
        self,
        which: HeldSelection,
        *,
        tenant: str,
        longer_than: timedelta | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[HeldRow]:
        """Held jobs, oldest claim first; optionally only those that were started (or claimed, if not started) at least that
        long ago.
        """

    @abstractmethod
    def holders(self, *, tenant: str) -> list[Holder]:
        """The number of jobs that each worker holds, by worker."""
