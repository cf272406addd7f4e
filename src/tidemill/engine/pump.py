"""The pump: writes what has ended and claims what comes next, in one step, again and again.

Batches make themselves: while one step is under way ends pile up, and all of them go with the next. Crash points, where a
process may die between two lines: (1) before a step, the store knows nothing of it; (2) after it, before its answer arrives:
what was claimed is held by us and known to nobody here, which ``_recover`` or our lease's end puts right; (3) after the answer,
before the jobs begin: they are held and charged one crash, as any job of a worker that died.
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
from tidemill.engine.claimer import Claimer
from tidemill.engine.ends import is_trouble, one_by_one
from tidemill.engine.finisher import Settled
from tidemill.engine.mending import LONGEST_PAUSE, Mending, Owner
from tidemill.engine.outbox import Outbox
from tidemill.engine.plan import Plan, Planner
from tidemill.errors import StoreError
from tidemill.stores.base import Step, Store

_log = logging.getLogger("tidemill.engine")

T = TypeVar("T")


class Pump(Mending):
    """The threads that talk to the store for one worker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        worker: UUID,
        planner: Planner,
        claimer: Claimer,
        owner: Owner,
        *,
        threads: int,
        batch: int,
        poll: Callable[[], float],
    ) -> None:
        self._store, self._clock, self._worker, self._owner = store, clock, worker, owner
        self._planner, self._claimer = planner, claimer
        self._batch, self._poll = batch, poll
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        # For those who wait for pumps: were they to wait with them, a knock might wake them in a pump's stead.
        self._calm = threading.Condition(lock)
        self._outbox = Outbox(planner.kinds)
        self.outbox = self._outbox.reached
        # Pumps that wait; read without the lock by those who only want to know whether to knock.
        self._waiting = 0
        self._stepping = 0
        self._recovering = False
        self._doubts = 0  # outages that somebody will look back at
        self._rung = True
        self._tried = False  # where work was found before has been tried since it was rung
        self._claiming = False
        self._closed = threading.Event()
        self._failed: str | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"tidemill-pump-{number}", daemon=True)
            for number in range(threads)
        ]

    # From outside --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim."""
        self._claiming = True
        for thread in self._threads:
            thread.start()

    def knock(self) -> None:
        """Something was put into the outbox."""
        if self._waiting:
            with self.changed:
                self.changed.notify()

    def ring(self) -> None:
        """There may be something to claim."""
        with self.changed:
            self._rung = True
            self._planner.wet()
            self._call()

    def _call(self) -> None:
        """Have somebody come who claims."""
        self.changed.notify()

    def settle(self, settled: Sequence[Settled]) -> None:
        """Write these ends, but where a handler's own came first; nothing more comes from those handlers that counts."""
        with self.changed:
            self._outbox.decide(settled)
            self.changed.notify()

    def pause(self) -> None:
        """Claim nothing more."""
        with self.changed:
            self._claiming = False

    @property
    def store_ok(self) -> bool:
        """Whether the last talk with the store went well."""
        return self._failed is None

    @property
    def quiet(self) -> bool:
        """Nothing is left to write, nothing is under way, and the last look found nothing to claim."""
        with self.changed:
            return self._is_calm() and not self._rung and (not self._claiming or self._planner.plan() is None)

    def flushed(self, timeout: float) -> bool:
        """Wait until all ends are written; False if that takes longer, or is not to be any more."""
        with self.changed:
            self._calm.wait_for(lambda: self._is_calm() or self._closed.is_set(), timeout)
            return self._is_calm()

    def _is_calm(self) -> bool:
        return not self._outbox and not self._stepping

    def close(self, timeout: float = 5.0) -> None:
        """End the threads; what is not written by now is left to the lease's end."""
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
            except Exception:  # noqa: BLE001  (a pump that dies silently would stop the worker)
                _log.exception("the pump stumbled and goes on")
                self.rest(1.0)
            finally:
                self._stepped()

    def _stepped(self) -> None:
        with self.changed:
            self._stepping -= 1
            self._calm.notify_all()

    def _next(self) -> tuple[list[Settled], Plan | None] | None:
        """What to do next, waited for; None: nothing ever again."""
        with self.changed:
            # Before the look at the outbox, so that whoever fills it after the look does knock.
            self._waiting += 1
            try:
                while not self._closed.is_set():
                    settled, plan = self._look()
                    if settled or plan is not None:
                        self._stepping += 1
                        # Whoever has work calls the next one if there is more: to wake one who finds nothing costs much.
                        if self._waiting > 1 and (self._outbox or self._planner.hot):
                            self.changed.notify()
                        return settled, plan
                    self.changed.wait(self._idle())
            finally:
                self._waiting -= 1
            return None

    def _look(self) -> tuple[list[Settled], Plan | None]:
        if self._recovering:
            return [], None
        settled = self._outbox.take(self._batch, self._clock.monotonic())
        plan = self._planner.plan() if self._claiming else None
        if plan is not None:
            self._planner.begin(plan)
        return settled, plan

    def _idle(self) -> float | None:
        """Seconds to wait; when a poll is due, there may be something to claim again."""
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
        self, settled: list[Settled], plan: Plan | None, on_trouble: Callable[[StoreError], None]
    ) -> None:
        def act() -> int:
            self._hand_on(settled)
            return len(self._talk(settled)) if plan is None else self._talk_and_claim(settled, plan)

        self._act(settled, plan, act, on_trouble)

    def _act(
        self,
        settled: list[Settled],
        plan: Plan | None,
        act: Callable[[], int],
        on_trouble: Callable[[StoreError], None],
    ) -> None:
        """Do a step, which says how many it claimed. What it could not write is kept, or sorted out."""
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
                    if self._rung:  # meanwhile, or for nothing: what it was rung for is still to be found
                        self._planner.wet()

    def _talk_and_claim(self, settled: list[Settled], plan: Plan) -> int:
        rung, self._rung = self._rung, False
        tried, self._tried = self._tried, False
        if not rung or tried or self._claimer.must_look:
            if tried and settled:
                self._talk(
                    settled, None
                )  # whoever waits for these ends does not wait until we have looked around
            if rung or self._claimer.is_stale():
                self._claimer.refresh()
            return self._talk_about(settled, plan, self._claimer.requests(plan))
        # Who was rung tries first where work was found before: that is one round trip to the job. Then he looks around.
        claimed = self._talk_about(settled, plan, self._claimer.requests(plan, remembered=True))
        if claimed >= plan.limit and not self._claimer.is_old():
            return claimed
        self._claimer.refresh()
        if claimed >= plan.limit:
            return claimed
        rest = plan._replace(limit=plan.limit - claimed)
        return claimed + self._talk_about([], rest, self._claimer.requests(rest))

    def _talk_about(self, settled: list[Settled], plan: Plan, requests: Iterator[ClaimRequest]) -> int:
        """Write these ends and claim what is requested, the ends with the first of it."""
        claimed, dry = 0, False
        for request in requests:
            if claimed < request.limit and (request.rules or not dry):
                found = len(self._talk(settled, plan, request._replace(limit=request.limit - claimed)))
                claimed += found
                # Where nobody had more than a share, there is nothing left to ask for beyond the shares.
                dry = not request.rules and found < min(lane.quota for lane in request.lanes)
            if claimed >= plan.limit:
                break
        self._talk(settled)
        return claimed

    def _hand_on(self, settled: list[Settled]) -> None:
        """Write the ends of jobs that count against limits; others behind the same gates take over what they give back."""
        counted = [item for item in settled if item.claim.limits] if self._claimer.counts else []
        if not counted:
            return
        others = [item for item in settled if not item.claim.limits]
        ends = list(counted)
        request = self._claimer.heirs(counted) if self._claiming else None
        try:
            claims = self._talk(counted, None, request)
        finally:
            settled[:] = counted + others  # what is not written yet
        if self._claimer.given_back(ends, request, claims):
            with self.changed:
                self._planner.wet()

    def _talk(
        self,
        settled: list[Settled],
        plan: Plan | None = None,
        request: ClaimRequest | None = None,
        answer: Callable[[], Step] | None = None,
    ) -> Sequence[Claim]:
        """One step: write these ends and claim; what was claimed. ``settled`` is emptied once it is written. Where that was asked
        for already, this is how the ``answer`` is had.
        """
        claims: Sequence[Claim] = ()
        if settled:
            if request is None:
                lost = self._store.finish(self._finishes(settled))
            else:
                ask = answer or partial(self._store.step, self._finishes(settled), request)
                lost, claims = self._ask(plan, request, ask)
            written = list(settled)
            settled.clear()
            self._owner.written(written, lost)
        elif request is not None:
            claims = self._ask(plan, request, lambda: self._store.claim(request))
        else:
            return ()
        if self._failed is not None:
            self._recovered()
        if request is not None:
            with self.changed:
                self._owner.tally.claim(request.limit, len(claims))
            if plan is not None:
                self._claimer.claimed(plan, request, claims)
        if claims:
            self._owner.take_over(claims)
        return claims

    def _finishes(self, settled: Sequence[Settled]) -> list[Finish]:
        self._owner.about_to_write(settled)
        at = self._clock.monotonic()
        return [item.finish(at) for item in settled]

    def _ask(self, plan: Plan | None, request: ClaimRequest, ask: Callable[[], T]) -> T:
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
        """The store refuses something in the batch: what, is found out."""
        written, lost, left = one_by_one(self._store, self._clock, settled, error)
        self._keep(left)
        if written:
            self._owner.written(written, lost)

    def rest(self, seconds: float) -> None:
        """Wait so long, or until the end."""
        self._closed.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether this is the end."""
        return self._closed.is_set()
