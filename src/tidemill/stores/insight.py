"""The part of the store contract that operators ask: what ended, what waits, what is held. Reads only, every one bounded.

22. **A question about the past looks at a bounded number of jobs**, the latest to end; the tenant narrows what is told, not
    what is looked at. When it looked at as many as it may, the answer says so (``sampled``) and from where on it is whole
    (``since_at``).
23. **A question about the present** reads the tables of what waits and what is held, which are small, or an index of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime, timedelta

from tidemill.domain.insight import (
    LOOK,
    LOOK_AT_TIMES,
    SAMPLES,
    Crowd,
    Depth,
    Group,
    Held,
    Holder,
    Lately,
    Series,
    Tally,
    Trouble,
    Which,
)
from tidemill.domain.states import JobState


class Insight(ABC):
    """The questions behind all that operators ask."""

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
    ) -> Tally:
        """Jobs that ended within the window before now, counted by task, tenant, queue, worker or state: the ``limit`` names
        with the most. ``failures`` looks only at those that failed, and so reaches further back.
        """

    @abstractmethod
    def standing(self, *, tenant: str) -> dict[JobState, int]:
        """How many jobs there are, by state; as ``count`` would say, and quickly where all tenants are meant."""

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
        """What ended, step by step; the steps begin at whole multiples of their length since 1970 UTC, and the last one is the
        one that now is in. Run times and lags are those of the latest ``samples`` of each step.
        """

    @abstractmethod
    def troubles(
        self, window: timedelta, *, tenant: str, limit: int = 1000, now: datetime | None = None
    ) -> list[Trouble]:
        """Failures that ended within the window, the latest first: those of a tenant among the ``limit`` latest of all."""

    @abstractmethod
    def depths(self, *, tenant: str, now: datetime | None = None) -> list[Depth]:
        """The queues in which something waits or is due, by name. ``oldest_at`` is the earliest time that the first job of any
        of its lanes was due.
        """

    @abstractmethod
    def lately(self, tasks: Collection[str], *, tenant: str, each: int = SAMPLES) -> list[Lately]:
        """Of each of these tasks those of the ``each`` latest made of its ended jobs that are the tenant's; by task, the latest
        made first.
        """

    @abstractmethod
    def crowd(self, *, tenant: str, look: int = LOOK) -> Crowd:
        """How many jobs of each task have not ended, by state. Of those that are pending, that are scheduled, that wait or are to be
        reviewed, and that are held, at most ``look`` are looked at each.
        """

    @abstractmethod
    def holding(
        self,
        which: Which,
        *,
        tenant: str,
        longer_than: timedelta | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[Held]:
        """Held jobs, the oldest claim first; only those that were started, or claimed where they were not, at least that long
        ago, if a time is given.
        """

    @abstractmethod
    def holders(self, *, tenant: str) -> list[Holder]:
        """What each worker holds, by worker."""
