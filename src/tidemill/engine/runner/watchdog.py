"""The watch over running jobs: timeouts, fence, blocked loops, starts to record.

The watch thread checks every tenth of a second while jobs are held. It never waits for the store: a network that drops
packets must delay neither a timeout nor the moment at which a worker without a lease drops its jobs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import LogEntry
from tidemill.domain.states import JobState
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.executors.kinds import PROCESS, THREAD
from tidemill.engine.executors.local import LoopExecutor
from tidemill.engine.runner.store_thread import StoreThread
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = 0.1
SHOWN_AFTER = 0.05
"""Seconds a buffered job runs before its start is written. Most jobs have finished by then."""

BLOCKED = 1.0
"""Seconds an event loop may be blocked before the responsible job is logged."""


class WatchdogOwner(Protocol):
    """The runner whose jobs are watched."""

    def holding(self) -> Sequence[HeldJob]: ...

    def stop_job(self, held: HeldJob) -> None: ...

    def give_up(self, held: HeldJob) -> None: ...

    def lose(self, jobs: Iterable[HeldJob]) -> None: ...

    def look(self) -> None:
        """Run periodic checks. This must not wait for the store."""

    @property
    def has_suspects(self) -> bool:
        """Whether ``begin_suspects`` has something to do."""

    def begin_suspects(self) -> None:
        """Start the next suspect of a crash. This may wait for the store."""


class Watchdog:
    """Watches the jobs of one runner."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: WatchdogOwner,
        loop: LoopExecutor,
        patience: float,
        on_stuck: Callable[[str], None],
    ) -> None:
        self._store, self._clock, self._owner, self._loop = store, clock, owner, loop
        self._patience, self._on_stuck = patience, on_stuck
        self._warned: set[HeldJob] = set()  # held jobs that have blocked the event loop
        self._busy = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-watch", daemon=True)
        self._aside = StoreThread("tidemill-watch-store")

    def start(self) -> None:
        """Start watching."""
        self._aside.start()
        self._thread.start()

    def rouse(self) -> None:
        """Wake the watch thread because there is something to watch."""
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
            except Exception:  # noqa: BLE001  (a watch that dies silently would let jobs run without a timeout)
                _log.exception("unexpected error in the watch over running jobs; continuing")

    def look(self) -> bool:
        """Check everything once. Returns whether any job is held."""
        jobs = self._owner.holding()
        at = self._clock.monotonic()
        starts: list[HeldJob] = []
        for held in jobs:
            # The cheap tests first: most held jobs of a busy runner have not begun, or are over.
            if held.began is None or held.over or held.lost:
                continue
            if held.claim.state is JobState.CLAIMED and at - held.began >= SHOWN_AFTER:
                starts.append(held)
            if held.kind != PROCESS:  # that executor enforces timeouts itself
                self._time(held, at)
        self._feel(jobs)
        self._owner.look()
        if starts or self._owner.has_suspects:
            self._aside.offer(partial(self._write, starts))
        return bool(jobs)

    def _write(self, starts: list[HeldJob]) -> None:
        self._show([held for held in starts if not (held.over or held.lost)])
        self._owner.begin_suspects()

    def _time(self, held: HeldJob, at: float) -> None:
        if not held.timed_out and held.is_overdue(at):
            held.timed_out, held.stopped_at = True, at
            self._owner.stop_job(held)
        elif (
            held.stopped_at is not None
            and (held.timed_out or held.releasing)
            and held.is_open
            and at - held.stopped_at >= self._patience
        ):
            self._owner.give_up(held)
            if held.kind == THREAD or self._loop.ping() >= self._patience:
                self._on_stuck(
                    f"job {held.claim.id} of task {held.claim.task} was asked to stop and still runs"
                )

    def _show(self, starts: list[HeldJob]) -> None:
        """Record in the store that buffered jobs are running."""
        if not starts:
            return
        try:
            at = self._clock.monotonic()
            ages = [at - (at if held.began is None else held.began) for held in starts]
            lost = self._store.start([held.claim for held in starts], ages)
        except StoreError:
            return  # retried at the next check; it only affects the displayed state
        for held in starts:
            held.claim = held.claim._replace(state=JobState.RUNNING)
        if lost:
            self._owner.lose([held for held in starts if held.claim.id in lost])

    def _feel(self, jobs: Sequence[HeldJob]) -> None:
        """Log the job that blocks the event loop."""
        away = self._loop.ping()
        if away < BLOCKED:
            return
        inside = self._loop.guilty()
        if inside is None:
            return
        # The same executor coroutine may have just started its next job. Blame only a job that ran during the whole
        # blockage.
        since = self._clock.monotonic() - BLOCKED / 2
        self._warned.intersection_update(jobs)
        for held in jobs:
            began = held.began
            if held.handle is inside and began is not None and began <= since and held not in self._warned:
                self._warned.add(held)
                text = (
                    f"task {held.claim.task} has blocked the event loop for {away:.1f} s: all coroutines of this"
                    " worker wait for it; make it a plain def, or await asyncio.to_thread(...)"
                )
                _log.warning("job %s: %s", held.claim.id, text)
                claim = held.claim
                held.log(
                    LogEntry(claim.id, claim.token, self._clock.now(), text, "warning", worker=claim.worker)
                )

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._busy.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)
        self._aside.close()


STALL, LOOKS = 1.0, 5
"""Seconds, and number of looks, for which the fence must be open before jobs are dropped.

After a stall (a halted process, or one call that held the GIL) confirmed beats from that time may still wait to be
read.
"""


class Fence:
    """Whether the lease of one worker is reliable: for ``limit`` seconds after its last confirmed beat was sent.

    Another process or thread sends the heartbeat: a supervisor that may be halted while its runners keep running, or a
    thread that waits for the store. So each confirmed beat is passed on to the runner, which claims nothing and drops its
    jobs once the confirmed beats stop.

    ``confirm`` may be called from any thread. ``on_lost`` is called once, when jobs must be dropped.
    """

    def __init__(self, clock: Clock, worker: UUID, *, limit: float, confirmed: float) -> None:
        self._clock, self.worker, self._limit = clock, worker, limit
        self._confirmed = confirmed
        self.until = confirmed + limit  #: the monotonic time until which the lease is reliable
        self.on_lost: Callable[[], None] | None = None
        self._stall = min(STALL, limit / 12)
        self._open_since, self._looks = 0.0, 0

    def confirm(self, at: float) -> None:
        """Record that the store answered a beat that was sent at this monotonic time."""
        self._confirmed = max(self._confirmed, min(at, self._clock.monotonic()))
        self.until = self._confirmed + self._limit

    @property
    def holds(self) -> bool:
        """Whether jobs may be claimed and begun."""
        return self._clock.monotonic() < self.until

    def look(self) -> None:
        """Call ``on_lost`` if jobs must be dropped. One thread calls this repeatedly while jobs are held."""
        if self.on_lost is None or not self._is_lost():
            return
        on_lost, self.on_lost = self.on_lost, None
        _log.error(
            "no heartbeat of worker %s was confirmed for %.3g s: its jobs are dropped",
            self.worker,
            self._limit,
        )
        on_lost()

    def _is_lost(self) -> bool:
        if self.holds:
            self._looks = 0
            return False
        now = self._clock.monotonic()
        self._open_since = self._open_since if self._looks else now
        self._looks += 1
        return self._looks > LOOKS and now - self._open_since >= self._stall
