"""Recovery of the pump from store failures.

These methods belong to the pump. They are in a module of their own because none of them runs while the store answers.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.outbox import Outbox
from tidemill.engine.exchange.planner import Planner
from tidemill.engine.exchange.result_writer import is_trouble, write_again
from tidemill.engine.runner.counters import Counters
from tidemill.errors import StoreBusy, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

LONGEST_PAUSE = 2.0
"""Longest pause, in seconds, between two attempts while the store does not answer."""


LOOK_BACK = (5.0, 60.0)
"""Seconds after an outage at which the pump compares its jobs with the store.

A database continues to execute a statement after the client has given up on it. By the last comparison, the slowest
statement must have finished.
"""


class ExchangeOwner(Protocol):
    """The object that the pump claims and writes for.

    The pump records claim statistics in its tally, under the pump's lock.
    """

    tally: Counters

    def take_over(self, claims: Sequence[Claim], dated: float | None = None) -> None: ...

    def about_to_write(self, settled: Sequence[Settled]) -> None: ...

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None: ...

    def holding(self) -> list[HeldJob]: ...

    def lose(self, jobs: Iterable[HeldJob]) -> None: ...


class Recovery:
    """Mixin of the pump that handles store failures."""

    changed: threading.Condition
    rest: Callable[[float], None]
    _store: Store
    _clock: Clock
    _worker: UUID
    _owner: ExchangeOwner
    _planner: Planner
    _outbox: Outbox
    _batch: int
    _calm: threading.Condition
    _closed: threading.Event
    _stepping: int
    _recovering: bool
    _doubts: int
    _rung: bool
    _failed: str | None
    _keep: Callable[[list[Settled]], None]
    _sort_out: Callable[[list[Settled], Exception], None]
    _tell_written: Callable[[list[Settled], frozenset[UUID]], None]
    _stepped: Callable[[], None]

    def _trouble(self, error: StoreError) -> None:
        """Handle a store failure: keep unwritten outcomes, and find out which jobs were claimed during the failure."""
        self._note(error)
        if isinstance(error, StoreBusy):  # the store did nothing
            with self.changed:
                self._owner.tally.collide("busy")
            self.rest(0.05)
            return
        if self._mend_alone():
            self._doubt()

    def _mend_alone(self) -> bool:
        """Recover while no other thread uses the store. Returns False if another thread is already recovering."""
        with self.changed:
            if self._recovering:
                return False
            self._recovering = True
            self._calm.wait_for(lambda: self._stepping <= 1 or self._closed.is_set())
        try:
            self._recover()
        finally:
            with self.changed:
                self._recovering = False
                self._rung = True
                self._planner.wet()
                self.changed.notify_all()
                self._calm.notify_all()
        return True

    def reconnected(self) -> None:
        """Compare the jobs held here with those the store lists for this worker, after a lost connection is back.

        A restored database, or a standby that took over, may not contain the latest claims.
        """
        if self._owner.holding():
            self._apart(self._compare)

    def _compare(self) -> None:
        while not self._closed.is_set():
            with self.changed:
                # A recovery that is under way may have queried the store before the connection was lost.
                self._calm.wait_for(lambda: not self._recovering or self._closed.is_set())
                self._stepping += 1
            try:
                if self._mend_alone():
                    return
            finally:
                self._stepped()

    def _doubt(self) -> None:
        """Schedule later comparisons: the store may still execute a claim whose answer never arrived here."""
        with self.changed:
            self._doubts += 1
            alone = self._doubts == 1
        if alone:
            self._apart(self._look_back)

    def _apart(self, act: Callable[[], None]) -> None:
        """Run a function on a thread of its own."""
        threading.Thread(target=act, name="tidemill-look-back", daemon=True).start()

    def _look_back(self) -> None:
        doubts = 0
        while not self._closed.is_set():
            with self.changed:
                if self._doubts == doubts:
                    self._doubts = 0
                    return
                doubts = self._doubts
            for seconds in LOOK_BACK:
                self.rest(seconds)
                if self._closed.is_set():
                    return
                with self.changed:
                    self._stepping += 1
                try:
                    self._mend_alone()
                finally:
                    self._stepped()

    def _note(self, error: StoreError) -> None:
        if self._failed is None:
            _log.warning("the store does not respond; running jobs continue: %s", error)
        self._failed = str(error)

    def _recover(self) -> None:
        """Write outcomes again, verify those the store reports as lost, and compare the held jobs with the store.

        No other thread uses the store during this. Jobs that the store does not list for this worker are stopped; jobs
        that only the store lists are started.
        """
        tries = 0
        while not self._closed.is_set():
            with self.changed:
                again = self._outbox.take_decided(self._batch)
            try:
                lost = self._write_again(again) if again else frozenset()
                # List the jobs before querying the store: a job claimed after the query must not look missing.
                mine = self._owner.holding()
                held = self._store.held(self._worker)
            except Exception as error:  # noqa: BLE001  (see ``Pump._run``)
                if again and not is_trouble(error):
                    self._sort_out(again, error)
                    continue
                self._keep(again)
                self._failed = str(error)
                tries += 1
                self.rest(min(LONGEST_PAUSE, 0.05 * 2 ** min(tries, 9)) * random.uniform(0.5, 1.0))  # noqa: S311
                continue
            if again:
                self._tell_written(again, lost)
            self._recovered()
            self._reconcile(mine, held)
            return

    def _reconcile(self, mine: Sequence[HeldJob], claims: Sequence[Claim]) -> None:
        """Stop jobs that are not among these claims, and start claims that are not among these jobs.

        A job with a decided outcome is left alone: the fence accepts or rejects the outcome when it is written.
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

    def _write_again(self, settled: Sequence[Settled]) -> frozenset[UUID]:
        self._owner.about_to_write(settled)
        return write_again(self._store, settled, self._clock.monotonic())

    def _recovered(self) -> None:
        if self._failed is not None:
            self._failed = None
            _log.warning("the store responds again")
