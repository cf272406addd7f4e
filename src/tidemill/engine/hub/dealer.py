"""Claims for the asks of many hands, from the lanes that suit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.deals import Ask, DealRequest, remaining, trimmed
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import Lane
from tidemill.domain.schedule_fires import NODE_QUEUE
from tidemill.engine.exchange.planner import ClaimPlan, ExecutorLoad, Planner
from tidemill.engine.exchange.sources import Claimer
from tidemill.stores.base import StepResult, Store

_KIND = "hands"
_NOBODY = UUID(int=0)


class AskGroup(NamedTuple):
    """The common properties of asks that are dealt together."""

    tenant: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...]


class GroupClaimer(Claimer):
    """Plans the claims of one group of asks."""

    def __init__(self, store: Store, clock: Clock, group: AskGroup) -> None:
        load = ExecutorLoad(_KIND, slots=2**31 - 1, tasks=group.tasks)
        planner = Planner({_KIND: load}, buffer=0.0, batch=2**31 - 1)
        super().__init__(store, clock, _NOBODY, group.queues, planner)
        self._tenant = group.tenant

    def _serves(self, lane: Lane) -> bool:
        # Jobs for one machine belong to the workers that run there.
        return self._tenant in (ALL_TENANTS, lane.tenant) and not lane.queue.startswith(NODE_QUEUE)


class Dealer:
    """Deals jobs to one group of hands. Only one thread uses it."""

    def __init__(self, store: Store, clock: Clock, group: AskGroup) -> None:
        self._store, self._claimer = store, GroupClaimer(store, clock, group)
        self.rung = True  #: whether there may be jobs in lanes that were empty

    def forget(self) -> None:
        """Read pauses, limits and lanes again after a change."""
        self._claimer.forget_pauses()
        self.rung = True

    @property
    def retry_at(self) -> float:
        """When limits may have room again, by the monotonic clock."""
        return self._claimer.retry_at

    def deal(self, finishes: Sequence[Finish], asks: Sequence[Ask], *, start: bool) -> StepResult:
        """Write these finishes, of any hands, and claim jobs for these asks."""
        claimer, rung = self._claimer, self.rung
        looked = claimer.must_look or claimer.is_stale()
        self.rung = False
        deal = _Deal(self._store, claimer, finishes, asks, start)
        try:
            if looked:
                claimer.refresh()
            deal.claim(remembered=rung and not looked)
            if deal.left and rung and not looked:
                claimer.refresh()
                deal.claim(remembered=False)
            deal.write()
        except BaseException:
            self.rung = True
            raise
        return StepResult(deal.lost, deal.claims)


class _Deal:
    """One deal, as far as it is done."""

    def __init__(
        self,
        store: Store,
        claimer: GroupClaimer,
        finishes: Sequence[Finish],
        asks: Sequence[Ask],
        start: bool,
    ) -> None:
        self._store, self._claimer, self._finishes, self._start = store, claimer, finishes, start
        self.left = [ask for ask in asks if ask.limit > 0]
        self.lost: frozenset[UUID] = frozenset()
        self.claims: list[Claim] = []

    def claim(self, *, remembered: bool) -> None:
        """Claim from the known lanes until all asks are filled."""
        limit = sum(ask.limit for ask in self.left)
        plan = ClaimPlan((_KIND,), limit, self._start, limit)
        before = len(self.claims)
        for request in self._claimer.requests(plan, remembered=remembered) if limit else ():
            if len(self.claims) - before < request.limit:
                most = request.limit - (len(self.claims) - before)
                wanted = request._replace(limit=most)
                try:
                    claims = self._step(
                        DealRequest(
                            trimmed(self.left, most), wanted.lanes, wanted.tasks, self._start, wanted.rules
                        )
                    )
                except BaseException:
                    self._claimer.failed(plan, wanted)
                    raise
                self._claimer.claimed(plan, wanted, claims)
                self.left = remaining(self.left, claims)
            elif request.rules:
                self._claimer.skipped(plan, request)
            if not self.left:
                break

    def _step(self, request: DealRequest) -> list[Claim]:
        step = self._store.deal(self._finishes, request)
        self.lost |= step.lost
        self._finishes = ()
        self.claims += step.claims
        return step.claims

    def write(self) -> None:
        """Write the finishes, if no claim has done so."""
        if self._finishes:
            self.lost |= self._store.finish(self._finishes)
            self._finishes = ()
