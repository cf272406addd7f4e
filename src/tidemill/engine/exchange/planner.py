"""Claim planner: how many jobs to claim and for which executors.

Pure arithmetic over slots, loads and recent run times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

SOON = 0.01
"""Seconds within which a slot must become free for a job that is claimed for it."""


class ClaimPlan(NamedTuple):
    """One claim for at most ``limit`` jobs of these kinds.

    With ``start`` the jobs become ``running`` at once, else they are buffered. ``free`` is the number of jobs that get
    a slot at once. Jobs under a rate are claimed for these slots only.
    """

    kinds: tuple[str, ...]
    limit: int
    start: bool
    free: int = 2**31 - 1


@dataclass(slots=True)
class ExecutorLoad:
    """Capacity of one executor. ``load`` counts the unfinished jobs given to it, including buffered ones."""

    name: str
    slots: int
    tasks: tuple[str, ...] = ()
    load: int = 0
    asked: int = 0  #: jobs requested by claims that are under way
    mean: float | None = None  #: average seconds per job, over recent jobs
    dry: bool = False  #: whether the last claim returned fewer jobs than requested
    held_back: bool = False  #: whether jobs under a rate are waiting for a free slot
    #: current name for each older task name
    aliases: Mapping[str, str] = field(default_factory=dict)

    def unpaused(self, paused: Collection[str]) -> Sequence[str]:
        """Return the names to claim, without tasks that are paused under their current or an older name."""
        if not paused:
            return self.tasks
        return [name for name in self.tasks if not {name, self.aliases.get(name, name)} & set(paused)]

    def ran(self, seconds: float, count: int) -> None:
        """Update the average run time. The weight of a batch grows with its size, up to a limit."""
        if count:
            weight = min(0.5, 0.05 * count)
            average = seconds / count
            self.mean = average if self.mean is None else self.mean + weight * (average - self.mean)

    def free(self) -> int:
        """Return the number of slots that are neither used nor covered by a pending claim."""
        return max(0, self.slots - self.load - self.asked)

    def soon(self) -> int:
        """Return the free slots; if there are none and jobs are short, those that become free within ``SOON``."""
        free = self.free()
        if free or not self.mean:
            return free
        return min(self.slots, int(self.slots * SOON / self.mean))

    def room(self, buffer: float, batch: int, *, rated: bool = False) -> int:
        """Return the free slots plus as many jobs as are worked off in ``buffer`` seconds.

        With ``rated``, jobs under a rate are pending. Jobs longer than ``SOON`` are then not buffered, because a job
        under a rate would have to wait until the buffer is empty.
        """
        ahead = 0
        if rated and self.mean is not None and self.mean > SOON:
            return self.free()
        if self.mean is not None and self.slots:
            ahead = min(batch, int(self.slots * buffer / max(self.mean, 1e-6)))
            if ahead < max(1, self.slots // 10):
                ahead = 0  # so small a buffer only delays jobs that an idle worker elsewhere could start
        return max(0, self.slots + ahead - self.load - self.asked)


@dataclass(slots=True)
class Planner:
    """Plans claims.

    One claim covers all kinds of work at first, which keeps the order of the jobs. When a claim returns as many jobs as
    requested, each kind is claimed separately, so that none waits for another's slots.
    """

    kinds: dict[str, ExecutorLoad]
    buffer: float
    batch: int
    split: bool = False
    hot: bool = False  #: whether the last claim returned as many jobs as requested
    shut: bool = False  #: while True, nothing is claimed
    rated: bool = False  #: whether jobs under a rate are pending, for which slots stay free
    #: the held jobs of flows, whose ends may release other jobs
    linked: set[int] = field(default_factory=set)
    turn: int = field(default=0)

    def plan(self, *, only: str | None = None, without: str | None = None) -> ClaimPlan | None:
        """Return the next claim, or None if there are no free slots or no jobs.

        The claim covers all kinds, ``only`` one kind, or all ``without`` one. Several claims run at once only while
        they return full batches: a single claim suffices to find out that nothing is pending.
        """
        if self.shut:
            return None
        meant = [kind for kind in self.kinds.values() if only in (None, kind.name) and kind.name != without]
        if not self.hot and any(kind.asked for kind in meant):
            return None
        rooms = {kind.name: room for kind in meant if (room := self._room(kind)) > 0}
        able = list(rooms)
        if not able:
            return None
        if self.split and len(able) > 1:
            self.turn += 1
            able = [able[self.turn % len(able)]]
        limit = min(self.batch, *(rooms[name] for name in able))
        start = limit <= min(self.kinds[name].free() for name in able)
        return ClaimPlan(tuple(able), limit, start, min(self.kinds[name].soon() for name in able))

    def _room(self, kind: ExecutorLoad) -> int:
        """Return how many jobs may be claimed for one kind."""
        if not kind.tasks:
            return 0
        if kind.held_back:
            return kind.free()
        return 0 if kind.dry else kind.room(self.buffer, self.batch, rated=self.rated)

    def begin(self, plan: ClaimPlan) -> None:
        """Record that this claim is sent."""
        for name in plan.kinds:
            self.kinds[name].asked += plan.limit

    def end(self, plan: ClaimPlan, claimed: int | None) -> None:
        """Record how many jobs this claim returned; None if it failed."""
        for name in plan.kinds:
            self.kinds[name].asked -= plan.limit
        if claimed is None:
            return
        self.hot = claimed >= plan.limit
        if self.hot:
            self.split = len(self.kinds) > 1
            return
        for name in plan.kinds:
            self.kinds[name].dry = True
        if all(kind.dry or not kind.tasks for kind in self.kinds.values()):
            self.split = False

    def hold_back(self, plan: ClaimPlan, *, held_back: bool) -> None:
        """Record whether more jobs under a rate may be waiting than can start at once.

        The next free slots are then reserved for them: they are claimed as soon as a slot is free, and nothing is
        buffered.
        """
        for name in plan.kinds:
            self.kinds[name].held_back = held_back

    def wet(self, names: Iterable[str] | None = None) -> None:
        """Record that there may be jobs to claim again."""
        for name in self.kinds if names is None else names:
            self.kinds[name].dry = False


class RunnerCounters(Protocol):
    """Counters of a runner that its stats include."""

    done: int
    errors: int
    handed_back: int


def stats_of(
    kinds: Iterable[ExecutorLoad], counted: RunnerCounters, stuck: str | None, *, store_ok: bool
) -> RunnerStats:
    """Return the current figures of these executors."""
    kinds = list(kinds)
    running = sum(min(kind.load, kind.slots) for kind in kinds)
    free = sum(kind.free() for kind in kinds if kind.tasks)
    buffered = sum(kind.load for kind in kinds) - running
    return RunnerStats(
        counted.done, running, buffered, free, stuck, store_ok, counted.errors, counted.handed_back
    )


class RunnerStats(NamedTuple):
    """Current figures of a runner."""

    done: int
    running: int
    buffered: int
    free: int
    stuck: str | None
    store_ok: bool
    errors: int = 0
    handed_back: int = 0  #: how many of those done were released because the worker stopped


def combined_stats(parts: Sequence[RunnerStats]) -> RunnerStats:
    """Add up the figures of several runners."""
    return RunnerStats(
        done=sum(part.done for part in parts),
        running=sum(part.running for part in parts),
        buffered=sum(part.buffered for part in parts),
        free=sum(part.free for part in parts),
        stuck=next((part.stuck for part in parts if part.stuck is not None), None),
        store_ok=all(part.store_ok for part in parts),
        errors=sum(part.errors for part in parts),
        handed_back=sum(part.handed_back for part in parts),
    )
