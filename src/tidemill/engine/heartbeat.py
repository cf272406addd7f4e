"""Heartbeat thread: renews workers' leases, and receives requests to cancel jobs and to drain, pause and scale workers.

It renews leases and passes messages on. It must not claim, finish or judge a job, and no user code runs on its thread.
"""

from __future__ import annotations

import logging
import random as dice
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest, Pulse, Worker
from tidemill.domain.liveness import holds_for
from tidemill.domain.worker_reports import ScaleRequest, WorkerReport
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.requests import NO_REPORTS

_log = logging.getLogger("tidemill.engine")

_GAP = 0.1  # seconds between two beats, however often one is requested
_IDLE = 3600.0  # seconds to wait while there are no workers
_AGAIN = 1.0  # seconds after an unexpected error
_RETRY = 2.0  # maximum seconds between two tries while a beat is overdue
_JOIN = 15.0  # seconds; longer than any store call can block


class _Life:
    """The lease of one worker. ``confirmed`` is when the last beat that was answered had been *sent*."""

    __slots__ = ("confirmed", "draining", "paused", "scale")

    def __init__(self, confirmed: float, *, paused: bool) -> None:
        self.confirmed = confirmed
        self.draining, self.paused = False, paused
        self.scale = 0  # the number of the latest request that was passed on


class HeartbeatThread:
    """Registers workers and sends one beat for all of them every ``beat``, with leases of ``expiry``.

    A worker is given up when no beat was answered for ``holds_for(expiry)``, counted from when the last answered one
    was sent: 30 s by default. No observer declares it gone before 5 s more have passed (``domain.liveness.margin``). So
    with beats every 5 s, and a retry at least every 2 s, a store outage of 20 s costs no lease. If this process was
    halted, a late beat can still revive a lease that was not taken away, so a worker is given up only after one more
    beat.

    ``on_cancel`` receives each cancel request of a held job once per claim. ``on_drain`` receives a worker that must
    claim nothing more. ``on_lost`` receives a worker whose lease may have expired: other workers may have its jobs, and
    no more beats are sent for it. ``on_confirmed`` receives the workers whose beat was answered and the monotonic time
    at which it was sent. ``on_pause`` receives a worker and whether it is paused, when that changes. ``on_scale`` receives
    each new request to the supervisor of a worker, once for each of its workers. ``report`` returns the reports of workers
    that go with a beat. All callbacks run on the heartbeat thread and must return soon.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        beat: timedelta,
        expiry: timedelta,
        on_cancel: Callable[[CancelRequest], None],
        on_drain: Callable[[UUID], None],
        on_lost: Callable[[UUID], None],
        on_confirmed: Callable[[frozenset[UUID], float], None] | None = None,
        on_pause: Callable[[UUID, bool], None] = lambda _worker, _paused: None,
        on_scale: Callable[[UUID, ScaleRequest], None] = lambda _worker, _request: None,
        report: Callable[[], Mapping[UUID, WorkerReport]] = lambda: NO_REPORTS,
        random: dice.Random | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._on_pause, self._on_scale, self._report = on_pause, on_scale, report
        self._beat, self._lease = beat.total_seconds(), expiry
        self._limit = holds_for(expiry)
        self._on_confirmed = on_confirmed
        self._on_cancel, self._on_drain, self._on_lost = on_cancel, on_drain, on_lost
        self._random = random or dice.Random()  # noqa: S311  (spreads retries; not security-relevant)
        self._changed = threading.Condition()
        self._lives: dict[UUID, _Life] = {}
        self._told: dict[UUID, int] = {}
        self._due = clock.monotonic()
        self._last = float("-inf")
        self._soon = False
        self._woken = False  # something changed since the thread last went to sleep
        self._failures = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tidemill-heart", daemon=True)

    # Workers -----------------------------------------------------------------------------------------------------------

    def add(self, worker: Worker) -> float:
        """Register a worker and send beats for it; return the monotonic time at which the registration was sent.

        Errors of the store are raised.
        """
        sent = self._clock.monotonic()
        self._store.register(worker, lease=self._lease)
        with self._changed:
            if not self._lives:
                self._due = sent + self._beat
            self._lives[worker.id] = _Life(sent, paused=worker.paused)
            self._wake()
        return sent

    def remove(self, id: UUID, *, retire: bool = True) -> None:
        """Stop sending beats for a worker and retire it. If the store does not answer, the lease expires on its own."""
        with self._changed:
            self._lives.pop(id, None)
        if retire:
            try:
                self._store.retire([id])
            except StoreError as error:
                _log.warning("worker %s could not be retired; its lease will expire: %s", id, error)

    def ages(self) -> dict[UUID, float]:
        """Seconds since each worker's last confirmed beat was sent."""
        now = self._clock.monotonic()
        with self._changed:
            return {id: now - life.confirmed for id, life in self._lives.items()}

    @property
    def healthy(self) -> bool:
        """Whether beats are sent and answered."""
        alive = self._thread.is_alive() and not self._closed and not self._failures
        return alive and all(age < self._limit for age in self.ages().values())

    # The thread --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def beat_soon(self) -> None:
        """Send a beat at once to fetch pending requests. May be called from any thread, any number of times."""
        with self._changed:
            self._soon = True
            self._wake()

    def close(self) -> None:
        """Stop sending beats. Closing twice is harmless.

        The leases of workers that were not removed expire on their own.
        """
        with self._changed:
            self._closed = True
            self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def _run(self) -> None:
        while not self._closed:
            try:
                wait = self.step()
            except Exception:  # noqa: BLE001  (a stopped heartbeat loses every job, so the loop must continue)
                _log.exception("unexpected error in the heartbeat; continuing")
                wait = _AGAIN
            with self._changed:
                self._changed.wait_for(lambda: self._woken, wait)
                self._woken = False

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify_all()

    def step(self) -> float:
        """Do what is due now; return the seconds until the next step."""
        now = self._clock.monotonic()
        with self._changed:
            ids = list(self._lives)
            if any(now - life.confirmed >= self._limit for life in self._lives.values()):
                self._due = min(self._due, now)  # one more try before the worker is given up
            due = max(min(now, self._due), self._last + _GAP) if self._soon else self._due
            if not ids:
                self._soon = False
                return _IDLE
            if now < due:
                return self._until(now, due)
            self._soon = False
            self._last = now
        reports = self._reports(ids)
        try:
            pulse = self._store.beat(ids, lease=self._lease, reports=reports)
        except Exception as error:  # noqa: BLE001  (a failed beat is always tried again)
            self._failed(error)
        else:
            self._confirmed(ids, pulse, now)
        now = self._clock.monotonic()
        self._give_up(now)
        with self._changed:
            return self._until(now, self._due)

    def _reports(self, ids: list[UUID]) -> Mapping[UUID, WorkerReport]:
        """The reports of these workers. A failure must not prevent the beat."""
        try:
            reports = self._report()
        except Exception:  # noqa: BLE001
            _log.exception("cannot collect the reports of workers")
            return NO_REPORTS
        return {id: reports[id] for id in ids if id in reports}

    def _until(self, now: float, due: float) -> float:
        """Seconds until the next beat, or until a worker must be given up, whichever is first."""
        ends = min((life.confirmed + self._limit for life in self._lives.values()), default=due)
        return max(0.0, min(due, ends) - now)

    # Answers -----------------------------------------------------------------------------------------------------------

    def _confirmed(self, ids: list[UUID], pulse: Pulse, sent: float) -> None:
        lost: list[UUID] = []
        requests: list[Callable[[], None]] = []
        with self._changed:
            self._due = sent + self._beat
            recovered, self._failures = self._failures, 0
            for id in ids:
                life = self._lives.get(id)
                if life is None:
                    continue  # removed in the meantime
                if id not in pulse.alive:
                    del self._lives[id]
                    lost.append(id)
                    continue
                life.confirmed = sent
                requests += self._requests(id, life, pulse)
            new = [cancel for cancel in pulse.cancels if self._told.get(cancel.id) != cancel.token]
            # A request that is no longer reported belongs to a job that is no longer held. A new claim has another
            # token.
            self._told = {cancel.id: cancel.token for cancel in pulse.cancels}
        if recovered:
            _log.info("heartbeats succeed again after %d failures", recovered)
        if pulse.alive and self._on_confirmed is not None:
            self._tell(self._on_confirmed, pulse.alive, sent)
        for id in lost:
            self._lose(id, "it was declared gone")
        for pass_on in requests:
            pass_on()
        for cancel in new:
            self._tell(self._on_cancel, cancel)

    def _requests(self, id: UUID, life: _Life, pulse: Pulse) -> list[Callable[[], None]]:
        """Record the requests to a worker that are new, and return the calls that pass them on."""
        calls: list[Callable[[], None]] = []
        if id in pulse.draining and not life.draining:
            life.draining = True
            calls.append(partial(self._tell, self._on_drain, id))
        if (id in pulse.paused) != life.paused:
            life.paused = not life.paused
            calls.append(partial(self._tell, self._on_pause, id, life.paused))
        scale = pulse.scales.get(id)
        if scale is not None and scale.number > life.scale:
            life.scale = scale.number
            calls.append(partial(self._tell, self._on_scale, id, scale))
        return calls

    def _failed(self, error: Exception) -> None:
        """Schedule a retry after a fifth of a beat, doubled each time, at most 2 s, with jitter."""
        with self._changed:
            self._failures += 1
            first = self._failures == 1
            pause = min(self._beat, _RETRY, self._beat / 5 * 2 ** min(self._failures - 1, 8))
            self._due = self._clock.monotonic() + pause * self._random.uniform(0.5, 1.0)
        if first and isinstance(error, StoreError):
            _log.warning("a heartbeat failed and will be retried: %s", error)
        elif first:
            _log.error("a heartbeat failed and will be retried", exc_info=error)

    def _give_up(self, now: float) -> None:
        with self._changed:
            lost = [id for id, life in self._lives.items() if now - life.confirmed >= self._limit]
            for id in lost:
                del self._lives[id]
        for id in lost:
            self._lose(id, f"no heartbeat succeeded for {self._limit:.3g} seconds")

    def _lose(self, id: UUID, why: str) -> None:
        _log.error("worker %s has lost its lease: %s; other workers may run its jobs", id, why)
        self._tell(self._on_lost, id)

    def _tell(self, callback: Callable[..., None], *about: object) -> None:
        try:
            callback(*about)
        except Exception:  # noqa: BLE001  (a failing callback must not stop the heartbeat)
            _log.exception("a heartbeat callback failed for %r", about[0])
