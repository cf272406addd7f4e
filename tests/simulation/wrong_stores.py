"""Stores with one bug each, which the simulation must detect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.schedules import Advance, Fired, FireKey
from tidemill.stores.base import StepResult
from tidemill.stores.memory import MemoryStore


class NoFence(MemoryStore):
    """Accepts any claim as the current one, whatever its token and worker."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        jobs = self.get([finish.claim.id for finish in finishes], tenant=ALL_TENANTS)
        current = {job.id: (job.token, job.worker) for job in jobs}
        claims = [finish.claim for finish in finishes]
        fences = [current.get(claim.id, (claim.token, claim.worker)) for claim in claims]
        claims = [c._replace(token=t, worker=w) for c, (t, w) in zip(claims, fences, strict=True)]
        return super().finish([f._replace(claim=c) for f, c in zip(finishes, claims, strict=True)], now=now)


class CountedAtFinish(MemoryStore):
    """Counts an attempt when it is finished, so that a crashed one never counts."""

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
    """Advances a schedule from any state, and treats every fire as new."""

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
    """Ignores limits."""

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        return super().claim(request._replace(rules={}), now=now)

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        return super().step(finishes, request._replace(rules={}, handoff=False), now=now)


class NoWorker(MemoryStore):
    """Treats every worker with the current token as the holder."""

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        jobs = self.get([finish.claim.id for finish in finishes], tenant=ALL_TENANTS)
        holders = {job.id: job.worker for job in jobs}
        claims = [f.claim._replace(worker=holders.get(f.claim.id, f.claim.worker)) for f in finishes]
        return super().finish([f._replace(claim=c) for f, c in zip(finishes, claims, strict=True)], now=now)


class NoLease(MemoryStore):
    """Lets a worker claim after its lease has expired."""

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        with self._leased(request.worker):
            return super().claim(request, now=now)

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        with self._leased(request.worker):
            return super().step(finishes, request, now=now)

    @contextmanager
    def _leased(self, id: UUID) -> Iterator[None]:
        """Give the worker an endless lease for the length of a block."""
        workers = self._state.workers
        before = workers.get(id)
        if before is not None:
            workers[id] = replace(before, expires_at=datetime.max.replace(tzinfo=UTC))
        try:
            yield
        finally:
            if before is not None:
                self._state.workers[id] = before


WRONG = {
    "no fence": (NoFence, "I6"),
    "attempts counted at the finish": (CountedAtFinish, "I8"),
    "no unique fire": (NoUniqueFire, "I12"),
    "no limits": (NoLimits, "I11"),
    "no worker": (NoWorker, "I6"),
    "no lease": (NoLease, "I25"),
}
"""Wrong stores, and the invariant that each violates."""
