"""Lanes: the order in which pending jobs are claimed, and the watermark below which a claim need not look.

A lane is one (queue, tenant, priority), and a gate: jobs that count against limits stand behind the gate of just these limits,
so that either all of a lane may go or none. Jobs without limits have no gate. Within a lane jobs go in the order of ``seq``, the
number a store gives a job when it becomes pending. A worker passes the lanes it wants, in the order it wants them, and a store
takes them as given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim

if TYPE_CHECKING:
    from tidemill.domain.limits import Rule

SAFETY = 5_000
"""How far behind the last claimed number a watermark stays, for rows that commit late with an older number."""


REMEMBERED = 16
"""How many lanes that have run empty are kept in mind."""


class LaneKey(NamedTuple):
    """Where a pending job stands."""

    queue: str
    tenant: str
    priority: int
    gate: str = ""  #: of jobs that count against limits


class Lane(NamedTuple):
    """A lane as a claim is told of it: look from ``low`` on, take at most ``quota``, and count it against ``limits``."""

    queue: str
    tenant: str
    priority: int
    low: int = 0
    quota: int = 2**31 - 1
    gate: str = ""
    limits: tuple[str, ...] = ()

    @property
    def key(self) -> LaneKey:
        return LaneKey(self.queue, self.tenant, self.priority, self.gate)


class ClaimRequest(NamedTuple):
    """Who claims what: at most ``limit`` jobs from ``lanes`` in their order, only of ``tasks`` (None: of any task)."""

    worker: UUID
    lanes: Sequence[Lane]
    limit: int
    tasks: Sequence[str] | None = None
    start: bool = True  #: straight to ``running``; False leaves them ``claimed`` for a buffer
    rules: Mapping[str, Rule] = {}  #: what the lanes' limits allow
    inherits: bool = False  #: of these, no more than the ends in the same step give back


class Watermarks:
    """Remembers per lane how far claims have come, so that dead entries at the head of an index cost nothing.

    ``seen`` replaces the lanes by a fresh reading of the store (that is also what finds rows that committed late);
    ``claimed`` raises the marks after a claim; ``lanes`` gives them in claiming order: highest priority first, then the
    tenants in rotation so that none is always last. Lanes that have run empty are kept for a while: whoever hears of new
    work tries them before he asks which lanes there are.
    """

    def __init__(self) -> None:
        self._low: dict[LaneKey, int] = {}
        self._empty: dict[LaneKey, int] = {}
        self._heads: dict[
            LaneKey, tuple[int, float]
        ] = {}  # the first number of each, and since when it has been that
        self._turn = 0

    def seen(self, lanes: Iterable[Lane], at: float = 0.0) -> None:
        """The lanes as they were just read, at a reading of a clock that only rises."""
        before = self._empty | self._low
        self._low = {lane.key: lane.low for lane in lanes}
        heads = {key: self._heads.get(key, (low, at)) for key, low in self._low.items()}
        self._heads = {
            key: head if head[0] == self._low[key] else (self._low[key], at) for key, head in heads.items()
        }
        gone = [(key, low) for key, low in before.items() if key not in self._low]
        self._empty = dict(gone[-REMEMBERED:])

    def remember(self) -> None:
        """Try the lanes that had run empty as well."""
        self._low = self._empty | self._low
        self._empty = {}

    def add(self, key: LaneKey) -> None:
        """A lane somebody told us about; where it begins is not known."""
        self._low.setdefault(key, 0)

    def claimed(self, claims: Iterable[Claim]) -> None:
        highest: dict[tuple[str, str, int], int] = {}
        for claim in claims:
            key, seq = claim[2:5], claim.seq
            if claim.limits:
                continue  # from a gate, whose numbers say nothing of the lane beside it
            if seq is not None and seq > highest.get(key, -1):
                highest[key] = seq
        for key, seq in highest.items():
            lane = LaneKey(*key)
            self._low[lane] = max(self._low.get(lane, 0), seq - SAFETY)

    def lanes(self, quota: int = 2**31 - 1, *, at: float = 0.0, ageing: float | None = None) -> list[Lane]:
        """The lanes in claiming order; with ``ageing`` a lane rises by one priority for each such time its head has waited."""
        groups: dict[int, list[LaneKey]] = {}
        for key in sorted(self._low, key=lambda key: (key.queue, key.tenant)):
            groups.setdefault(key.priority + self._risen(key, at, ageing), []).append(key)
        self._turn += 1
        ordered: list[Lane] = []
        for priority in sorted(groups, reverse=True):
            group = groups[priority]
            turned = self._turn % len(group)
            ordered += [Lane(*key[:3], self._low[key], quota) for key in group[turned:] + group[:turned]]
        return ordered

    def _risen(self, key: LaneKey, at: float, ageing: float | None) -> int:
        if not ageing or key not in self._heads:
            return 0
        return max(int((at - self._heads[key][1]) / ageing), 0)


def shared(lanes: Sequence[Lane], limit: int, weights: Mapping[str, float]) -> list[Lane]:
    """The lanes with a quota for each, so that tenants who wait side by side get shares by their weights (1 unless given).

    Shares are of what stands at one priority; whoever gets less than its share leaves the rest to whoever asks again.
    """
    totals: dict[int, float] = {}
    tenants: dict[int, set[str]] = {}
    for lane in lanes:
        totals[lane.priority] = totals.get(lane.priority, 0.0) + weights.get(lane.tenant, 1.0)
        tenants.setdefault(lane.priority, set()).add(lane.tenant)
    return [
        lane
        if len(tenants[lane.priority]) == 1
        else lane._replace(quota=max(ceil(limit * weights.get(lane.tenant, 1.0) / totals[lane.priority]), 1))
        for lane in lanes
    ]
