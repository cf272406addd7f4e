"""Expire: ends jobs past their timeout that their runners could not stop.

A job that is held for a margin beyond its timeout is settled as timed out, and its runner is fenced off. A job that has
not begun when it expires is cancelled.
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
_LEAP = 5.0  # seconds by which the store's clock must run ahead of ours to count as a leap


class Expire:
    """Settles one batch of jobs that have been seen past their timeout for ``margin``, by the monotonic clock.

    The store's clock determines which jobs are overdue, and it may have leapt forward: then jobs seem overdue although
    their runner, by its own monotonic clock, still has time for them. Jobs that are first seen after a leap, or at the
    first look of this process, may have run for a shorter time than it seems. They are settled only after their whole
    timeout and the margin.
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
        self._ripe_at: dict[tuple[UUID, int], float] = {}
        self._ahead: float | None = None  # how far the store's clock was ahead of our monotonic one

    def __call__(self) -> Done:
        limit = self._batch + self._settle.aside
        late = self._store.overdue(limit)
        now = self._clock.monotonic()
        self._look(late, now, leapt=bool(late or self._ahead is None) and self._leapt())
        ripe = [claim for claim in late if now >= self._ripe_at[claim.id, claim.token]]
        written = self._settle(ripe, _timed_out)
        for claim, transition, *_ in written:
            self._ripe_at.pop((claim.id, claim.token), None)
            _log.warning(
                "job %s ran over its timeout on worker %s, which did not stop it; it is %s now",
                claim.id,
                claim.worker,
                transition.state,
            )
        return Done(len(written), more=len(late) >= limit and bool(written))

    def _leapt(self) -> bool:
        """Whether the store's clock has leapt forward since the last look, or this is the first look."""
        ahead = self._store.now().timestamp() - self._clock.monotonic()
        before, self._ahead = self._ahead, ahead
        return before is None or ahead - before > _LEAP

    def _look(self, late: list[Claim], now: float, *, leapt: bool) -> None:
        """Record when each job may be settled. Jobs that are no longer overdue, or were claimed again, are removed."""
        before, self._ripe_at = self._ripe_at, {}
        for claim in late:
            wait = self._margin + (claim.timeout or timedelta(0) if leapt else timedelta(0))
            key = claim.id, claim.token
            self._ripe_at[key] = before.get(key, now + wait.total_seconds())

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("expire", every, self)


def _timed_out(claim: Claim) -> TimedOut:
    assert claim.timeout is not None  # a job without a timeout is never overdue
    return TimedOut(claim.timeout)


class CancelExpired:
    """Cancels one batch of expired jobs that no worker holds, the longest expired first."""

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
        """This duty for the loop. It is not urgent, because a worker that claims an expired job cancels it as well."""
        return Duty("cancel_expired", every, self)
