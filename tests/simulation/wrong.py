"""Stores that are wrong on purpose, each in one way that a simulation must find; what finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.timetable import Advance, Fired, FireKey
from tidemill.stores.base import Step
from tidemill.stores.memory import MemoryStore


class NoToken(MemoryStore):
    """Takes any token for the current one."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        jobs = self.get([finish.claim.id for finish in finishes], tenant=ALL_TENANTS)
        tokens = {job.id: job.token for job in jobs}
        claims = [f.claim._replace(token=tokens.get(f.claim.id, f.claim.token)) for f in finishes]
        return super().finish([f._replace(claim=c) for f, c in zip(finishes, claims, strict=True)], now=now)


class CountedAtFinish(MemoryStore):
    """Counts an attempt when its worker finishes it, so that one whose worker died is never counted."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        return super().finish(
            [
                item._replace(transition=replace(item.transition, refund=True))
                if item.transition.crashed
                else item
                for item in finishes
            ],
            now=now,
        )


class NoUniqueFire(MemoryStore):
    """Advances a schedule from anywhere, and takes every fire for a new one."""

    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        rows = {row.id: row for row in self.schedules(tenant=ALL_TENANTS)}
        return super().advance(
            [
                item._replace(revision=rows[item.id].revision, expected_fire_at=rows[item.id].last_fire_at)
                for item in advances
            ]
        )

    def note_fires(self, fires: Sequence[Fired], *, now: datetime | None = None) -> frozenset[FireKey]:
        super().note_fires(fires, now=now)
        return frozenset(fire.key for fire in fires)


class NoLimits(MemoryStore):
    """Counts nothing against limits."""

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        return super().claim(request._replace(rules={}), now=now)

    def step(self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None) -> Step:
        return super().step(finishes, request._replace(rules={}, inherits=False), now=now)


WRONG = {
    "no token": (NoToken, "I6"),
    "attempts counted at the finish": (CountedAtFinish, "I8"),
    "no unique fire": (NoUniqueFire, "I12"),
    "no limits": (NoLimits, "I11"),
}
"""What is wrong, and the promise that is seen broken."""
