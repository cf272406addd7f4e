"""What a pump does when the store does not answer: ends stay to be written, and what was claimed meanwhile is found out.

It is a part of the pump, apart because nothing of it happens while all is well.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim
from tidemill.engine.ends import is_trouble, write_again
from tidemill.engine.finisher import Settled
from tidemill.engine.outbox import Outbox
from tidemill.engine.plan import Planner
from tidemill.engine.tally import Tally
from tidemill.errors import StoreBusy, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

LONGEST_PAUSE = 2.0
"""Seconds between two tries while the store does not answer."""


LOOK_BACK = (5.0, 60.0)
"""Seconds between an outage and looks at what was done after it: a database goes on with what it was asked by somebody who has
given up, until it is finished or too slow. The last look comes when the slowest statement must be over.
"""


class Owner(Protocol):
    """Who the pump works for. How claims went is written into its tally, by whoever holds the pump's lock."""

    tally: Tally

    def take_over(self, claims: Sequence[Claim]) -> None: ...

    def about_to_write(self, settled: Sequence[Settled]) -> None: ...

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None: ...

    def known(self) -> frozenset[UUID]: ...


class Mending:
    """The pump's way out of trouble."""

    changed: threading.Condition
    rest: Callable[[float], None]
    _store: Store
    _clock: Clock
    _worker: UUID
    _owner: Owner
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
    _stepped: Callable[[], None]

    def _trouble(self, error: StoreError) -> None:
        """The store did not answer, or not well. Ends stay to be written; what was claimed meanwhile is found out."""
        self._note(error)
        if isinstance(error, StoreBusy):  # nothing happened
            with self.changed:
                self._owner.tally.collide("busy")
            self.rest(0.05)
            return
        if self._mend_alone():
            self._doubt()

    def _mend_alone(self) -> bool:
        """With nobody else at the store; False where somebody does that already."""
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
        return True

    def _doubt(self) -> None:
        """A claim of ours may be carried out even now, and nobody here would know: look back some time later."""
        with self.changed:
            self._doubts += 1
            alone = self._doubts == 1
        if alone:
            self._apart(self._look_back)

    def _apart(self, act: Callable[[], None]) -> None:
        """Have this done on a thread of its own."""
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
            _log.warning("the store does not answer, running jobs go on: %s", error)
        self._failed = str(error)

    def _recover(self) -> None:
        """Alone with the store: write the ends again, read back those it calls lost, and take what it says is ours."""
        tries = 0
        while not self._closed.is_set():
            with self.changed:
                again = self._outbox.take_decided(self._batch)
            try:
                lost = self._write_again(again) if again else frozenset()
                held = self._store.held(self._worker)
            except Exception as error:  # noqa: BLE001  (as above)
                if again and not is_trouble(error):
                    self._sort_out(again, error)
                    continue
                self._keep(again)
                self._failed = str(error)
                tries += 1
                self.rest(min(LONGEST_PAUSE, 0.05 * 2 ** min(tries, 9)) * random.uniform(0.5, 1.0))  # noqa: S311
                continue
            if again:
                self._owner.written(again, lost)
            self._recovered()
            known = self._owner.known()
            unknown = [claim for claim in held if claim.id not in known]
            if unknown:
                _log.info("%d jobs were claimed although the answer was lost; they begin now", len(unknown))
                self._owner.take_over(unknown)
            return

    def _write_again(self, settled: Sequence[Settled]) -> frozenset[UUID]:
        self._owner.about_to_write(settled)
        return write_again(self._store, settled, self._clock.monotonic())

    def _recovered(self) -> None:
        if self._failed is not None:
            self._failed = None
            _log.warning("the store answers again")
