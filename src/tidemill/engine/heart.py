"""The heartbeat: one thread that keeps workers' leases alive and hears who is to stop, to drain, or is given up.

It holds leases and passes messages on. It must not claim, finish or judge a job, and no user code runs on its thread.
"""

from __future__ import annotations

import logging
import random as dice
import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest, Pulse, Worker
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

_GAP = 0.1  # between two beats, however often somebody asks for one
_IDLE = 3600.0  # one wait while there is nobody to beat for
_AGAIN = 1.0  # after something nobody thought of
_JOIN = 15.0  # longer than any store lets a call hang


class _Life:
    """One worker's lease as seen from here: ``confirmed`` is when the last beat that was answered had been *sent*."""

    __slots__ = ("confirmed", "draining")

    def __init__(self, confirmed: float) -> None:
        self.confirmed = confirmed
        self.draining = False


class Heart:
    """Registers workers and beats for all of them in one call, every ``beat``, with leases of ``expiry``.

    ``on_cancel`` gets each held job that is to stop once per claim, ``on_drain`` a worker that is to claim nothing more,
    ``on_lost`` one whose lease may have run out: others may have its jobs, and nothing is beaten for it any more. All three
    are called on the heart's own thread and must return soon.
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
        random: dice.Random | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._beat, self._lease = beat.total_seconds(), expiry
        # A worker is given up this long before the store gives its jobs away. The time is for stopping its handlers: at
        # least one beat, because a call that fails at the last moment may take that long to say so, and a sixth of the
        # expiry where beats are quick. Beats are counted from before they were sent, so the store's lease ends later still.
        self._limit = expiry.total_seconds() - max(self._beat, expiry.total_seconds() / 6)
        self._on_cancel, self._on_drain, self._on_lost = on_cancel, on_drain, on_lost
        self._random = random or dice.Random()  # noqa: S311  (spreads retries, keeps no secret)
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

    def add(self, worker: Worker) -> None:
        """Register a worker now, and beat for it from now on. What the store has to say against it is raised."""
        sent = self._clock.monotonic()
        self._store.register(worker, lease=self._lease)
        with self._changed:
            if not self._lives:
                self._due = sent + self._beat
            self._lives[worker.id] = _Life(sent)
            self._wake()

    def remove(self, id: UUID, *, retire: bool = True) -> None:
        """Beat for it no more, and retire it; if the store cannot be told, its lease runs out by itself."""
        with self._changed:
            self._lives.pop(id, None)
        if retire:
            try:
                self._store.retire([id])
            except StoreError as error:
                _log.warning(
                    "worker %s could not be retired, its lease will run out by itself: %s", id, error
                )

    def ages(self) -> dict[UUID, float]:
        """Seconds since each worker's last confirmed beat was sent."""
        now = self._clock.monotonic()
        with self._changed:
            return {id: now - life.confirmed for id, life in self._lives.items()}

    @property
    def healthy(self) -> bool:
        """Whether beats go out and are answered."""
        alive = self._thread.is_alive() and not self._closed and not self._failures
        return alive and all(age < self._limit for age in self.ages().values())

    # The thread --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def beat_soon(self) -> None:
        """Beat at once, because there may be something to hear; may be called from any thread and as often as one likes."""
        with self._changed:
            self._soon = True
            self._wake()

    def close(self) -> None:
        """Stop beating; closing twice is harmless. Workers that were not removed run out by themselves."""
        with self._changed:
            self._closed = True
            self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def _run(self) -> None:
        while not self._closed:
            try:
                wait = self.step()
            except Exception:  # noqa: BLE001  (a heart that stops loses every job; whatever it was, go on)
                _log.exception("the heartbeat met something unforeseen and goes on")
                wait = _AGAIN
            with self._changed:
                self._changed.wait_for(lambda: self._woken, wait)
                self._woken = False

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify_all()

    def step(self) -> float:
        """Do what is due now; seconds until something is due again."""
        now = self._clock.monotonic()
        self._give_up(now)
        with self._changed:
            ids = list(self._lives)
            due = max(min(now, self._due), self._last + _GAP) if self._soon else self._due
            if not ids:
                self._soon = False
                return _IDLE
            if now < due:
                return self._until(now, due)
            self._soon = False
            self._last = now
        try:
            pulse = self._store.beat(ids, lease=self._lease)
        except Exception as error:  # noqa: BLE001  (a beat that failed, however it failed, is tried again)
            self._failed(error)
        else:
            self._confirmed(ids, pulse, now)
        now = self._clock.monotonic()
        self._give_up(now)
        with self._changed:
            return self._until(now, self._due)

    def _until(self, now: float, due: float) -> float:
        """Seconds until the next beat, or until a worker must be given up, whichever comes first."""
        ends = min((life.confirmed + self._limit for life in self._lives.values()), default=due)
        return max(0.0, min(due, ends) - now)

    # What comes back ---------------------------------------------------------------------------------------------------

    def _confirmed(self, ids: list[UUID], pulse: Pulse, sent: float) -> None:
        lost: list[UUID] = []
        draining: list[UUID] = []
        with self._changed:
            self._due = sent + self._beat
            recovered, self._failures = self._failures, 0
            for id in ids:
                life = self._lives.get(id)
                if life is None:
                    continue  # removed meanwhile
                if id not in pulse.alive:
                    del self._lives[id]
                    lost.append(id)
                    continue
                life.confirmed = sent
                if id in pulse.draining and not life.draining:
                    life.draining = True
                    draining.append(id)
            new = [request for request in pulse.cancels if self._told.get(request.id) != request.token]
            # Who is no longer asked for is not held any more, and will have another token when it is held again.
            self._told = {request.id: request.token for request in pulse.cancels}
        if recovered:
            _log.info("heartbeats are answered again, after %d that failed", recovered)
        for id in lost:
            self._lose(id, "the store knows it as gone")
        for id in draining:
            self._tell(self._on_drain, id)
        for request in new:
            self._tell(self._on_cancel, request)

    def _failed(self, error: Exception) -> None:
        """Ask again soon: after a fifth of a beat, then twice that, never later than a beat, and not all hearts at once."""
        with self._changed:
            self._failures += 1
            first = self._failures == 1
            pause = min(self._beat, self._beat / 5 * 2 ** min(self._failures - 1, 8))
            self._due = self._clock.monotonic() + pause * self._random.uniform(0.5, 1.0)
        if first and isinstance(error, StoreError):
            _log.warning("a heartbeat failed, and is tried again until it is answered: %s", error)
        elif first:
            _log.error("a heartbeat failed, and is tried again until it is answered", exc_info=error)

    def _give_up(self, now: float) -> None:
        with self._changed:
            lost = [id for id, life in self._lives.items() if now - life.confirmed >= self._limit]
            for id in lost:
                del self._lives[id]
        for id in lost:
            self._lose(id, f"no heartbeat was answered for {self._limit:.3g} seconds")

    def _lose(self, id: UUID, why: str) -> None:
        _log.error("worker %s has lost its lease: %s; others may have its jobs", id, why)
        self._tell(self._on_lost, id)

    def _tell(self, callback: Callable[..., None], about: object) -> None:
        try:
            callback(about)
        except Exception:  # noqa: BLE001  (whoever is told may fail; the heart goes on)
            _log.exception("%r could not be passed on", about)
