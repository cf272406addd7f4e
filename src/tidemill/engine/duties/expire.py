"""Expire: the safety net under timeouts. Runners stop what runs too long; this ends what they could not.

A job that has been past its timeout for a while longer, and is still held, is settled as timed out; its runner is fenced off.
A job that has not begun by the time it expires is cancelled, wherever it waits.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import Action, move
from tidemill.domain.job import Claim
from tidemill.domain.outcome import TimedOut
from tidemill.engine.duties.settle import PolicyOf, Settle, wake
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(seconds=10)
MARGIN = timedelta(seconds=15)
BATCH = 500


class Expire:
    """One batch of jobs that have been seen past their timeout for ``margin``, by the monotonic clock.

    The store's clock says what is overdue and this process measures the margin, so no two clocks are ever compared. Whoever
    takes the duty over begins to measure anew.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy_of: PolicyOf,
        random: Random,
        *,
        margin: timedelta = MARGIN,
        batch: int = BATCH,
    ) -> None:
        self._store, self._clock = store, clock
        self._margin, self._batch = margin, batch
        self._settle = Settle(store, clock, policy_of, random)
        self._seen: dict[tuple[UUID, int], float] = {}

    def __call__(self) -> Done:
        limit = self._batch + self._settle.aside
        late = self._store.overdue(limit)
        now = self._clock.monotonic()
        self._look(late, now)
        ripe = [claim for claim in late if now - self._first(claim) >= self._margin.total_seconds()]
        written = self._settle(ripe, _timed_out)
        for claim, transition, *_ in written:
            self._seen.pop((claim.id, claim.token), None)
            _log.warning(
                "job %s ran over its timeout on worker %s, which did not stop it; it is %s now",
                claim.id,
                claim.worker,
                transition.state,
            )
        return Done(len(written), more=len(late) >= limit and bool(written))

    def _look(self, late: list[Claim], now: float) -> None:
        """Remember since when each is seen; what is overdue no more, or held anew, is forgotten."""
        self._seen = {(claim.id, claim.token): self._seen.get((claim.id, claim.token), now) for claim in late}

    def _first(self, claim: Claim) -> float:
        return self._seen[claim.id, claim.token]

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("expire", every, self)


def _timed_out(claim: Claim) -> TimedOut:
    assert claim.timeout is not None  # a job without one is never overdue
    return TimedOut(claim.timeout)


class CancelExpired:
    """One batch of jobs that nobody holds and whose time is over, the longest expired first."""

    def __init__(self, store: Store, *, batch: int = BATCH) -> None:
        self._store, self._batch = store, batch

    def __call__(self) -> Done:
        late = self._store.expired(self._batch)
        if not late:
            return Done()
        changed = self._store.move([move(job, Action.EXPIRE, "expired") for job in late])
        wake(self._store, {"ended"} if changed else ())
        return Done(len(changed), more=len(late) >= self._batch and bool(changed))

    def duty(self, every: timedelta = 3 * EVERY) -> Duty:
        """As a duty; whoever claims an expired job cancels it as well, so there is no hurry."""
        return Duty("cancel_expired", every, self)
