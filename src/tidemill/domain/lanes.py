"""Lanes: the order in which pending jobs are claimed, and the watermark below which a claim need not look.

A lane is one (queue, tenant, priority). Within it jobs go in the order of ``seq``, the number a store gives a job when it
becomes pending. A worker passes the lanes it wants, in the order it wants them, and a store takes them as given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim

SAFETY = 5_000
"""How far behind the last claimed number a watermark stays, for rows that commit late with an older number."""


REMEMBERED = 16
"""How many lanes that have run empty are kept in mind."""


class LaneKey(NamedTuple):
    """Where a pending job stands."""

    queue: str
    tenant: str
    priority: int


class Lane(NamedTuple):
    """A lane as a claim is told of it: look from ``low`` on, take at most ``quota``."""

    queue: str
    tenant: str
    priority: int
    low: int = 0
    quota: int = 2**31 - 1

    @property
    def key(self) -> LaneKey:
        return LaneKey(self.queue, self.tenant, self.priority)


class ClaimRequest(NamedTuple):
    """Who claims what: at most ``limit`` jobs from ``lanes`` in their order, only of ``tasks`` (None: of any task)."""

    worker: UUID
    lanes: Sequence[Lane]
    limit: int
    tasks: Sequence[str] | None = None
    start: bool = True  #: straight to ``running``; False leaves them ``claimed`` for a buffer


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
        self._turn = 0

    def seen(self, lanes: Iterable[Lane]) -> None:
        before = self._empty | self._low
        self._low = {lane.key: lane.low for lane in lanes}
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
            if seq is not None and seq > highest.get(key, -1):
                highest[key] = seq
        for key, seq in highest.items():
            lane = LaneKey(*key)
            self._low[lane] = max(self._low.get(lane, 0), seq - SAFETY)

    def lanes(self, quota: int = 2**31 - 1) -> list[Lane]:
        keys = sorted(self._low, key=lambda key: (-key.priority, key.queue, key.tenant))
        groups: dict[int, list[LaneKey]] = {}
        for key in keys:
            groups.setdefault(key.priority, []).append(key)
        self._turn += 1
        ordered: list[Lane] = []
        for group in groups.values():
            at = self._turn % len(group)
            ordered += [Lane(*key, self._low[key], quota) for key in group[at:] + group[:at]]
        return ordered
