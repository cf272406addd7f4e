"""The supervisor's link to the store: worker rows, heartbeats and duties.

A failing store may take seconds to report the failure, and the supervisor's loop must not wait for that. A separate
thread therefore carries out all requests in order and emits the results as events. This module runs no user code and
starts no processes.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import LED, CancelRequest, Coordination, Worker, holder_data
from tidemill.domain.decide import DEFAULT_POLICY, OrphanRule, Policy, stored_policy
from tidemill.domain.job import Claim, Details
from tidemill.domain.job_requests import TaskData
from tidemill.domain.outcome import STOPPING, Released
from tidemill.domain.retry import policy_from_data
from tidemill.domain.runner_health import verdicts
from tidemill.domain.worker_reports import ScaleRequest, WorkerReport
from tidemill.engine.duties import (
    Reclaim,
    TaskDataOf,
    batch_of,
    duties_here,
    schedule_locks,
    usual_duties,
)
from tidemill.engine.duties.settle import Settle
from tidemill.engine.duty import Duties
from tidemill.engine.fire_hooks import FireHooks
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.engine.listener import WakeupListener
from tidemill.engine.node import machine_name, process_name
from tidemill.engine.supervisor.runner_hooks import RunnerHooks
from tidemill.engine.worker_settings import WorkerSettings, fitted
from tidemill.errors import BadSettings, StoreBusy, StoreError, StoreUnavailable, TidemillError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import load_driver, open_store
from tidemill.stores.requests import NO_REPORTS
from tidemill.stores.wakeup_relay import WakeupRelay

_log = logging.getLogger("tidemill.worker")


@dataclass(frozen=True, slots=True)
class StoreOpened:
    """The store answers and has the required schema. ``url`` contains no password."""

    url: str
    store: str | None = None  #: its name, if the app has several


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """The store cannot be used, and trying again will not help."""

    error: TidemillError
    link: StoreLink | None = None  #: the link to that store; None if the whole worker is to give up


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """The worker that was ``asked`` for is registered, and heartbeats are sent for it.

    ``worker`` is its id. It differs from ``asked`` if the store's first answer was lost, because the result of that
    registration is unknown.
    """

    asked: UUID
    worker: UUID
    at: float  #: when the registration was sent, by the monotonic clock
    store: str | None = None  #: the name of the store, if the app has several


@dataclass(frozen=True, slots=True)
class HeartbeatConfirmed:
    """The store confirmed a heartbeat of these workers that was sent at this monotonic time."""

    workers: frozenset[UUID]
    at: float


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The cancellation of a held job was requested."""

    request: CancelRequest


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """An operator requested that a worker finish its jobs and exit."""

    worker: UUID


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """An operator requested that a worker claim nothing for now, or claim again."""

    worker: UUID
    paused: bool


@dataclass(frozen=True, slots=True)
class ScaleRequested:
    """An operator requested other numbers of runners and slots."""

    request: ScaleRequest
    store: str | None = None  #: its name, if the app has several


@dataclass(frozen=True, slots=True)
class OverdueSeen:
    """The store lists these jobs as past their timeout: worker, job and token of each."""

    jobs: frozenset[tuple[UUID | None, UUID, int]]
    store: str | None = None  #: its name, if the app has several


@dataclass(frozen=True, slots=True)
class WorkerLeaseLost:
    """The worker's lease is lost, and other workers may have claimed its jobs."""

    worker: UUID


Told = (
    StoreOpened
    | StoreRefused
    | WorkerJoined
    | HeartbeatConfirmed
    | CancelRequested
    | DrainRequested
    | PauseRequested
    | ScaleRequested
    | OverdueSeen
    | WorkerLeaseLost
)

_OVERDUE = 1_000  # most overdue jobs to read at once
_OUTAGE = (StoreUnavailable, StoreBusy)
_LEAVING = 3.0  # seconds for telling the store that a worker is gone; after that, its lease expires


class WorkerEnd(StrEnum):
    """How a worker ended, which decides what happens to its jobs."""

    #: stopped on request, or killed because it did not stop: its jobs are released without a charged attempt
    STOPPED = "stopped"
    SICK = "sick"  #: killed because it did no work: the cause decides what happens to its jobs
    CRASHED = "crashed"  #: its jobs are released at once, each charged with one crash


class StoreLink:
    """Carries out the supervisor's store requests in order. Every method but ``join`` returns at once."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        emit: Callable[[Told], None],
        fire_hooks: RunnerHooks,
        name: str | None = None,
        report: Callable[[], Mapping[UUID, WorkerReport]] = lambda: NO_REPORTS,
    ) -> None:
        self._settings, self._clock, self._emit, self._report = settings, clock, emit, report
        self.name = name  #: of the store, if the app has several
        self.fire_hooks = fire_hooks
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._gone: set[UUID] = set()  # workers that no longer need to be registered
        self._here: set[UUID] = set()  # workers whose processes have not exited
        self._policies: dict[str, Policy] = {}
        self._task_data: dict[str, TaskData] = {}
        self._parts: _Parts | None = None
        self._store: Store | None = None
        self._waiting = False
        self._asked = False
        self._began = clock.monotonic()
        #: Start of this deployment by the store's clock; known once the store is open.
        self.deployed_at: datetime | None = None
        self._looking = False
        self.relay = WakeupRelay()  #: of the wake-ups of this store to its runners
        self._thread = threading.Thread(target=self._run, name="tidemill-registrar", daemon=True)

    @property
    def healthy(self) -> bool:
        """Whether the store answered the latest request. True if there was none."""
        if self._parts is None or self._waiting:
            return not self._asked
        return self._parts.heart.healthy

    @property
    def _words(self) -> str:
        return "the store" if self.name is None else f"store {self.name!r}"

    @property
    def leading(self) -> bool:
        """Whether this process performs the duties."""
        return self._parts is not None and self._parts.duties.leading

    # Requests --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread that carries out requests."""
        self._thread.start()

    def learn(self, tasks: Mapping[str, Mapping[str, object]]) -> None:
        """Record the enqueue defaults and the retry policy of these tasks, as a runner reported them."""
        self._task_data |= tasks
        self._policies |= {name: read_policy(task_data) for name, task_data in tasks.items()}

    def expect(self, scheme: str) -> None:
        """Import the driver of these stores ahead of ``open``."""
        self._orders.put(partial(load_driver, scheme))

    def open(self, url: str, *, migrate: bool) -> None:
        """Open the store once it answers, then start heartbeats, the listener and the duties."""
        self._asked = True
        self._orders.put(partial(self._open, url, migrate))

    def redeploy(self) -> None:
        """Start a new deployment: the code is loaded again, and workers that join from now on belong to it."""
        self._began = self._clock.monotonic()
        self._orders.put(self._date)

    def join_worker(self, worker: Worker) -> None:
        """Register a worker once the store answers, and send heartbeats for it."""
        self._orders.put(partial(self._join, worker))

    def leave(self, worker: UUID, how: WorkerEnd, *, reason: str = "", blamed: Collection[UUID] = ()) -> None:
        """Retire a worker that has ended, and settle its jobs.

        For a sick worker, give the reason and, if known, the jobs that caused it.
        """
        self._gone.add(worker)
        self._orders.put(partial(self._leave, worker, how, reason, blamed))

    def look_for_overdue(self) -> None:
        """Read which jobs are past their timeout, unless such a read is already queued."""
        if not self._looking and self._parts is not None:
            self._looking = True
            self._orders.put(self._look_for_overdue)

    @property
    def is_closing(self) -> bool:
        """Whether ``begin_close`` was called."""
        return self._closing.is_set()

    def begin_close(self) -> None:
        """Carry out the queued requests and close everything. Calling it twice is harmless."""
        if not self._closing.is_set():
            self._closing.set()
            self._orders.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the end of ``begin_close``. Returns whether that took at most ``seconds``."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            except TidemillError as error:
                self._emit(StoreRefused(error, self))
            # A supervisor that cannot record its state must not continue unnoticed.
            except Exception as error:  # noqa: BLE001
                _log.exception("cannot record worker state in the store")
                self._emit(StoreRefused(StoreError(f"{type(error).__name__}: {error}"), self))
        if self._parts is not None:
            self._parts.close()
        if self._store is not None:
            self._store.close()

    def _patiently(self, act: Callable[[], object], wanted: Callable[[], bool]) -> bool:
        """Retry ``act`` until the store answers, while ``wanted``.

        Logs one line when the waiting begins and one when it ends.
        """
        pause = 0.1
        while True:
            try:
                act()
            except _OUTAGE as error:
                if not self._waiting:
                    _log.warning("waiting for %s: %s", self._words, error)
                    self._waiting = True
            else:
                if self._waiting:
                    _log.info("%s answers", self._words)
                    self._waiting = False
                return True
            if self._closing.wait(pause) or not wanted():
                return False
            pause = min(pause * 2, 3.0)

    def _open(self, url: str, migrate: bool) -> None:
        store = self._store = open_store(url, clock=self._clock, migrate=migrate)
        if self._patiently(store.check, lambda: True):
            self._date()
            settings = fitted(self._settings, store.url)
            self._parts = _Parts(
                store,
                self._clock,
                settings,
                self._policy_of,
                self._task_data.get,
                self._emit,
                self.fire_hooks,
                alive=lambda: frozenset(self._here),
                report=self._report,
                name=self.name,
            )
            self._parts.listener.subscribe(self.relay.send)
            self._emit(StoreOpened(store.url, self.name))

    def _date(self) -> None:
        """Read the store's clock to date the start of this deployment."""
        store, began = self._store, self._began
        if store is None:
            return  # it is read when the store is opened

        def read() -> None:
            age = timedelta(seconds=self._clock.monotonic() - began)
            self.deployed_at = store.now() - age

        self._patiently(read, lambda: True)

    def _policy_of(self, claim: Claim, details: Details) -> Policy:
        return stored_policy(self._policies.get(claim.task, DEFAULT_POLICY), details)

    def _join(self, worker: Worker) -> None:
        asked, parts = worker.id, self._parts
        if parts is None or asked in self._gone or self._closing.is_set():
            return
        tried, sent = False, 0.0

        def add() -> None:
            nonlocal worker, tried, sent
            worker = replace(worker, id=new_id()) if tried else worker
            tried = True
            sent = parts.heart.add(worker)
            self._here.add(worker.id)

        if self._patiently(add, lambda: asked not in self._gone):
            self._emit(WorkerJoined(asked, worker.id, sent, self.name))

    def _look_for_overdue(self) -> None:
        self._looking = False
        if self._store is not None:
            with contextlib.suppress(*_OUTAGE):
                late = self._store.overdue(_OVERDUE)
                jobs = frozenset((claim.worker, claim.id, claim.token) for claim in late)
                self._emit(OverdueSeen(jobs, self.name))

    def _leave(self, worker: UUID, how: WorkerEnd, reason: str, blamed: Collection[UUID]) -> None:
        self._gone.discard(worker)
        self._here.discard(worker)
        parts = self._parts
        if parts is None:
            return
        parts.heart.remove(worker, retire=False)
        until = self._clock.monotonic() + _LEAVING
        if not self._patiently(
            lambda: parts.settle(worker, how, reason, blamed), lambda: self._clock.monotonic() < until
        ):
            _log.warning("worker %s could not be retired in %s; its lease will expire", worker, self._words)


class _Parts:
    """Threads that run once the store is open."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: WorkerSettings,
        policy_of: Callable[[Claim, Details], Policy],
        task_data_of: TaskDataOf,
        emit: Callable[[Told], None],
        fire_hooks: FireHooks,
        *,
        alive: Callable[[], frozenset[UUID]],
        report: Callable[[], Mapping[UUID, WorkerReport]],
        name: str | None,
    ) -> None:
        random = Random()  # noqa: S311  (spreads load, keeps no secret)
        coordination = settings.coordination or Coordination.LEASE
        batch = batch_of(coordination)
        self._store = store
        self._release = Settle(store, clock, policy_of, random)
        self._reclaim = Reclaim(store, clock, policy_of, random, batch=batch, beat=settings.beat, alive=alive)
        self.listener = WakeupListener(store, clock)
        self.heart = HeartbeatThread(
            store,
            clock,
            beat=settings.beat,
            expiry=settings.expiry,
            on_cancel=lambda request: emit(CancelRequested(request)),
            on_drain=lambda worker: emit(DrainRequested(worker)),
            on_lost=lambda worker: emit(WorkerLeaseLost(worker)),
            on_confirmed=lambda workers, at: emit(HeartbeatConfirmed(workers, at)),
            on_pause=lambda worker, paused: emit(PauseRequested(worker, paused)),
            on_scale=lambda _worker, request: emit(ScaleRequested(request, name)),
            report=report,
            random=random,
        )
        self.duties = Duties(
            store,
            clock,
            new_id(),
            usual_duties(
                store,
                clock,
                policy_of,
                random,
                batch=batch,
                reclaim=self._reclaim,
                task_data_of=task_data_of,
                fire_hooks=fire_hooks,
                led=coordination in LED,
                locks=schedule_locks(store, clock, coordination),
            ),
            coordination=coordination,
            lease_beat=settings.lease_beat,
            lease_expiry=settings.lease_expiry,
            lease_rotation=settings.lease_rotation,
            lease_per_duty=settings.lease_per_duty,
            random=random,
            listener=self.listener,
            describe=lambda: holder_data(process_name(), alive()),
        )
        self.here = Duties(
            store,
            clock,
            new_id(),
            duties_here(store, clock, machine_name(), task_data_of, fire_hooks),
            coordination=Coordination.EVERYONE,
            random=random,
            listener=self.listener,
        )
        self.listener.subscribe(self._heard)
        self.heart.start()
        self.duties.start()
        self.here.start()
        self.listener.start()

    def _heard(self, topics: frozenset[str]) -> None:
        if "cancel" in topics:
            self.heart.beat_soon()

    def settle(self, worker: UUID, how: WorkerEnd, reason: str, blamed: Collection[UUID]) -> None:
        """Retire a worker whose process has exited, and release its jobs."""
        if how is WorkerEnd.CRASHED:
            self._reclaim.now([worker])
            return
        held = self._store.held(worker)
        if how is WorkerEnd.SICK:
            late = {claim.id for claim in self._store.overdue(_OVERDUE) if claim.worker == worker}
            self._release(held, verdicts(held, late, blamed, reason))
        else:
            self._release(held, lambda _claim: Released(STOPPING))
        self._store.retire([worker])

    def close(self) -> None:
        for part in (self.here, self.duties, self.listener, self.heart):
            part.close()


def read_policy(task_data: Mapping[str, object]) -> Policy:
    """Read a task's policy from a runner's hello message. Unreadable values become the defaults."""
    retry, cap, orphans = task_data.get("retry"), task_data.get("crash_cap"), task_data.get("orphans")
    try:
        return Policy(
            retry=policy_from_data(retry) if isinstance(retry, Mapping) else DEFAULT_POLICY.retry,
            crash_cap=cap if isinstance(cap, int) else DEFAULT_POLICY.crash_cap,
            orphans=OrphanRule(str(orphans)) if orphans else DEFAULT_POLICY.orphans,
        )
    except (BadSettings, TypeError, ValueError):
        return DEFAULT_POLICY
