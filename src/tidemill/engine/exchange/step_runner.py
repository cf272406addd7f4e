"""One step: write results and claim jobs in one exchange with the store.

A process may crash at three points:

1. Before a step: the store is unchanged.
2. After a step, before its answer arrives: the store lists claims that this process has not seen. ``Recovery`` or the
   expiry of the lease resolves that.
3. After the answer, before the jobs start: the worker holds them. Each is charged one crash, like any job of a
   crashed worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.node_results import NO_STARTS, JobStarts
from tidemill.engine.exchange.finisher import Settled, finishes_of
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.machine import LaneLook, Wakeup
from tidemill.engine.exchange.planner import ClaimPlan
from tidemill.engine.exchange.result_writer import is_trouble, look_up_completed, one_by_one
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.exchange.start_deadlines import Stamp
from tidemill.engine.runner.counters import Counters
from tidemill.errors import StoreError
from tidemill.stores.base import ReadStepResult, StepResult, Store
from tidemill.stores.step_pipeline import StepPipeline

_log = logging.getLogger("tidemill.engine")

T = TypeVar("T")

OnTrouble = Callable[[StoreError], None]
"""Called when the store fails, while the step is still counted."""


class ExchangeOwner(Protocol):
    """The object that the exchange claims and writes for.

    The exchange records claim statistics in its counters, under the lock of the exchange.
    """

    counters: Counters

    def take_over(
        self, claims: Sequence[Claim], dated: float | None = None, starts: JobStarts = NO_STARTS
    ) -> None: ...

    def about_to_write(self, settled: Sequence[Settled]) -> None: ...

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None: ...

    def holding(self) -> list[HeldJob]: ...

    def lose(self, jobs: Iterable[HeldJob]) -> None: ...


class StepInFlight(NamedTuple):
    """A step that was sent and is not answered yet."""

    settled: list[Settled]
    plan: ClaimPlan
    request: ClaimRequest


class StepRunner:
    """Runs steps on the calling thread."""

    def __init__(
        self,
        shared: SharedState,
        store: Store,
        clock: Clock,
        claimer: Claimer,
        owner: ExchangeOwner,
        may_claim: Callable[[], bool],
    ) -> None:
        self._shared, self._machine = shared, shared.machine
        self._store, self._clock, self._claimer, self._owner = store, clock, claimer, owner
        self._may_claim = may_claim
        self.completed = 0  #: completed exchanges with the store

    # Steps ---------------------------------------------------------------------------------------------------------------

    def run(self, settled: list[Settled], plan: ClaimPlan | None, on_trouble: OnTrouble) -> None:
        """Write these results and make this claim."""

        def act() -> int:
            self._hand_on(settled)
            return len(self._exchange(settled)) if plan is None else self._write_and_claim(settled, plan)

        self._guarded(settled, plan, act, on_trouble)

    def may_send_ahead(self) -> bool:
        """Whether a step may be sent before the previous one is answered: nothing has to be read first."""
        claimer = self._claimer
        return (
            not (claimer.counts or claimer.must_look or claimer.is_stale())
            and self._machine.wakeup is Wakeup.NONE
            and self._may_claim()
        )

    def send_ahead(
        self, pipeline: StepPipeline, settled: list[Settled], plan: ClaimPlan
    ) -> StepInFlight | None:
        """Send a step without waiting for its answer. Returns None if nothing was sent."""
        requests = list(self._claimer.requests(plan))
        if len(requests) != 1 or not pipeline.send(self._finishes(settled), requests[0]):
            return None
        return StepInFlight(settled, plan, requests[0])

    def receive(self, flight: StepInFlight, answer: Callable[[], StepResult], on_trouble: OnTrouble) -> None:
        """Handle the answer to a step that was sent ahead."""
        settled, plan, request = flight
        self._guarded(settled, plan, lambda: len(self._exchange(settled, plan, request, answer)), on_trouble)

    def _guarded(
        self, settled: list[Settled], plan: ClaimPlan | None, act: Callable[[], int], on_trouble: OnTrouble
    ) -> None:
        """Run a step, which returns the number of claimed jobs.

        On failure, keep unwritten results or write them one by one.
        """
        claimed: int | None = None
        try:
            claimed = act()
        except Exception as error:
            if is_trouble(error):
                self._shared.keep(settled)
                on_trouble(error)
            elif settled:
                self.sort_out(settled, error)
            else:
                raise
        finally:
            if plan is not None:
                with self._shared.changed:
                    self._machine.claim_ended(plan, claimed)

    def _write_and_claim(self, settled: list[Settled], plan: ClaimPlan) -> int:
        claimer = self._claimer
        with self._shared.changed:
            look = self._machine.claim_begins(must_look=claimer.must_look)
        if look is LaneLook.TRY:
            claimed = self._claim(settled, plan, claimer.requests(plan, remembered=True))
            with self._shared.changed:
                self._machine.tried()
            return claimed
        if look is LaneLook.TRY_THEN_READ:
            return self._try_then_read(settled, plan)
        if look is LaneLook.WRITE_THEN_READ and settled:
            self._exchange(settled)
        if look not in (LaneLook.KNOWN, LaneLook.FOLLOW) or claimer.is_stale():
            claimer.refresh()
        return self._claim(settled, plan, claimer.requests(plan, remembered=look is LaneLook.FOLLOW))

    def _try_then_read(self, settled: list[Settled], plan: ClaimPlan) -> int:
        claimer = self._claimer
        claimed = self._claim(settled, plan, claimer.requests(plan, remembered=True))
        if claimed < plan.limit or claimer.is_old():
            claimer.refresh()
        if claimed < plan.limit:
            rest = plan._replace(limit=plan.limit - claimed)
            claimed += self._claim([], rest, claimer.requests(rest))
        return claimed

    def _claim(self, settled: list[Settled], plan: ClaimPlan, requests: Iterator[ClaimRequest]) -> int:
        """Write these results with the first request, then continue claiming until the plan is full."""
        claimed = 0
        for request in requests:
            if claimed < request.limit:
                claimed += len(self._exchange(settled, plan, request._replace(limit=request.limit - claimed)))
            elif request.rules:
                self._claimer.skipped(plan, request)
            if claimed >= plan.limit:
                break
        self._exchange(settled)
        return claimed

    def _hand_on(self, settled: list[Settled]) -> None:
        """Write results of jobs that count against limits, and claim jobs that reuse the released limit slots."""
        counted = [item for item in settled if item.claim.limits] if self._claimer.counts else []
        if not counted:
            return
        others = [item for item in settled if not item.claim.limits]
        ends = list(counted)
        may_claim = self._machine.claiming and not self._shared.planner.shut
        request = self._claimer.handoff_request(counted) if may_claim else None
        try:
            claims = self._exchange(counted, None, request)
        finally:
            settled[:] = counted + others  # those not written yet
        if self._claimer.given_back(ends, request, claims):
            with self._shared.changed:
                self._machine.slots_returned()

    # One exchange --------------------------------------------------------------------------------------------------------

    def _exchange(
        self,
        settled: list[Settled],
        plan: ClaimPlan | None = None,
        request: ClaimRequest | None = None,
        answer: Callable[[], StepResult] | None = None,
    ) -> Sequence[Claim]:
        """Write these results and claim in one call. Returns the claims; ``settled`` is empty once it is written.

        If the request has already been sent, ``answer`` returns its result.
        """
        if answer is None and request is not None and not self._may_claim():
            request = None  # the worker's lease may have expired, so only write results
        if not settled and request is None:
            return ()
        stamp = Stamp(self._clock)
        if request is not None and self._claimer.rates:
            request = request._replace(dating=stamp)
        claims, starts = self._call(settled, plan, request, answer)
        self.completed += 1
        if not self._machine.store_ok:
            self.note_answer()
        if request is not None:
            with self._shared.changed:
                self._owner.counters.claim(request.limit, len(claims))
            if plan is not None:
                self._claimer.claimed(plan, request, claims)
        if claims:
            self._owner.take_over(claims, stamp.at, starts)
        return claims

    def _call(
        self,
        settled: list[Settled],
        plan: ClaimPlan | None,
        request: ClaimRequest | None,
        answer: Callable[[], StepResult] | None,
    ) -> tuple[Sequence[Claim], JobStarts]:
        """Make the call that the results and the request need."""
        if not settled:
            assert request is not None
            return self._asked(plan, request, partial(self._store.claim, request)), NO_STARTS
        claims: Sequence[Claim] = ()
        starts = NO_STARTS
        if request is None:
            lost = self._store.finish(self._finishes(settled))
        else:
            ask = answer or partial(self._store.step, self._finishes(settled), request)
            lost, claims = step = self._asked(plan, request, ask)
            if isinstance(step, ReadStepResult):
                starts = step.starts
        written = list(settled)
        settled.clear()
        self.report_written(written, lost)
        return claims, starts

    def _finishes(self, settled: Sequence[Settled]) -> list[Finish]:
        self._owner.about_to_write(settled)
        return finishes_of(settled, self._clock.monotonic())

    def _asked(self, plan: ClaimPlan | None, request: ClaimRequest, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except BaseException:
            with self._shared.changed:
                self._owner.counters.claim(request.limit, None)
            if plan is not None:
                self._claimer.failed(plan, request)
            raise

    # Answers -------------------------------------------------------------------------------------------------------------

    def note_answer(self) -> None:
        """Record that the store has answered."""
        with self._shared.changed:
            is_new = self._machine.store_answered()
        if is_new:
            _log.warning("the store responds again")

    def sort_out(self, settled: list[Settled], error: Exception) -> None:
        """Write the results one by one to find those that the store refuses."""
        written, lost, left = one_by_one(self._store, self._clock, settled, error)
        self._shared.keep(left)
        if written:
            self.report_written(written, lost)

    def report_written(self, settled: list[Settled], lost: frozenset[UUID]) -> None:
        """Report written results to the owner. Results that could not be verified are kept."""
        if lost:
            settled, lost, doubtful = look_up_completed(self._store, settled, lost)
            self._shared.keep(doubtful)
        self._owner.written(settled, lost)
