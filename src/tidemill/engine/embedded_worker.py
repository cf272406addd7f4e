"""The embedded worker, whose parts run as threads of the user's process.

It has the same parts as ``tidemill worker`` (runner, heartbeat, duties, listener), but no separate process. A job that
holds the GIL for longer than the worker's expiry makes the worker look dead, and a job that kills the process kills the
worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from tidemill.archive.duty import RetentionDuty, RetentionThread
from tidemill.clock import Clock
from tidemill.delivery.background import BackgroundThread
from tidemill.domain.cluster import LED, CancelRequest, Coordination, Worker, holder_data
from tidemill.domain.decide import DEFAULT_POLICY, Policy, stored_policy
from tidemill.domain.job import Claim, Details
from tidemill.domain.job_requests import TaskData
from tidemill.domain.liveness import confirm_after, holds_for
from tidemill.domain.outcome import Released
from tidemill.domain.releases import CONFIRM
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.worker_reports import ScaleRequest, SlotCounts, WorkerReport
from tidemill.engine.app_lookup import refuse_while_importing
from tidemill.engine.completion import Connections
from tidemill.engine.duties import (
    LocalFireHooks,
    Reclaim,
    batch_of,
    duties_here,
    schedule_locks,
    usual_duties,
)
from tidemill.engine.duties.removal import MEMORY_RETENTION
from tidemill.engine.duties.settle import Settle
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.engine.exchange.planner import RunnerStats
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.engine.listener import WakeupListener
from tidemill.engine.node import host_name, machine_name, process_name, release_here
from tidemill.engine.process_figures import ProcessMeter
from tidemill.engine.runner.code_check import CodeCheck
from tidemill.engine.runner.runner import ClaimerFactory, Runner
from tidemill.engine.runner.watchdog import Fence
from tidemill.engine.suspension import LEASE_LOST
from tidemill.engine.worker_settings import WorkerSettings, fitted
from tidemill.errors import StoreError, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.tasks.events import Events
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.engine")

_LATER = 0.05  # seconds after the earliest possible decision of the second check


class Tick(NamedTuple):
    """Result of a tick: number of executions that ended, and how many of them failed. Released jobs are not counted."""

    processed: int
    errors: int


class EmbeddedWorker:
    """Runs an app's jobs in this process, from ``start`` (or entering a ``with`` block) to ``stop``."""

    _make_claimer: ClaimerFactory = Claimer

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        settings: WorkerSettings,
        *,
        events: Events | None = None,
        hooks: Hooks = NO_HOOKS,
        app_path: str | None = None,
        connections: Connections | None = None,
        prepare: Callable[[], object] | None = None,
        confirm: Callable[[], None] | None = None,
        retention: RetentionDuty | None = None,
        background: Callable[[], BackgroundThread | None] = lambda: None,
        store_name: str | None = None,
    ) -> None:
        self._store_name = store_name
        self._store, self._registry, self._clock = store, registry, clock
        self._prepare, self._confirm, self._node = prepare, confirm, machine_name()
        self._settings = fitted(settings, store.url)
        self._events, self._hooks, self._app_path = events, hooks, app_path
        self._code_check = CodeCheck(store, registry)
        self._connections = connections
        self._retention = retention
        self._make_background = background
        self._background: BackgroundThread | None = None
        self._archiver: RetentionThread | None = None
        self._lock = threading.Lock()
        self._runner: Runner | None = None
        self._fence: Fence | None = None
        self._parts: tuple[HeartbeatThread, Duties, WakeupListener] | None = None
        self._here: Duties | None = None
        self._over = False
        self._address: UUID | None = None  # that requests of operators name
        self._slots: SlotCounts | None = None  # as an operator requested
        self._paused, self._scaled = False, 0
        self._meter = ProcessMeter(clock)

    # Lifecycle --------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether this worker was started and not stopped."""
        return self._parts is not None and not self._over

    def start(self) -> Self:
        """Start working. Raises if the store cannot be used."""
        refuse_while_importing()
        with self._lock:
            if self._parts is not None or self._over:
                raise UsageError("this worker was already started; create another one")
            self._store.check()
            if self._prepare is not None:
                self._prepare()
            listener = WakeupListener(self._store, self._clock)
            heart = self._heart()
            # Started first: a lifespan may take longer to enter than the lease lasts.
            heart.start()
            try:
                self._runner = self._begin(heart, listener)
            except BaseException:
                heart.close()
                raise
            self._parts = heart, self.duties(listener), listener
            self._here = self.duties_here(listener)
        listener.subscribe(self._heard)
        self._here.start()
        for part in self._parts[1:]:
            part.start()
        if self._retention is not None:
            self._archiver = RetentionThread(self._retention)
            self._archiver.start()
        self._background = self._make_background()
        if self._background is not None:
            listener.subscribe(self._background.heard)
            self._background.start()
        return self

    def _heart(self) -> HeartbeatThread:
        settings = self._settings
        return HeartbeatThread(
            self._store,
            self._clock,
            beat=settings.beat,
            expiry=settings.expiry,
            on_cancel=self._on_cancel,
            on_drain=self._on_drain,
            on_lost=self._on_lost,
            on_confirmed=self._on_confirmed,
            on_pause=self._on_pause,
            on_scale=self._on_scale,
            report=self._reports,
        )

    def duties(self, listener: WakeupListener | None) -> Duties:
        """Return the duties that this worker can perform."""
        settings, random = self._settings, Random()  # noqa: S311  (spreads load, keeps no secret)
        coordination = settings.coordination or Coordination.EVERYONE
        batch = batch_of(coordination)
        reclaim = Reclaim(
            self._store,
            self._clock,
            self._policy_of,
            random,
            batch=batch,
            beat=settings.beat,
            alive=self._own,
        )
        return Duties(
            self._store,
            self._clock,
            new_id(),
            usual_duties(
                self._store,
                self._clock,
                self._policy_of,
                random,
                batch=batch,
                reclaim=reclaim,
                retention=self._drops(),
                task_data_of=self._task_data_of,
                fire_hooks=LocalFireHooks(self._hooks, self._events),
                led=coordination in LED,
                locks=schedule_locks(self._store, self._clock, coordination),
            ),
            coordination=coordination,
            lease_beat=settings.lease_beat,
            lease_expiry=settings.lease_expiry,
            lease_rotation=settings.lease_rotation,
            lease_per_duty=settings.lease_per_duty,
            random=random,
            listener=listener,
            describe=lambda: holder_data(process_name(), self._own()),
        )

    def _drops(self) -> Sequence[ArchivePolicy]:
        """Return what is deleted from a store that keeps nothing after a restart anyway."""
        return MEMORY_RETENTION if self._retention is None and self._store.url.startswith("memory") else ()

    def duties_here(self, listener: WakeupListener | None) -> Duties:
        """Return the duties that every node performs for itself, whether or not it is the leader."""
        return Duties(
            self._store,
            self._clock,
            new_id(),
            [
                *duties_here(
                    self._store,
                    self._clock,
                    self._node,
                    self._task_data_of,
                    LocalFireHooks(self._hooks, self._events),
                ),
                self._code_check.duty(),
                *([] if self._confirm is None else [Duty("release", CONFIRM, self._confirm_release)]),
            ],
            coordination=Coordination.EVERYONE,
            random=Random(),  # noqa: S311  (spreads load, keeps no secret)
            listener=listener,
        )

    def _confirm_release(self) -> Done:
        """Confirm that this deployment is alive."""
        if self._confirm is not None:
            self._confirm()
        return Done()

    def _own(self) -> tuple[UUID, ...]:
        """Return the worker that runs in this process and is therefore known to be alive."""
        fence = self._fence
        return () if fence is None else (fence.worker,)

    def _task_data_of(self, task: str) -> TaskData | None:
        return self._registry.get(task).data if task in self._registry else None

    def _policy_of(self, claim: Claim, details: Details) -> Policy:
        if claim.task not in self._registry:
            return stored_policy(DEFAULT_POLICY, details)
        return self._registry.get(claim.task).policy(details)

    def _new_worker_id(self) -> UUID:
        return new_id()

    def _begin(self, heart: HeartbeatThread, listener: WakeupListener | None) -> Runner:
        """Register as a new worker and start a runner for it."""
        me = self._new_worker_id()
        self._address = self._address or self._new_worker_id()
        settings = self._settings
        if self._slots is not None:
            settings = replace(settings, **self._slots._asdict())
        host = host_name()
        confirmed = heart.add(
            Worker(
                me,
                process_name(),
                host=host,
                pid=os.getpid(),
                node=self._node,
                version=release_here(),
                queues=settings.queues or (),
                tasks=tuple(self._registry.served_names()),
                concurrency=settings.concurrency + settings.threads + settings.children,
                supervisor=self._address,
                place=1,
                report=self._report(SlotCounts(settings.concurrency, settings.threads, settings.children)),
                paused=self._paused,
            )
        )
        fence = Fence(self._clock, me, limit=holds_for(settings.expiry), confirmed=confirmed)
        fence.on_lost = lambda: self._on_lost(me)
        self._fence = fence
        runner = Runner(
            self._store,
            self._registry,
            me,
            settings,
            self._clock,
            listener=listener,
            events=self._events,
            hooks=self._hooks,
            connections=self._connections,
            app_path=self._app_path,
            fence=fence,
            store_name=self._store_name,
            make_claimer=self._make_claimer,
            paused=self._paused,
        )
        try:
            runner.start()
        except BaseException:
            heart.remove(me)
            runner.close()
            raise
        return runner

    def stop(self, grace: float | None = None) -> None:
        """Stop claiming, let jobs finish, and release the rest. Harmless if called twice."""
        with self._lock:
            runner, parts, over, self._over = self._runner, self._parts, self._over, True
        if runner is None or parts is None or over:
            return
        heart, duties, listener = parts
        if self._archiver is not None:
            self._archiver.close()
        if self._background is not None:
            self._background.close()
        duties.close()
        if self._here is not None:
            self._here.close()
        runner.stop(self._settings.grace.total_seconds() if grace is None else grace)
        heart.remove(runner.worker)
        heart.close()
        listener.close()
        self._hooks.flush()
        # Only now: until its end the runner needs cancellations and the notice of a lost lease.
        self._runner = self._parts = None

    @property
    def id(self) -> UUID | None:
        """The current id of the worker, which is new at every start."""
        runner = self._runner
        return None if runner is None else runner.worker

    def stats(self) -> RunnerStats | None:
        """Return the current figures, or None if the worker is not running."""
        runner = self._runner
        return None if runner is None else runner.stats()

    def tick(self, budget: float) -> Tick:
        """Run due jobs for at most about ``budget`` seconds, then stop.

        A worker whose lease has expired is declared dead only after a second check (``domain.liveness``). If there is
        one, the tick waits for that check, provided that the budget allows it, and runs the recovered jobs.
        """
        refuse_while_importing()
        ends = self._clock.monotonic() + budget
        heart = self._heart()
        if self._prepare is not None:
            self._prepare()
        self.duties_here(None).run_once()
        duties = self.duties(None)
        look_at = self._next_look(duties)
        heart.start()
        try:
            runner = self._begin(heart, None)
        except BaseException:
            heart.close()
            raise
        try:
            self._work_off(runner, ends)
            if look_at is not None and look_at < ends:
                while (left := look_at - self._clock.monotonic()) > 0:
                    runner.rest(left)
                duties.run_once()
                self._work_off(runner, ends)
            self._archive(ends)
            self._look_after(runner, ends)
        finally:
            runner.stop(0.0)
            heart.remove(runner.worker)
            heart.close()
        stats = runner.stats()
        return Tick(stats.done - stats.handed_back, stats.errors)

    def _look_after(self, runner: Runner, ends: float) -> None:
        """Perform the background duties once, and send the notifications that they enqueue."""
        background = self._make_background()
        if background is not None and ends > self._clock.monotonic():
            background.once()
            self._work_off(runner, ends)

    def _archive(self, ends: float) -> None:
        """Perform an archive run if one is due and time is left."""
        left = ends - self._clock.monotonic()
        if self._retention is None or left <= 0:
            return
        try:
            self._retention.step(budget=timedelta(seconds=left))
        except StoreError as error:
            _log.warning("cannot archive jobs now: %s", error)

    def _next_look(self, duties: Duties) -> float | None:
        """Perform the duties once.

        Returns the monotonic time of the second check of a worker that may be dead, if there is one.
        """
        next_at = duties.run_once()["reclaim"].next_at
        if next_at is None:
            return None
        wait = (next_at - self._clock.now()).total_seconds()
        settings = self._settings
        suspected = wait <= confirm_after(settings.expiry, settings.beat)
        return self._clock.monotonic() + max(wait, 0.0) + _LATER if suspected else None

    def _work_off(self, runner: Runner, ends: float) -> None:
        """Run due jobs, including those that these jobs enqueue. No wake-ups arrive for the latter."""
        done = -1
        while done < (done := runner.stats().done):
            runner.wake()
            while not runner.quiet and (left := ends - self._clock.monotonic()) > 0:
                runner.rest(min(left, 0.01))

    # Callbacks --------------------------------------------------------------------------------------------------------

    def _heard(self, topics: frozenset[str]) -> None:
        if "cancel" in topics and self._parts is not None:
            self._parts[0].beat_soon()

    def _on_cancel(self, request: CancelRequest) -> None:
        runner = self._runner
        if runner is not None:
            runner.cancel([request])

    def _on_drain(self, worker: UUID) -> None:
        runner = self._runner
        if runner is not None and runner.worker == worker:
            _log.info("worker %s was asked to drain: it claims nothing more", worker)
            runner.drain()

    def _on_pause(self, worker: UUID, paused: bool) -> None:
        runner = self._runner
        if runner is not None and runner.worker == worker:
            self._paused = paused
            if paused:
                _log.info("worker %s is paused at an operator's request", worker)
                runner.pause()
            else:
                _log.info("worker %s claims again at an operator's request", worker)
                runner.resume()

    def _on_scale(self, worker: UUID, request: ScaleRequest) -> None:
        runner = self._runner
        # A worker that registers again gets the latest request again.
        if runner is not None and runner.worker == worker and request.number > self._scaled:
            self._scaled, self._slots = request.number, request.scale.slots
            _log.info(
                "worker %s is scaled at an operator's request: %d coroutines, %d threads and %d children",
                worker,
                *request.scale.slots,
            )
            runner.resize(request.scale.slots)

    def _reports(self) -> Mapping[UUID, WorkerReport]:
        runner = self._runner
        if runner is None:
            return {}
        return {runner.worker: self._report(runner.slots)}

    def _report(self, slots: SlotCounts) -> WorkerReport:
        return WorkerReport(slots, self._meter.measure(os.getpid()))

    def _on_confirmed(self, workers: frozenset[UUID], at: float) -> None:
        fence = self._fence
        if fence is not None and fence.worker in workers:
            fence.confirm(at)

    def _on_lost(self, worker: UUID) -> None:
        """Drop all jobs, because other workers may have them, and register again as a new worker."""
        threading.Thread(target=self._begin_again, args=(worker,), name="tidemill-again", daemon=True).start()

    def _begin_again(self, lost: UUID) -> None:
        with self._lock:
            runner = self._runner
            if runner is None or runner.worker != lost:
                return
        _log.error("worker %s has lost its lease: its jobs are dropped, and it registers again", lost)
        runner.abandon()
        self._fence = None
        while True:
            with self._lock:
                if self._runner is not runner or self._parts is None or self._over:
                    return
                heart, _, listener = self._parts
                heart.remove(lost, retire=False)
                try:
                    self._give_back(lost)
                    self._runner = self._begin(heart, listener)
                    return
                except StoreError as error:
                    _log.warning("a new worker cannot be registered yet: %s", error)
            runner.rest(1.0)

    def _give_back(self, lost: UUID) -> None:
        """Retire a worker whose jobs were dropped.

        Jobs that no other worker has claimed are released without a charged attempt.
        """
        # Spreads load, keeps no secret.
        settle = Settle(self._store, self._clock, self._policy_of, Random())  # noqa: S311
        settle(self._store.held(lost), lambda _claim: Released(LEASE_LOST))
        self._store.retire([lost])

    # Context manager --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
