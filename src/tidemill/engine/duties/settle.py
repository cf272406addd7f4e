"""Settling of claims that their worker no longer finishes.

It decides and writes them in one batch, and sends the wake-ups. A job that cannot be settled does not block the others.
The caller chooses the claims and their outcomes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import DEFAULT_POLICY, Policy, decide
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NO_DETAILS, Claim, Details, Finish, Transition
from tidemill.domain.outcome import Outcome
from tidemill.engine.wakeup_topics import topics
from tidemill.errors import StoreBusy, StoreError, StoreUnavailable
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

PolicyOf = Callable[[Claim, Details], Policy]
"""Returns the policy of a job, by its task and by the options of its enqueue call."""

_ASIDE = 60.0  # seconds for which a job that could not be written is skipped


class Settle:
    """Settles claims. Claims that could not be written are set aside for a minute; ``aside`` is their number."""

    def __init__(self, store: Store, clock: Clock, policy_of: PolicyOf, random: Random) -> None:
        self._store, self._clock = store, clock
        self._policy_of, self._random = policy_of, random
        self._aside: dict[tuple[UUID, int], float] = {}
        self._complained: set[str] = set()

    @property
    def aside(self) -> int:
        """The number of jobs set aside. Callers increase their batch by it, so that these jobs do not hide the others."""
        now = self._clock.monotonic()
        for key, until in list(self._aside.items()):
            if until <= now:
                self._aside.pop(key, None)
        return len(self._aside)

    def __call__(self, claims: Sequence[Claim], outcome_of: Callable[[Claim], Outcome]) -> list[Finish]:
        """Settle these claims; return what was written, without those that another process settled first."""
        claims = [claim for claim in claims if (claim.id, claim.token) not in self._aside]
        if not claims:
            return []
        details = self._details(claims)
        finishes = [
            Finish(claim, self._transition(claim, outcome_of(claim), details.get(claim.id, NO_DETAILS)))
            for claim in claims
        ]
        written = self._write(finishes)
        wake(self._store, topics(written))
        return written

    def _details(self, claims: Sequence[Claim]) -> dict[UUID, Details]:
        detailed = [claim.id for claim in claims if claim.detailed]
        jobs = self._store.get(detailed, tenant=ALL_TENANTS) if detailed else []
        return {job.id: job.details for job in jobs}

    def _transition(self, claim: Claim, outcome: Outcome, details: Details) -> Transition:
        now, jitter = self._clock.now(), self._random.random()
        try:
            return decide(claim, outcome, self._policy_of(claim, details), now, jitter)
        except Exception:  # noqa: BLE001  (unknown task or unreadable options: the job must still be settled)
            if claim.task not in self._complained:
                self._complained.add(claim.task)
                _log.exception(
                    "job %s: the policy of task %s cannot be used here; using the default one",
                    claim.id,
                    claim.task,
                )
            return decide(claim, outcome, DEFAULT_POLICY, now, jitter)

    def _write(self, finishes: list[Finish]) -> list[Finish]:
        """Write all at once. If the store rejects the batch, write it in halves to isolate the rejected ones."""
        if not self._store.knows_subscriptions():
            self._store.settings()
        try:
            lost = self._store.finish(finishes)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001  (one bad row must not stop the others)
            if len(finishes) == 1:
                claim = finishes[0].claim
                self._aside[claim.id, claim.token] = self._clock.monotonic() + _ASIDE
                _log.exception("job %s cannot be settled; retrying in a minute", claim.id)
                return []
            half = len(finishes) // 2
            return self._write(finishes[:half]) + self._write(finishes[half:])
        return [finish for finish in finishes if finish.claim.id not in lost]


def wake(store: Store, topics: Iterable[str]) -> None:
    """Send wake-ups for these topics, if any. A failed notification is ignored, because wake-ups are only hints."""
    topics = sorted(topics)
    if topics:
        with contextlib.suppress(StoreError):
            store.notify(topics)
