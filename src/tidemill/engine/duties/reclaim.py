"""Reclaim: jobs whose worker is gone are settled as crashed, and go back to their queue or end as the rule book says."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim, Finish
from tidemill.domain.outcome import Crashed
from tidemill.engine.duties.settle import PolicyOf, Settle
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(seconds=5)
BATCH = 500
_NAMED = 20  # the most jobs named in one line of the log


class Reclaim:
    """One batch of orphans, the oldest claim first.

    Each job costs one crash. What a worker that was thought dead still writes is fenced off by its old token.
    """

    def __init__(
        self, store: Store, clock: Clock, policy_of: PolicyOf, random: Random, *, batch: int = BATCH
    ) -> None:
        self._store, self._batch = store, batch
        self._settle = Settle(store, clock, policy_of, random)

    def __call__(self) -> Done:
        limit = self._batch + self._settle.aside
        orphans = self._store.orphans(limit)
        written = self._settle(orphans, _crashed)
        _report(written)
        return Done(len(written), more=len(orphans) >= limit and bool(written))

    def now(self, gone: Collection[UUID]) -> int:
        """These workers have died before our eyes: retire them, and reclaim at once what they held; how many jobs.

        May be called from any thread, also while the duty runs on another. If the store fails, it says so, and the duty does
        the same a little later.
        """
        self._store.retire(gone)
        items, done = 0, Done(more=True)
        while done.more:
            done = self()
            items += done.items
        return items

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("reclaim", every, self)


def _crashed(claim: Claim) -> Crashed:
    return Crashed(f"worker {claim.worker} is gone")


def _report(written: Iterable[Finish]) -> None:
    """One line for each worker that is gone: its jobs, and where they went."""
    by_worker: dict[UUID | None, list[str]] = defaultdict(list)
    for claim, transition, *_ in written:
        by_worker[claim.worker].append(f"{claim.id} ({transition.state})")
    for worker, jobs in by_worker.items():
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        _log.warning(
            "worker %s is gone, %d of its jobs reclaimed: %s%s",
            worker,
            len(jobs),
            ", ".join(jobs[:_NAMED]),
            more,
        )
