"""How much to claim, and of what: pure arithmetic over slots, loads and recent run times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Plan(NamedTuple):
    """One claim: of these kinds of tasks, at most so many, straight to ``running`` or into the buffer."""

    kinds: tuple[str, ...]
    limit: int
    start: bool


@dataclass(slots=True)
class Kind:
    """One lane's room. ``load`` counts the jobs that were given to it and are not over, buffered ones included."""

    name: str
    slots: int
    tasks: tuple[str, ...] = ()
    load: int = 0
    asked: int = 0  #: claims that are under way
    mean: float | None = None  #: seconds a job takes, lately
    dry: bool = False  #: the last claim found less than it asked for

    def ran(self, seconds: float, count: int) -> None:
        """Take these run times into account; a batch counts as much as its size, up to a point."""
        if count:
            weight = min(0.5, 0.05 * count)
            average = seconds / count
            self.mean = average if self.mean is None else self.mean + weight * (average - self.mean)

    def free(self) -> int:
        """Slots that nothing is meant for."""
        return max(0, self.slots - self.load - self.asked)

    def room(self, buffer: float, batch: int) -> int:
        """Free slots and as much of a buffer as is worked off in ``buffer`` seconds."""
        ahead = 0
        if self.mean is not None and self.slots:
            ahead = min(batch, int(self.slots * buffer / max(self.mean, 1e-6)))
            if ahead < max(1, self.slots // 10):
                ahead = 0  # so small a buffer only delays what a free worker elsewhere could begin
        return max(0, self.slots + ahead - self.load - self.asked)


@dataclass(slots=True)
class Planner:
    """Plans claims. As long as all kinds of work are asked for at once the order of jobs is theirs alone; when a claim comes
    back full, each kind is asked for by itself, so that none waits for another's slots.
    """

    kinds: dict[str, Kind]
    buffer: float
    batch: int
    split: bool = False
    hot: bool = False  #: the last claim came back full
    turn: int = field(default=0)

    def plan(self, *, only: str | None = None, without: str | None = None) -> Plan | None:
        """The next claim, or None while there is no room or nothing to be had; of one kind alone, or of all but one.

        Several claims go out at once only while they come back full: one is enough to find out that there is nothing.
        """
        meant = [kind for kind in self.kinds.values() if only in (None, kind.name) and kind.name != without]
        if not self.hot and any(kind.asked for kind in meant):
            return None
        rooms = {
            kind.name: kind.room(self.buffer, self.batch) for kind in meant if kind.tasks and not kind.dry
        }
        able = [name for name, room in rooms.items() if room > 0]
        if not able:
            return None
        if self.split and len(able) > 1:
            self.turn += 1
            able = [able[self.turn % len(able)]]
        limit = min(self.batch, *(rooms[name] for name in able))
        start = limit <= min(self.kinds[name].free() for name in able)
        return Plan(tuple(able), limit, start)

    def begin(self, plan: Plan) -> None:
        """This claim goes out."""
        for name in plan.kinds:
            self.kinds[name].asked += plan.limit

    def end(self, plan: Plan, claimed: int | None) -> None:
        """It came back with so many; None: it failed."""
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

    def wet(self, names: Iterable[str] | None = None) -> None:
        """There may be something to claim again."""
        for name in self.kinds if names is None else names:
            self.kinds[name].dry = False


class RunnerStats(NamedTuple):
    """What a runner is doing."""

    done: int
    running: int
    buffered: int
    free: int
    stuck: str | None
    store_ok: bool
    errors: int = 0
