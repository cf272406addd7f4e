"""The supervisor's dealings with the store: its workers' rows, their heartbeats, and the duties.

A store may take seconds to say that it is not there. The supervisor's loop must not wait for that, so everything here is
done on a thread of its own, in the order it was asked for, and what comes of it is emitted. No user code, no processes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest, Coordination, Worker
from tidemill.domain.decide import DEFAULT_POLICY, OrphanRule, Policy, stored_policy
from tidemill.domain.job import Claim, Details
from tidemill.domain.outcome import Released
from tidemill.domain.requests import Facts
from tidemill.domain.retry import policy_from_data
from tidemill.engine.duties import FactsOf, Reclaim, batch_of, duties_here, usual_duties
from tidemill.engine.duties.settle import Settle
from tidemill.engine.duty import Duties
from tidemill.engine.ear import Ear
from tidemill.engine.heart import Heart
from tidemill.engine.held import STOPPING
from tidemill.engine.node import machine_name
from tidemill.engine.settings import WorkerSettings, fitted
from tidemill.errors import BadSettings, StoreBusy, StoreError, StoreUnavailable, TidemillError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

_log = logging.getLogger("tidemill.worker")


@dataclass(frozen=True, slots=True)
class Opened:
    """The store answers, and its schema is the one we need. ``url`` has no password in it."""

    url: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The store cannot be used, and asking again will not help."""

    error: TidemillError


@dataclass(frozen=True, slots=True)
class Joined:
    """The worker that was ``asked`` for is registered and its heart beats. Its id is ``worker``: another than asked for if the
    store's first answer was lost, because what came of the first registration is then unknown.
    """

    asked: UUID
    worker: UUID


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Somebody wants a held job stopped."""

    request: CancelRequest


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """An operator wants a worker to finish what it holds and go."""

    worker: UUID


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Others may have what this worker holds."""

    worker: UUID


Told = Opened | Refused | Joined | CancelAsked | DrainAsked | LeaseLost

_OUTAGE = (StoreUnavailable, StoreBusy)
_LEAVING = (
    3.0  # seconds in which the store must hear that a worker is gone; after that its lease runs out by itself
)


class Left(StrEnum):
    """How a worker went, and so what becomes of what it still holds."""

    STOPPED = "stopped"  #: as it was told to, or killed because it did not: its jobs go back, and no attempt is charged
    CRASHED = "crashed"  #: its jobs go back at once, each with one crash


class Registrar:
    """Does what the supervisor asks of the store, one thing after the other; every method but ``close`` returns at once."""

    def __init__(self, settings: WorkerSettings, clock: Clock, emit: Callable[[Told], None]) -> None:
        self._settings, self._clock, self._emit = settings, clock, emit
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._gone: set[UUID] = set()  # workers that need not be registered any more
        self._policies: dict[str, Policy] = {}
        self._facts: dict[str, Facts] = {}
        self._parts: _Parts | None = None
        self._store: Store | None = None
        self._waiting = False
        self._asked = False
        self._thread = threading.Thread(target=self._run, name="tidemill-registrar", daemon=True)

    @property
    def healthy(self) -> bool:
        """Whether the store answers, as far as it was asked anything."""
        if self._parts is None or self._waiting:
            return not self._asked
        return self._parts.heart.healthy

    @property
    def leading(self) -> bool:
        """Whether the duties are done here."""
        return self._parts is not None and self._parts.duties.leading

    # Orders ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take orders."""
        self._thread.start()

    def learn(self, tasks: Mapping[str, Mapping[str, object]]) -> None:
        """What these tasks' jobs are asked for with, and how they react to trouble, as a runner told it."""
        self._facts |= tasks
        self._policies |= {name: read_policy(facts) for name, facts in tasks.items()}

    def open(self, url: str, *, migrate: bool) -> None:
        """Open the store, once it answers; then beat, listen and do the duties."""
        self._asked = True
        self._orders.put(partial(self._open, url, migrate))

    def join(self, worker: Worker) -> None:
        """Register a worker and beat for it, once the store answers."""
        self._orders.put(partial(self._join, worker))

    def leave(self, worker: UUID, how: Left) -> None:
        """It is gone: beat for it no more, retire it, and settle what it still held."""
        self._gone.add(worker)
        self._orders.put(partial(self._leave, worker, how))

    def close(self, seconds: float) -> bool:
        """Carry out what was asked and let go of everything; whether that was possible within so many seconds."""
        self._closing.set()
        self._orders.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            except TidemillError as error:
                self._emit(Refused(error))
            except Exception as error:  # noqa: BLE001  (a supervisor that cannot keep its books must not go on unnoticed)
                _log.exception("the worker's books cannot be kept")
                self._emit(Refused(StoreError(f"{type(error).__name__}: {error}")))
        if self._parts is not None:
            self._parts.close()
        if self._store is not None:
            self._store.close()

    def _patiently(self, act: Callable[[], object], wanted: Callable[[], bool]) -> bool:
        """Do it as soon as the store answers, while it is wanted; one line when the waiting begins and one when it ends."""
        pause = 0.1
        while True:
            try:
                act()
            except _OUTAGE as error:
                if not self._waiting:
                    _log.warning("waiting for the store: %s", error)
                    self._waiting = True
            else:
                if self._waiting:
                    _log.info("the store answers")
                    self._waiting = False
                return True
            if self._closing.wait(pause) or not wanted():
                return False
            pause = min(pause * 2, 3.0)

    def _open(self, url: str, migrate: bool) -> None:
        store = self._store = open_store(url, clock=self._clock, migrate=migrate)
        if self._patiently(store.check, lambda: True):
            settings = fitted(self._settings, store.url)
            self._parts = _Parts(store, self._clock, settings, self._policy_of, self._facts.get, self._emit)
            self._emit(Opened(store.url))

    def _policy_of(self, claim: Claim, details: Details) -> Policy:
        return stored_policy(self._policies.get(claim.task, DEFAULT_POLICY), details)

    def _join(self, worker: Worker) -> None:
        asked, parts = worker.id, self._parts
        if parts is None or asked in self._gone or self._closing.is_set():
            return
        tried = False

        def add() -> None:
            nonlocal worker, tried
            worker = replace(worker, id=new_id()) if tried else worker
            tried = True
            parts.heart.add(worker)

        if self._patiently(add, lambda: asked not in self._gone):
            self._emit(Joined(asked, worker.id))

    def _leave(self, worker: UUID, how: Left) -> None:
        self._gone.discard(worker)
        parts = self._parts
        if parts is None:
            return
        parts.heart.remove(worker, retire=False)
        until = self._clock.monotonic() + _LEAVING
        if not self._patiently(lambda: parts.settle(worker, how), lambda: self._clock.monotonic() < until):
            _log.warning("worker %s could not be retired, its lease will run out by itself", worker)


class _Parts:
    """What is at work once the store is open."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: WorkerSettings,
        policy_of: Callable[[Claim, Details], Policy],
        facts_of: FactsOf,
        emit: Callable[[Told], None],
    ) -> None:
        random = Random()  # noqa: S311  (spreads load, keeps no secret)
        coordination = settings.coordination or Coordination.LEASE
        batch = batch_of(coordination)
        self._store = store
        self._release = Settle(store, clock, policy_of, random)
        self._reclaim = Reclaim(store, clock, policy_of, random, batch=batch)
        self.ear = Ear(store, clock)
        self.heart = Heart(
            store,
            clock,
            beat=settings.beat,
            expiry=settings.expiry,
            on_cancel=lambda request: emit(CancelAsked(request)),
            on_drain=lambda worker: emit(DrainAsked(worker)),
            on_lost=lambda worker: emit(LeaseLost(worker)),
            random=random,
        )
        self.duties = Duties(
            store,
            clock,
            new_id(),
            usual_duties(
                store, clock, policy_of, random, batch=batch, reclaim=self._reclaim, facts_of=facts_of
            ),
            coordination=coordination,
            lease_beat=settings.lease_beat,
            lease_expiry=settings.lease_expiry,
            random=random,
            ear=self.ear,
        )
        self.here = Duties(
            store,
            clock,
            new_id(),
            duties_here(store, clock, machine_name(), facts_of),
            coordination=Coordination.EVERYONE,
            random=random,
            ear=self.ear,
        )
        self.ear.subscribe(self._heard)
        self.heart.start()
        self.duties.start()
        self.here.start()
        self.ear.start()

    def _heard(self, topics: frozenset[str]) -> None:
        if "cancel" in topics:
            self.heart.beat_soon()

    def settle(self, worker: UUID, how: Left) -> None:
        """Retire a worker whose process is gone, and give back what it held."""
        if how is Left.CRASHED:
            self._reclaim.now([worker])
        else:
            self._release(self._store.held(worker), lambda _claim: Released(STOPPING))
            self._store.retire([worker])

    def close(self) -> None:
        for part in (self.here, self.duties, self.ear, self.heart):
            part.close()


def read_policy(facts: Mapping[str, object]) -> Policy:
    """A task's policy as a runner's hello has it; what cannot be read is as if nothing had been said."""
    retry, cap, orphans = facts.get("retry"), facts.get("crash_cap"), facts.get("orphans")
    try:
        return Policy(
            retry=policy_from_data(retry) if isinstance(retry, Mapping) else DEFAULT_POLICY.retry,
            crash_cap=cap if isinstance(cap, int) else DEFAULT_POLICY.crash_cap,
            orphans=OrphanRule(str(orphans)) if orphans else DEFAULT_POLICY.orphans,
        )
    except (BadSettings, TypeError, ValueError):
        return DEFAULT_POLICY
