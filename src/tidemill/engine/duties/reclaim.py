"""Reclaim: declares silent workers gone, and settles their jobs as crashed.

Such a job returns to its queue or ends, as its policy decides. ``domain.liveness`` decides which workers are gone; this
duty only reads and writes the store.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import WORKER_BEAT
from tidemill.domain.decide import in_company
from tidemill.domain.job import Claim, Finish
from tidemill.domain.liveness import Observer
from tidemill.domain.outcome import Crashed
from tidemill.engine.duties.settle import PolicyOf, Settle
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(seconds=5)
BATCH = 500
_REMEMBERED = 1_000  # dead workers
_IDLE = 9.0  # seconds between two searches for orphans while this observer declares no worker gone
_NAMED = 20  # maximum number of job ids in one log line


class Reclaim:
    """Checks all workers, and settles one batch of the orphans of those that are gone, the oldest claim first.

    ``decide`` determines what a crash costs a job, depending on whether another job had begun in the same process.
    Later writes of a worker that was wrongly declared gone are rejected because of its old token. ``alive`` names the
    workers that this process sees alive; it never declares them gone. ``beat`` is the interval of the workers'
    heartbeats.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy_of: PolicyOf,
        random: Random,
        *,
        batch: int = BATCH,
        beat: timedelta = WORKER_BEAT,
        alive: Callable[[], Collection[UUID]] = tuple,
    ) -> None:
        self._store, self._clock, self._batch = store, clock, batch
        self._beat, self._alive = beat, alive
        self._observer = Observer(beat)
        self._ask_at = float("-inf")
        self._settle = Settle(store, clock, policy_of, random)
        self._companies = Companies(store)

    def __call__(self) -> Done:
        again = self._observe()
        done = self._reclaim() if self._clock.monotonic() >= self._ask_at else Done()
        if again is None:
            return done
        return done._replace(next_at=self._clock.now() + timedelta(seconds=again))

    def _observe(self) -> float | None:
        """Declare workers gone that have been silent for too long; return the seconds until the next worker may be."""
        sent = self._clock.monotonic()
        try:
            heartbeats = self._store.heartbeats()
        except Exception:
            self._observer.missed()
            raise
        answered = self._clock.monotonic()
        verdict = self._observer.look(heartbeats, sent=sent, answered=answered, alive=self._alive())
        for worker in self._store.declare_gone(verdict.gone) if verdict.gone else ():
            self._ask_at = answered
            _log.warning("worker %s is declared gone: its heartbeat stopped and its lease expired", worker)
        return verdict.again

    def _reclaim(self) -> Done:
        limit = self._batch + self._settle.aside
        orphans = self._store.orphans(limit)
        if not orphans:
            self._ask_at = self._clock.monotonic() + _IDLE
        written = self._settle(orphans, self._companies.outcomes(orphans, cut=len(orphans) >= limit))
        _report(written)
        return Done(len(written), more=len(orphans) >= limit and bool(written))

    def now(self, gone: Collection[UUID]) -> int:
        """Retire workers whose death this process has seen, and reclaim their jobs at once; return the number of jobs.

        May be called from any thread, even while the duty runs on another. If the store fails, the error is raised, and
        the duty does the same a little later.
        """
        self._store.retire(gone, crashed=True)
        items, done = 0, Done(more=True)
        while done.more:
            done = self._reclaim()
            items += done.items
        return items

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. It runs at least once per heartbeat."""
        return Duty("reclaim", min(every, self._beat), self)


class Companies:
    """Determines which jobs of dead workers were alone in their process.

    Another batch or another worker may have settled the other jobs of the process before. So this class caches the
    workers that had several jobs, and asks the store for the other jobs if a batch was truncated.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._crowded: dict[UUID | None, None] = {}

    def outcomes(self, orphans: Sequence[Claim], *, cut: bool) -> Callable[[Claim], Crashed]:
        """A function that returns the outcome of each of these orphans. ``cut`` means that there may be more of them."""
        by_worker: dict[UUID | None, list[Claim]] = defaultdict(list)
        for claim in orphans:
            by_worker[claim.worker].append(claim)
        for worker, claims in by_worker.items():
            if cut and len(claims) == 1 and worker is not None:
                claims = self._store.held(worker)  # noqa: PLW2901  (the same list, complete)
            if in_company(claims):
                self._crowded[worker] = None
        while len(self._crowded) > _REMEMBERED:
            del self._crowded[next(iter(self._crowded))]
        crowded = frozenset(self._crowded)
        return lambda claim: Crashed(f"worker {claim.worker} is gone", alone=claim.worker not in crowded)


def _report(written: Iterable[Finish]) -> None:
    """Log one line for each worker that is gone, with its jobs and their new states."""
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
