"""Watches over running jobs: time-outs, jobs that do not stop, jobs that block the loop, and starts that are not yet written.

One look a tenth of a second over what is held, and none while nothing is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidemill.clock import Clock
from tidemill.domain.job import LogEntry
from tidemill.domain.states import JobState
from tidemill.engine.held import Held
from tidemill.engine.lanes import PROCESS, THREAD, LoopLane
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = 0.1
SHOWN_AFTER = 0.05
"""Seconds a buffered job runs before its start is written; most are over by then."""

BLOCKED = 1.0
"""Seconds a loop may be away before the job it is in is named."""


class Owner(Protocol):
    """Whose jobs these are."""

    def holding(self) -> Sequence[Held]: ...

    def stop_job(self, held: Held) -> None: ...

    def give_up(self, held: Held) -> None: ...

    def lose(self, jobs: Iterable[Held]) -> None: ...

    def look(self) -> None: ...


class Watch:
    """Looks after the jobs of one runner."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: Owner,
        loop: LoopLane,
        patience: float,
        on_stuck: Callable[[str], None],
    ) -> None:
        self._store, self._clock, self._owner, self._loop = store, clock, owner, loop
        self._patience, self._on_stuck = patience, on_stuck
        self._busy = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def rouse(self) -> None:
        """There is something to watch."""
        if not self._busy.is_set():
            self._busy.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._busy.wait()
            if self._closed.wait(EVERY):
                return
            self._busy.clear()
            try:
                if self.look():
                    self._busy.set()
            except Exception:  # noqa: BLE001  (a watch that dies silently would let jobs run for ever)
                _log.exception("the watch stumbled and goes on")

    def look(self) -> bool:
        """One look over everything; whether there is anything left to watch."""
        jobs = self._owner.holding()
        at = self._clock.monotonic()
        starts: list[Held] = []
        for held in jobs:
            if held.over or held.lost or held.began is None:
                continue
            if held.claim.state is JobState.CLAIMED and at - held.began >= SHOWN_AFTER:
                starts.append(held)
            if held.kind != PROCESS:  # that lane keeps its own time
                self._time(held, at)
        self._show(starts)
        self._feel(jobs)
        self._owner.look()
        return bool(jobs)

    def _time(self, held: Held, at: float) -> None:
        if not held.timed_out and held.is_overdue(at):
            held.timed_out, held.stopped_at = True, at
            self._owner.stop_job(held)
        elif (
            held.stopped_at is not None
            and (held.timed_out or held.releasing)
            and not held.settled
            and at - held.stopped_at >= self._patience
        ):
            self._owner.give_up(held)
            if held.kind == THREAD or self._loop.ping() >= self._patience:
                self._on_stuck(f"job {held.claim.id} of task {held.claim.task} was told to stop and goes on")

    def _show(self, starts: list[Held]) -> None:
        """Buffered jobs that run by now are ``running`` for everybody."""
        if not starts:
            return
        try:
            lost = self._store.start([held.claim for held in starts])
        except StoreError:
            return  # next time; it only shows
        for held in starts:
            held.claim = held.claim._replace(state=JobState.RUNNING)
        if lost:
            self._owner.lose([held for held in starts if held.claim.id in lost])

    def _feel(self, jobs: Sequence[Held]) -> None:
        """Name the job that keeps the loop from turning."""
        away = self._loop.ping()
        if away < BLOCKED:
            return
        inside = self._loop.guilty()
        if inside is None:
            return
        # The next job in the same hand may have begun this very moment: who is blamed must have been there all the while.
        since = self._clock.monotonic() - BLOCKED / 2
        for held in jobs:
            began = held.began
            if held.handle is inside and began is not None and began <= since and not held.warned:
                held.warned = True
                text = (
                    f"task {held.claim.task} has blocked the event loop for {away:.1f} s: all coroutines of this"
                    " worker wait for it; make it a plain def, or await asyncio.to_thread(...)"
                )
                _log.warning("job %s: %s", held.claim.id, text)
                claim = held.claim
                held.log(LogEntry(claim.id, claim.token, self._clock.now(), text, "warning"))

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._busy.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)
