"""The statistics part of the store contract.

22. **Every end of a job is counted once**, by the transaction that ends it, in a journal. ``fold_ends`` moves the journal into
    rollups, and readers add the two. So counts of ended jobs are exact and current at any time, whatever is killed or late.
    Reopening, deleting, archiving or restoring a job changes no count, and a job that keeps no row is counted as well.
23. **A query about the present** reads the tables of waiting and held jobs, which are small, or an index of them.
46. **A queue and minute have one sample**, the first that was stored. A queue that has become empty gets one empty sample. Merging
    keeps the highest values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from tidemill.domain.depths import DepthSample, DepthSeries
from tidemill.domain.rollups import Compaction, EverTotals, Expiry, JobTimes
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    LATEST,
    LOOK,
    DeclaredCounts,
    Depth,
    EndedGroups,
    EndedTiming,
    Group,
    GroupedSeries,
    HeldRow,
    HeldSelection,
    Holder,
    Series,
    TaskBacklog,
    UnfinishedCounts,
)


class RollupStore(ABC):
    """The counts of ended jobs: rollups, and the journal that they are folded from."""

    @abstractmethod
    def ended_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        failures: bool = False,
        limit: int = 100,
        now: datetime | None = None,
    ) -> EndedGroups:
        """Jobs that ended since the start of the window, counted by task, tenant, queue, worker or state: the ``limit`` largest
        groups. ``since_of`` computes the start. ``failures`` counts only failed jobs.
        """

    @abstractmethod
    def series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        queue: str | None = None,
        task: str | None = None,
        now: datetime | None = None,
    ) -> Series:
        """Ended jobs per step, with their run times and waits; optionally only of a queue or a task. Steps begin at whole multiples of their length since 1970 UTC, and
        the last one contains now. The step is at least as long as given: ``step_of`` computes it.
        """

    @abstractmethod
    def series_by(
        self,
        group: Group,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        limit: int = 8,
        now: datetime | None = None,
    ) -> GroupedSeries:
        """Ended and failed jobs per step, by task, tenant, queue or worker, of the ``limit`` groups with the most jobs. The steps are
        those of ``series``.
        """

    @abstractmethod
    def times_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        names: Collection[str] | None = None,
        now: datetime | None = None,
    ) -> dict[str, JobTimes]:
        """Run times and waits of the jobs that ended since the start of the window, by task, tenant or queue; optionally only of
        these names. Names without a job that ran are left out.
        """

    @abstractmethod
    def ended_ever(self) -> EverTotals:
        """All ends of jobs and of executions that were counted. These sums only grow."""

    @abstractmethod
    def fold_ends(self, *, limit: int = 5_000) -> int:
        """Move at most ``limit`` rows of the journal into the rollups, and return how many. Zero if another fold is running."""

    @abstractmethod
    def compact_rollups(self, compaction: Compaction) -> int:
        """Merge the rollups of the first slot of the longer unit that has any, and return how many were merged."""

    @abstractmethod
    def drop_rollups(self, expiry: Expiry) -> int:
        """Delete the rollups of a scope that begin before an instant, and return how many."""


class DepthStore(ABC):
    """Samples of the depth of queues, of all tenants together."""

    @abstractmethod
    def measure_depths(self, *, now: datetime | None = None) -> list[DepthSample]:
        """The queues with pending or scheduled jobs, by name; nothing if there is a sample of this minute already. Read only, and
        every waiting job is counted.
        """

    @abstractmethod
    def put_depths(self, samples: Sequence[DepthSample], *, now: datetime | None = None) -> int:
        """Store these samples for the minute of now, and an empty one for each other queue that was not empty at its latest sample.
        The first sample of a queue and minute stays. Returns how many were stored.
        """

    @abstractmethod
    def depth_series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        queue: str | None = None,
        limit: int = 200,
        now: datetime | None = None,
    ) -> DepthSeries:
        """The depth of one queue, or of the ``limit`` deepest ones, in the steps of ``series``: the highest values of each step."""

    @abstractmethod
    def compact_depths(self, compaction: Compaction) -> int:
        """Merge the samples of a unit before an instant into the longer unit, and return how many were merged."""

    @abstractmethod
    def drop_depths(self, before: datetime) -> int:
        """Delete the samples before an instant, and return how many."""


class StatsStore(ABC):
    """The queries about ended jobs themselves, for statistics and the dashboard."""

    @abstractmethod
    def standing(self, *, tenant: str) -> dict[JobState, int]:
        """The number of jobs by state, as ``count`` returns it; fast for all tenants."""

    @abstractmethod
    def declared(self, *, tenant: str) -> DeclaredCounts:
        """The number of definitions and schedules, enabled and disabled. Deleted ones are not counted."""

    @abstractmethod
    def lately(self, tasks: Collection[str], *, tenant: str, per_task: int = LATEST) -> list[EndedTiming]:
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
    def backlogs(self, *, tenant: str, served: Collection[str]) -> list[TaskBacklog]:
        """The pending jobs of each task that is not among the ``served`` ones, the task that has waited longest first. Every pending
        job is read.
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
