"""The claimer of a hand, whose hub chooses the lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.lane_reader import REFRESH
from tidemill.engine.exchange.planner import ClaimPlan
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.stores.hub.store import ANY_LANE

SETTINGS = 30.0
"""Seconds for which settings and rules are used without a notice of a change."""


class HandClaimer(Claimer):
    """Requests jobs from any lane. The hub keeps watermarks, pauses and limits, and hands over the slots of limits."""

    def requests(self, plan: ClaimPlan, *, remembered: bool = False) -> Iterator[ClaimRequest]:
        """One request, for whatever lanes the hub chooses."""
        with self._lock:
            tasks = self._tasks(plan.kinds)
        if tasks and self._config.enabled:
            yield ClaimRequest(self._worker, [ANY_LANE], plan.limit, tasks, plan.start)

    def refresh(self) -> None:
        """Read the settings and the rules of limits, if they are due."""
        begun = self._clock.monotonic()
        if begun - self._pauses_at >= SETTINGS:
            # Set before reading: a change during the reading triggers another one.
            self._pauses_at = begun
            try:
                _, settings, rules = self._store.orders()
            except BaseException:
                self.forget_pauses()
                raise
            self._configure(RuntimeSettings.read(settings))
            self._learn(rules)
        self._read_at = self._clock.monotonic()
        self._pause = max(REFRESH, SETTINGS)

    def claimed(self, plan: ClaimPlan, request: ClaimRequest, claims: Sequence[Claim]) -> None:
        """The hub has recorded it."""

    def skipped(self, plan: ClaimPlan, request: ClaimRequest) -> None:
        """There is only one request, which is never skipped."""

    def failed(self, plan: ClaimPlan, request: ClaimRequest) -> None:
        """There is nothing to take back."""

    def handoff_request(self, settled: Sequence[Settled]) -> ClaimRequest | None:
        """The hub claims for all its hands when limits have room again."""
        return None

    def given_back(
        self, settled: Sequence[Settled], request: ClaimRequest | None, claims: Sequence[Claim]
    ) -> bool:
        """Whether slots of limits are left for the next claim."""
        return bool(settled)
