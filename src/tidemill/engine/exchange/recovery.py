"""Recovery from store failures. Nothing here runs while the store answers."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.machine import LONGEST_PAUSE
from tidemill.engine.exchange.result_writer import is_trouble, write_again
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.step_runner import ExchangeOwner, StepRunner
from tidemill.errors import StoreBusy, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")


LOOK_BACK = (5.0, 60.0)
"""Seconds after an outage at which the worker compares its jobs with the store.

A database continues to execute a statement after the client has given up on it. By the last comparison, the slowest
statement must have finished.
"""


class Recovery:
    """Finds out, after a failure, which results are written and which jobs this worker holds."""

    def __init__(
        self,
        shared: SharedState,
        steps: StepRunner,
        store: Store,
        clock: Clock,
        worker: UUID,
        owner: ExchangeOwner,
        batch: int,
    ) -> None:
        self._shared, self._machine, self._steps = shared, shared.machine, steps
        self._store, self._clock, self._worker = store, clock, worker
        self._owner, self._batch = owner, batch
        self._doubts = 0  # outages that still require a comparison with the store

    def handle(self, error: StoreError) -> None:
        """Handle a failure of a step that is still counted: recover here, or leave it to a thread that does."""
        self._note(error)
        if isinstance(error, StoreBusy):  # the store did nothing
            with self._shared.changed:
                self._owner.counters.collide("busy")
            self._shared.rest(0.05)
            return
        if self._recover_alone():
            self._doubt()

    def handle_apart(self, error: StoreError) -> None:
        """Like ``handle``, on a thread of its own: recovery takes time, and coroutines must keep running."""
        self._note(error)
        self._shared.begin_step()

        def act() -> None:
            try:
                self.handle(error)
            finally:
                self._shared.end_step()
                with self._shared.changed:
                    self._shared.changed.notify_all()

        self._shared.run_apart(act, "recovery")

    def reconnected(self) -> None:
        """Compare the jobs held here with those the store lists for this worker, after a lost connection is back.

        A restored database, or a standby that took over, may not contain the latest claims.
        """
        if self._owner.holding():
            self._shared.run_apart(self._compare, "look-back")

    def _note(self, error: StoreError) -> None:
        with self._shared.changed:
            is_new = self._machine.store_failed()
        if is_new:
            _log.warning("the store does not respond; running jobs continue: %s", error)

    # One thread alone ----------------------------------------------------------------------------------------------------

    def _recover_alone(self) -> bool:
        """Recover while no other thread uses the store. Returns False if another thread is already recovering.

        The calling thread counts as one step.
        """
        shared, machine = self._shared, self._machine
        with shared.changed:
            if not machine.recovery_begins():
                return False
            shared.calm.wait_for(lambda: machine.alone or machine.closed)
        try:
            self._recover()
        finally:
            with shared.changed:
                machine.recovery_ended()
                shared.changed.notify_all()
                shared.calm.notify_all()
        return True

    def _recover_counted(self) -> bool:
        """Like ``_recover_alone``, for a thread that runs no step."""
        self._shared.begin_step()
        try:
            return self._recover_alone()
        finally:
            self._shared.end_step()

    def _recover(self) -> None:
        """Write results again, verify those the store reports as lost, and compare the held jobs with the store.

        No other thread uses the store during this. Jobs that the store does not list for this worker are stopped; jobs
        that only the store lists are started.
        """
        tries = 0
        while not self._shared.is_closed():
            with self._shared.changed:
                again = self._shared.outbox.take_decided(self._batch)
            try:
                lost = self._write_again(again) if again else frozenset()
                # List the jobs before querying the store: a job claimed after the query must not look missing.
                mine = self._owner.holding()
                held = self._store.held(self._worker)
            except Exception as error:  # noqa: BLE001  (a thread that dies silently would stop the worker)
                if again and not is_trouble(error):
                    self._steps.sort_out(again, error)
                    continue
                self._shared.keep(again)
                with self._shared.changed:
                    self._machine.store_failed()
                tries += 1
                pause = min(LONGEST_PAUSE, 0.05 * 2 ** min(tries, 9))
                self._shared.rest(pause * random.uniform(0.5, 1.0))  # noqa: S311  (not security-relevant)
                continue
            if again:
                self._steps.report_written(again, lost)
            self._steps.note_answer()
            self._reconcile(mine, held)
            return

    def _write_again(self, settled: Sequence[Settled]) -> frozenset[UUID]:
        self._owner.about_to_write(settled)
        return write_again(self._store, settled, self._clock.monotonic())

    def _reconcile(self, mine: Sequence[HeldJob], claims: Sequence[Claim]) -> None:
        """Stop jobs that are not among these claims, and start claims that are not among these jobs.

        A job with a decided result is left alone: the fence accepts or rejects the result when it is written.
        """
        stored = {(claim.id, claim.token) for claim in claims}
        self._owner.lose(
            [held for held in mine if held.is_open and (held.claim.id, held.claim.token) not in stored]
        )
        known = {(held.claim.id, held.claim.token) for held in mine}
        unknown = [claim for claim in claims if (claim.id, claim.token) not in known]
        if unknown:
            _log.info(
                "starting %d jobs that the store assigned to this worker and that are not running",
                len(unknown),
            )
            self._owner.take_over(unknown)

    # Later comparisons ---------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        while not self._shared.is_closed():
            with self._shared.changed:
                # A recovery that is under way may have queried the store before the connection was lost.
                self._shared.calm.wait_for(lambda: not self._machine.recovering or self._machine.closed)
                self._machine.step_begins()
            try:
                if self._recover_alone():
                    return
            finally:
                self._shared.end_step()

    def _doubt(self) -> None:
        """Schedule later comparisons: the store may still execute a claim whose answer never arrived here."""
        with self._shared.changed:
            self._doubts += 1
            alone = self._doubts == 1
        if alone:
            self._shared.run_apart(self._look_back, "look-back")

    def _look_back(self) -> None:
        doubts = 0
        while not self._shared.is_closed():
            with self._shared.changed:
                if self._doubts == doubts:
                    self._doubts = 0
                    return
                doubts = self._doubts
            for seconds in LOOK_BACK:
                self._shared.rest(seconds)
                if self._shared.is_closed():
                    return
                self._recover_counted()
