"""Reports to circuit breakers how the jobs that depend on them ended.

``domain.breaker`` decides what follows from a report. Failures are reported at once, successes at most once a second
while the breaker is closed. Several workers report at the same time: each reads the state, decides, and writes it only
if no other worker has changed it since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from tidemill.domain.breaker import BreakerPhase, after, read, written
from tidemill.domain.limits import Rules
from tidemill.domain.states import ExecutionState
from tidemill.engine.exchange.finisher import Settled
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

PREFIX = "breaker/"
PAUSE = 1.0
"""Seconds between two writes while nothing fails."""

TRIES = 10
_FAILED = (ExecutionState.FAILED, ExecutionState.TIMED_OUT)


class BreakerReports:
    """The counts of one worker, and the thread that reports them to the store.

    The thread starts with the first job that has a breaker.
    """

    def __init__(self, store: Store, rules: Callable[[], Rules], change: Callable[[], None]) -> None:
        self._store, self._rules, self._change = store, rules, change
        self._lock = threading.Condition()
        self._counts: dict[str, list[int]] = {}
        self._urgent = self._closed = False
        self._thread: threading.Thread | None = None

    def note(self, settled: Iterable[Settled]) -> None:
        """Count the results of these jobs."""
        found = [
            (name, item.transition.execution)
            for item in settled
            for name in item.claim.limits or ()
            if name.startswith(PREFIX)
        ]
        if not found:
            return
        with self._lock:
            for name, execution in found:
                counts = self._counts.setdefault(name, [0, 0])
                if execution in _FAILED:
                    counts[1] += 1
                    self._urgent = True
                elif execution is ExecutionState.SUCCEEDED:
                    counts[0] += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="tidemill-breakers", daemon=True)
                self._thread.start()
            self._lock.notify()

    def close(self) -> None:
        """Report the remaining counts, and end the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        half_open = False
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._counts or self._closed)
                if not half_open:
                    self._lock.wait_for(lambda: self._urgent or self._closed, PAUSE)
                counts, self._counts, self._urgent = self._counts, {}, False
                if self._closed and not counts:
                    return
            half_open = False
            for name, (succeeded, failed) in counts.items():
                try:
                    half_open |= self._tell(name, succeeded, failed)
                except StoreError as error:
                    _log.warning(
                        "breaker %s: cannot record the results of %d jobs: %s",
                        name,
                        succeeded + failed,
                        error,
                    )
                except Exception:  # noqa: BLE001  (one breaker with an unreadable state must not affect the others)
                    _log.exception(
                        "breaker %s: cannot record the results of %d jobs", name, succeeded + failed
                    )

    def _tell(self, name: str, succeeded: int, failed: int) -> bool:
        """Report counts to the store; return whether the breaker is not closed.

        If it is not closed, the next report is sent without delay.
        """
        rules = self._rules()
        rule = rules.get(name)
        if rule is None or rule.breaker is None:
            return False
        for _ in range(TRIES):
            (use,) = self._store.uses(rules, [name])
            now = use.now
            # The store has no state yet. Writing the first one sets its time.
            if now is None:
                self._store.change_breaker(name, None, written(read(None)))
                continue
            before = read(use.breaker)
            new = after(rule.breaker, before, succeeded, failed, now)
            if new == before or self._store.change_breaker(name, use.breaker, written(new)):
                if new.phase is not before.phase:
                    _log.warning("breaker %s is %s", rule.breaker.name, new.phase)
                    self._change()
                return new.phase is not BreakerPhase.CLOSED
        return False
