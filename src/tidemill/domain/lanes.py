"""Lanes: the claim order of pending jobs, and the watermarks of claims.

A lane is a (queue, tenant, priority) and a gate, which is the set of limits that its jobs count against. All jobs of a lane
therefore pass their limits or none does. Jobs without limits have no gate. Within a lane jobs are claimed in the order of
``seq``, a number that the store assigns when a job becomes pending. A worker passes lanes in its preferred order, and the store
follows that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.domain.shares import Shares

if TYPE_CHECKING:
    from tidemill.domain.limits import Rule

SAFETY = 5_000
"""How far a watermark stays behind the last claimed number, for rows that commit late with a lower number."""


REMEMBERED = 16
"""Number of empty lanes to remember."""


FEWEST_LANES, MOST_LANES = 8, 64
"""Bounds of the number of lanes that one claim requests; within them, one per wanted job."""


class LaneKey(NamedTuple):
    """The lane of a pending job."""

    queue: str
    tenant: str
    priority: int
    gate: str = ""  #: the limits that its jobs count against


class Lane(NamedTuple):
    """A lane in a claim request: read from ``low`` on, take at most ``quota``, and count the jobs against ``limits``."""

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
    """A claim: at most ``limit`` jobs for ``worker`` from ``lanes`` in their order, only of ``tasks`` (None: any task)."""

    worker: UUID
    lanes: Sequence[Lane]
    limit: int
    tasks: Sequence[str] | None = None
    start: bool = True  #: claim directly into ``running``; False leaves jobs ``claimed`` for a buffer
    rules: Mapping[str, Rule] = {}  #: the rules of the lanes' limits
    handoff: bool = False  #: claim at most as many of each limit as the same step releases
    dating: Callable[[], object] | None = None  #: called just before rate-limited starts get their timestamp


class Watermarks:
    """The position of claims per lane, so that they skip dead entries at the head of an index.

    ``seen`` replaces the lanes by a fresh reading of the store, which also finds rows that committed late. ``claimed`` raises the
    watermarks after a claim. ``lanes`` and ``pages`` return lanes in claim order, with tenants in rotation (``shares``). Empty lanes
    are kept for a while: a worker that is notified of new work tries them before it reads the list of lanes.
    """

    def __init__(self) -> None:
        self._low: dict[LaneKey, int] = {}
        self._empty: dict[LaneKey, int] = {}
        # The first number of each lane, and since when it has been the first.
        self._heads: dict[LaneKey, tuple[int, float]] = {}
        self._shares = Shares()
        self._ranks: dict[str, list[list[LaneKey]]] | None = None

    def seen(self, lanes: Iterable[Lane], at: float = 0.0) -> None:
        """Replace the lanes by those just read, at a monotonic time."""
        before = self._empty | self._low
        self._low = {lane.key: lane.low for lane in lanes}
        heads = {key: self._heads.get(key, (low, at)) for key, low in self._low.items()}
        self._heads = {
            key: head if head[0] == self._low[key] else (self._low[key], at) for key, head in heads.items()
        }
        self._ranks = None
        self._shares.seen({key.tenant for key in self._low})
        gone = [(key, low) for key, low in before.items() if key not in self._low]
        self._empty = dict(gone[-REMEMBERED:])

    def remember(self) -> None:
        """Include the lanes that had run empty."""
        if self._empty:
            self._low = self._empty | self._low
            self._empty, self._ranks = {}, None

    def add(self, key: LaneKey) -> None:
        """Add a lane from a notification; its first number is unknown."""
        self._low.setdefault(key, 0)
        self._ranks = None

    def claimed(self, claims: Iterable[Claim]) -> None:
        highest: dict[tuple[str, str, int], int] = {}
        for claim in claims:
            key, seq = claim[2:5], claim.seq
            if claim.limits:
                continue  # numbers of a limited lane do not apply to the lane without limits
            if seq is not None and seq > highest.get(key, -1):
                highest[key] = seq
        for key, seq in highest.items():
            lane = LaneKey(*key)
            if lane not in self._low:
                self._ranks = None
            self._low[lane] = max(self._low.get(lane, 0), seq - SAFETY)

    def served(
        self, claims: Sequence[Claim], weights: Mapping[str, float] = {}, *, by_prefix: bool = True
    ) -> None:
        """Count claims for the rotation of tenants."""
        if self._ranks is None or len(self._ranks) > 1:
            counts = Counter(claim.tenant for claim in claims)
            self._shares.served(counts, weights, by_prefix=by_prefix)

    def lanes(
        self, quota: int = 2**31 - 1, *, at: float = 0.0, ageing: float | None = None, by_prefix: bool = True
    ) -> list[Lane]:
        """All lanes in claim order: tenants in rotation, and each tenant's lanes by descending priority.

        With ``ageing`` a lane rises by one priority per such period that its first job has waited.
        """
        order, items = self._shares.rounds(self._ranked(at, ageing), by_prefix=by_prefix)
        return [Lane(*key[:3], self._low[key], quota) for _, key in items(order)]

    def pages(
        self,
        limit: int,
        *,
        at: float = 0.0,
        ageing: float | None = None,
        weights: Mapping[str, float] = {},
        by_prefix: bool = True,
        goes: Callable[[LaneKey], bool] | None = None,
    ) -> Iterator[list[Lane]]:
        """The lanes for a claim of this many jobs, in pages of bounded size.

        If several tenants wait, the first page limits each to its share. Further pages contain all lanes without quotas, for the
        remainder of the claim.
        """
        ranked, low = self._ranked(at, ageing), self._low
        if goes is not None:
            ranked = {
                tenant: kept
                for tenant, ranks in ranked.items()
                if (kept := [able for rank in ranks if (able := [key for key in rank if goes(key)])])
            }
        order, items = self._shares.rounds(ranked, by_prefix=by_prefix)
        size = min(max(limit, FEWEST_LANES), MOST_LANES)
        if len(order) > 1 and limit > 1:
            quotas = self._shares.quotas(order[:size], limit, weights)
            first = islice(items(quotas), size)
            yield [Lane(*key[:3], low[key], quotas[group]) for group, key in first]
        rest = items(order)
        while page := [Lane(*key[:3], low[key]) for _, key in islice(rest, size)]:
            yield page

    def _ranked(self, at: float, ageing: float | None) -> dict[str, list[list[LaneKey]]]:
        """Each tenant's lanes by descending priority; cached per reading unless ``ageing`` is used."""
        if self._ranks is not None and not ageing:
            return self._ranks
        tenants: dict[str, dict[int, list[LaneKey]]] = {}
        for key in sorted(self._low, key=lambda key: (key.queue, key.tenant)):
            ranks = tenants.setdefault(key.tenant, {})
            ranks.setdefault(key.priority + self._risen(key, at, ageing), []).append(key)
        found = {
            tenant: [ranks[priority] for priority in sorted(ranks, reverse=True)]
            for tenant, ranks in tenants.items()
        }
        if not ageing:
            self._ranks = found
        return found

    def _risen(self, key: LaneKey, at: float, ageing: float | None) -> int:
        if not ageing or key not in self._heads:
            return 0
        return max(int((at - self._heads[key][1]) / ageing), 0)
