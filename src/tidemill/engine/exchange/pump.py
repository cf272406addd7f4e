"""The pump: writes outcomes and claims jobs, both in one step, in a loop.

Outcomes that arrive during a step are written together by the next one. A process may crash at three points:

1. Before a step: the store is unchanged.
2. After a step, before its answer arrives: the store lists claims that this process has not seen. ``_recover`` or the
   expiry of the lease resolves that.
3. After the answer, before the jobs start: the worker holds them. Each is charged one crash, like any job of a
   crashed worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.engine.exchange.claimer import Claimer
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.outbox import Outbox
from tidemill.engine.exchange.planner import ClaimPlan, Planner
from tidemill.engine.exchange.recovery import LONGEST_PAUSE, ExchangeOwner, Recovery
from tidemill.engine.exchange.result_writer import is_trouble, look_up_completed, one_by_one
from tidemill.engine.exchange.start_deadlines import Stamp
from tidemill.errors import StoreError
from tidemill.stores.base import StepResult, Store

_log = logging.getLogger("tidemill.engine")

T = TypeVar("T")


class Pump(Recovery):
    """Threads that exchange outcomes and claims with the store for one worker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        worker: UUID,
        planner: Planner,
        claimer: Claimer,
        owner: ExchangeOwner,
        *,
        threads: int,
        batch: int,
        poll: Callable[[], float],
        may_claim: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._clock, self._worker, self._owner = store, clock, worker, owner
        self._planner, self._claimer = planner, claimer
        self._batch, self._poll, self._may_claim = batch, poll, may_claim
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        # A second condition for threads that wait for pump threads. With a shared one, ``notify`` might wake the wrong
        # thread.
        self._calm = threading.Condition(lock)
        self._outbox = Outbox(planner.kinds)
        self.outbox = self._outbox.reached
        # Number of waiting pump threads. ``knock`` reads it without the lock.
        self._waiting = 0
        self._stepping = 0
        self._recovering = False
        self._doubts = 0  # outages that still require a comparison with the store
        self._rung = True
        self._tried = False  # whether the lanes that recently had work have been tried since the last ring
        self._claiming = False
        self._closed = threading.Event()
        self._failed: str | None = None
        self.steps = 0  #: completed exchanges with the store
        self._threads = [
            threading.Thread(target=self._run, name=f"tidemill-pump-{number}", daemon=True)
            for number in range(threads)
        ]

    # Interface --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start claiming."""
        self._claiming = True
        for thread in self._threads:
            thread.start()

    def knock(self) -> None:
        """Wake a pump thread because the outbox has a new entry."""
        if self._waiting:
            with self.changed:
                self.changed.notify()

    def ring(self) -> None:
        """Wake a pump thread because there may be something to claim."""
        with self.changed:
            self._rung = True
            self._planner.wet()
            self._call()

    def _call(self) -> None:
        """Wake a thread that claims."""
        self.changed.notify()

    def settle(self, settled: Sequence[Settled]) -> None:
        """Queue these outcomes, except for jobs whose handler already has one.

        Later outcomes of these handlers are ignored.
        """
        with self.changed:
            self._outbox.decide(settled)
            self.changed.notify()

    def pause(self) -> None:
        """Stop claiming."""
        with self.changed:
            self._claiming = False

    @property
    def store_ok(self) -> bool:
        """Whether the last exchange with the store succeeded."""
        return self._failed is None

    @property
    def owes_a_step(self) -> bool:
        """Whether there is something to write or to claim, or a step is under way."""
        with self.changed:
            claims = self._claiming and self._rung and self._planner.plan() is not None
            return not self._is_calm() or claims

    @property
    def quiet(self) -> bool:
        """Whether the outbox is empty, no step is under way, and the last claim found nothing."""
        with self.changed:
            return self._is_calm() and not self._rung and (not self._claiming or self._planner.plan() is None)

    def flushed(self, timeout: float) -> bool:
        """Wait until all outcomes are written. Returns False on timeout or if the pump is closed."""
        with self.changed:
            self._calm.wait_for(lambda: self._is_calm() or self._closed.is_set(), timeout)
            return self._is_calm()

    def _is_calm(self) -> bool:
        return not self._outbox and not self._stepping

    def close(self, timeout: float = 5.0) -> None:
        """End the threads. Jobs whose outcomes are unwritten are recovered when the lease expires."""
        with self.changed:
            self._claiming = False
            self._closed.set()
            self.changed.notify_all()
            self._calm.notify_all()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout)

    # The loop ------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            settled, plan = work
            try:
                self._step(settled, plan, self._trouble)
            except Exception:  # noqa: BLE001  (a pump thread that dies silently would stop the worker)
                _log.exception("unexpected error in the claim loop; continuing")
                self.rest(1.0)
            finally:
                self._stepped()

    def _stepped(self) -> None:
        with self.changed:
            self._stepping -= 1
            self._calm.notify_all()

    def _next(self) -> tuple[list[Settled], ClaimPlan | None] | None:
        """Wait for the next outcomes and claim; None once the pump is closed."""
        with self.changed:
            # Increment before checking the outbox, so that a thread that fills it after the check notifies us.
            self._waiting += 1
            try:
                while not self._closed.is_set():
                    settled, plan = self._look()
                    if settled or plan is not None:
                        self._stepping += 1
                        # A thread with work wakes the next one only if there is more: a needless wake-up is expensive.
                        if self._waiting > 1 and (self._outbox or self._planner.hot):
                            self.changed.notify()
                        return settled, plan
                    self.changed.wait(self._idle())
            finally:
                self._waiting -= 1
            return None

    def _look(self) -> tuple[list[Settled], ClaimPlan | None]:
        if self._recovering:
            return [], None
        settled = self._outbox.take(self._batch, self._clock.monotonic())
        plan = self._planner.plan() if self._claiming else None
        if plan is not None:
            self._planner.begin(plan)
        return settled, plan

    def _idle(self) -> float | None:
        """Return the seconds to wait. When a poll is due, claiming is allowed again."""
        if not self._claiming or self._recovering:
            return None
        left = self._poll()
        if left > 0:
            return left
        self._rung = True
        self._planner.wet()
        return 0.0 if self._planner.plan() is not None else LONGEST_PAUSE

    # Steps -----------------------------------------------------------------------------------------------------------------

    def _step(
        self, settled: list[Settled], plan: ClaimPlan | None, on_trouble: Callable[[StoreError], None]
    ) -> None:
        def act() -> int:
            self._hand_on(settled)
            return len(self._talk(settled)) if plan is None else self._talk_and_claim(settled, plan)

        self._act(settled, plan, act, on_trouble)

    def _act(
        self,
        settled: list[Settled],
        plan: ClaimPlan | None,
        act: Callable[[], int],
        on_trouble: Callable[[StoreError], None],
    ) -> None:
        """Run a step, which returns the number of claimed jobs.

        On failure, keep unwritten outcomes or write them one by one.
        """
        claimed: int | None = None
        try:
            claimed = act()
        except Exception as error:
            if is_trouble(error):
                self._keep(settled)
                on_trouble(error)
            elif settled:
                self._sort_out(settled, error)
            else:
                raise
        finally:
            if plan is not None:
                with self.changed:
                    self._planner.end(plan, claimed)
                    self._rung = self._rung or claimed is None
                    # Rung during the step, or the claim failed: the announced jobs are still unclaimed.
                    if self._rung:
                        self._planner.wet()

    def _talk_and_claim(self, settled: list[Settled], plan: ClaimPlan) -> int:
        rung, self._rung = self._rung, False
        tried, self._tried = self._tried, False
        if not rung or tried or self._claimer.must_look:
            if tried and settled:
                # Write first: clients that wait for these outcomes must not wait until all lanes are listed.
                self._talk(settled, None)
            if rung or self._claimer.is_stale():
                self._claimer.refresh()
            return self._talk_about(settled, plan, self._claimer.requests(plan))
        # After a wake-up, first try the lanes that recently had work: that takes one round trip. Then list all lanes.
        claimed = self._talk_about(settled, plan, self._claimer.requests(plan, remembered=True))
        if claimed >= plan.limit and not self._claimer.is_old():
            return claimed
        self._claimer.refresh()
        if claimed >= plan.limit:
            return claimed
        rest = plan._replace(limit=plan.limit - claimed)
        return claimed + self._talk_about([], rest, self._claimer.requests(rest))

    def _talk_about(self, settled: list[Settled], plan: ClaimPlan, requests: Iterator[ClaimRequest]) -> int:
        """Write these outcomes with the first request, then continue claiming until the plan is full."""
        claimed = 0
        for request in requests:
            if claimed < request.limit:
                claimed += len(self._talk(settled, plan, request._replace(limit=request.limit - claimed)))
            elif request.rules:
                self._claimer.skipped(plan, request)
            if claimed >= plan.limit:
                break
        self._talk(settled)
        return claimed

    def _hand_on(self, settled: list[Settled]) -> None:
        """Write outcomes of jobs that count against limits, and claim jobs that reuse the released limit slots."""
        counted = [item for item in settled if item.claim.limits] if self._claimer.counts else []
        if not counted:
            return
        others = [item for item in settled if not item.claim.limits]
        ends = list(counted)
        request = (
            self._claimer.handoff_request(counted) if self._claiming and not self._planner.shut else None
        )
        try:
            claims = self._talk(counted, None, request)
        finally:
            settled[:] = counted + others  # those not written yet
        if self._claimer.given_back(ends, request, claims):
            with self.changed:
                self._planner.wet()

    def _talk(
        self,
        settled: list[Settled],
        plan: ClaimPlan | None = None,
        request: ClaimRequest | None = None,
        answer: Callable[[], StepResult] | None = None,
    ) -> Sequence[Claim]:
        """Write these outcomes and claim in one step. Returns the claims; ``settled`` is empty once it is written.

        If the request has already been sent, ``answer`` returns its result.
        """
        claims: Sequence[Claim] = ()
        if answer is None and request is not None and not self._may_claim():
            request = None  # the worker's lease may have expired, so only write outcomes
        stamp = Stamp(self._clock)
        if request is not None and self._claimer.rates:
            request = request._replace(dating=stamp)
        if settled:
            if request is None:
                lost = self._store.finish(self._finishes(settled))
            else:
                ask = answer or partial(self._store.step, self._finishes(settled), request)
                lost, claims = self._ask(plan, request, ask)
            written = list(settled)
            settled.clear()
            self._tell_written(written, lost)
        elif request is not None:
            claims = self._ask(plan, request, lambda: self._store.claim(request))
        else:
            return ()
        self.steps += 1
        if self._failed is not None:
            self._recovered()
        if request is not None:
            with self.changed:
                self._owner.tally.claim(request.limit, len(claims))
            if plan is not None:
                self._claimer.claimed(plan, request, claims)
        if claims:
            self._owner.take_over(claims, stamp.at)
        return claims

    def _finishes(self, settled: Sequence[Settled]) -> list[Finish]:
        self._owner.about_to_write(settled)
        at = self._clock.monotonic()
        return [item.finish(at) for item in settled]

    def _ask(self, plan: ClaimPlan | None, request: ClaimRequest, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except BaseException:
            with self.changed:
                self._owner.tally.claim(request.limit, None)
            if plan is not None:
                self._claimer.failed(plan, request)
            raise

    def _keep(self, settled: list[Settled]) -> None:
        with self.changed:
            self._outbox.keep(settled)

    def _sort_out(self, settled: list[Settled], error: Exception) -> None:
        """Write the outcomes one by one to find those that the store refuses."""
        written, lost, left = one_by_one(self._store, self._clock, settled, error)
        self._keep(left)
        if written:
            self._tell_written(written, lost)

    def _tell_written(self, settled: list[Settled], lost: frozenset[UUID]) -> None:
        """Report written outcomes to the owner. Outcomes that could not be verified are kept."""
        if lost:
            settled, lost, doubtful = look_up_completed(self._store, settled, lost)
            self._keep(doubtful)
        self._owner.written(settled, lost)

    def rest(self, seconds: float) -> None:
        """Wait this many seconds, or until the pump is closed."""
        self._closed.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether the pump is closed."""
        return self._closed.is_set()
