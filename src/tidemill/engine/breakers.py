"""Tells breakers how jobs ended that depend on them. What follows from that is decided by ``domain.breaker``.

Failures are told at once, successes at most once a second while all is well. Several workers tell at the same time: each reads the
state, decides, and writes it only if nobody else has written meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from tidemill.domain.breaker import Phase, after, read, written
from tidemill.domain.limits import Rules
from tidemill.domain.states import ExecutionState
from tidemill.engine.finisher import Settled
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

PREFIX = "breaker/"
PAUSE = 1.0
"""Seconds between two writes while nothing fails."""

TRIES = 10
_FAILED = (ExecutionState.FAILED, ExecutionState.TIMED_OUT)


class Breakers:
    """The tally of one worker, and the thread that brings it to the store; there is none where no job has a breaker."""

    def __init__(self, store: Store, rules: Callable[[], Rules], change: Callable[[], None]) -> None:
        self._store, self._rules, self._change = store, rules, change
        self._lock = threading.Condition()
        self._tally: dict[str, list[int]] = {}
        self._urgent = self._closed = False
        self._thread: threading.Thread | None = None

    def note(self, settled: Iterable[Settled]) -> None:
        """These have ended."""
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
                tally = self._tally.setdefault(name, [0, 0])
                if execution in _FAILED:
                    tally[1] += 1
                    self._urgent = True
                elif execution is ExecutionState.SUCCEEDED:
                    tally[0] += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="tidemill-breakers", daemon=True)
                self._thread.start()
            self._lock.notify()

    def close(self) -> None:
        """Tell what is still to be told, and end."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        half_open = False
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._tally or self._closed)
                if not half_open:
                    self._lock.wait_for(lambda: self._urgent or self._closed, PAUSE)
                tally, self._tally, self._urgent = self._tally, {}, False
                if self._closed and not tally:
                    return
            half_open = False
            for name, (succeeded, failed) in tally.items():
                try:
                    half_open |= self._tell(name, succeeded, failed)
                except StoreError as error:
                    _log.warning(
                        "breaker %s could not be told how %d jobs ended: %s", name, succeeded + failed, error
                    )
                except Exception:  # noqa: BLE001  (one whose state cannot be read does not silence the others)
                    _log.exception("breaker %s could not be told how %d jobs ended", name, succeeded + failed)

    def _tell(self, name: str, succeeded: int, failed: int) -> bool:
        """Bring a tally to the store; whether its breaker is being tried, so that the next news is not kept waiting."""
        rules = self._rules()
        rule = rules.get(name)
        if rule is None or rule.breaker is None:
            return False
        for _ in range(TRIES):
            (use,) = self._store.uses(rules, [name])
            now = use.now
            if now is None:  # nothing is known of it yet; its first state dates it
                self._store.change_breaker(name, None, written(read(None)))
                continue
            before = read(use.breaker)
            new = after(rule.breaker, before, succeeded, failed, now)
            if new == before or self._store.change_breaker(name, use.breaker, written(new)):
                if new.phase is not before.phase:
                    _log.warning("breaker %s is %s", rule.breaker.name, new.phase)
                    self._change()
                return new.phase is not Phase.CLOSED
        return False
