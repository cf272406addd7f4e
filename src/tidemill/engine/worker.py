"""The embedded worker: a runner, a heart, the duties and an ear as threads of the user's own process.

The same parts as under ``tidemill worker``, without a process of their own between them: a job that holds the interpreter for
longer than the worker's expiry is taken for dead here, and one that kills the process kills the worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest, Coordination, Worker
from tidemill.domain.decide import DEFAULT_POLICY, Policy, stored_policy
from tidemill.domain.job import Claim, Details
from tidemill.domain.requests import Facts
from tidemill.engine.duties import batch_of, duties_here, usual_duties
from tidemill.engine.duties.retention import MEMORY_RETENTION
from tidemill.engine.duty import Duties
from tidemill.engine.ear import Ear
from tidemill.engine.heart import Heart
from tidemill.engine.node import host_name, machine_name, release_here
from tidemill.engine.plan import RunnerStats
from tidemill.engine.runner import Runner
from tidemill.engine.settings import WorkerSettings, fitted
from tidemill.errors import StoreError, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.tasks.events import Events
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.engine")


class Tick(NamedTuple):
    """What a tick did: executions run, and how many of them went wrong."""

    processed: int
    errors: int


class EmbeddedWorker:
    """Runs an app's jobs in this process, from ``start`` (or the beginning of a block) to ``stop``."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        settings: WorkerSettings,
        *,
        events: Events | None = None,
        middleware: Sequence[Middleware] = (),
        app_path: str | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._store, self._registry, self._clock = store, registry, clock
        self._prepare, self._node = prepare, machine_name()
        self._settings = fitted(settings, store.url)
        self._events, self._middleware, self._app_path = events, middleware, app_path
        self._lock = threading.Lock()
        self._runner: Runner | None = None
        self._parts: tuple[Heart, Duties, Ear] | None = None
        self._here: Duties | None = None
        self._over = False

    # Life ----------------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to work. What the store has against it is raised."""
        with self._lock:
            if self._parts is not None or self._over:
                raise UsageError("this worker was started already; ask the app for another one")
            self._store.check()
            if self._prepare is not None:
                self._prepare()
            ear = Ear(self._store, self._clock)
            heart = self._heart()
            self._runner = self._begin(heart, ear)
            self._parts = heart, self.duties(ear), ear
            self._here = self.duties_here(ear)
        ear.subscribe(self._heard)
        self._here.start()
        for part in self._parts:
            part.start()
        return self

    def _heart(self) -> Heart:
        settings = self._settings
        return Heart(
            self._store,
            self._clock,
            beat=settings.beat,
            expiry=settings.expiry,
            on_cancel=self._on_cancel,
            on_drain=self._on_drain,
            on_lost=self._on_lost,
        )

    def duties(self, ear: Ear | None) -> Duties:
        """The duties this worker offers to do."""
        settings, random = self._settings, Random()  # noqa: S311  (spreads load, keeps no secret)
        coordination = settings.coordination or Coordination.EVERYONE
        return Duties(
            self._store,
            self._clock,
            new_id(),
            usual_duties(
                self._store,
                self._clock,
                self._policy_of,
                random,
                batch=batch_of(coordination),
                retention=MEMORY_RETENTION if self._store.url.startswith("memory") else (),
                facts_of=self._facts_of,
            ),
            coordination=coordination,
            lease_beat=settings.lease_beat,
            lease_expiry=settings.lease_expiry,
            random=random,
            ear=ear,
        )

    def duties_here(self, ear: Ear | None) -> Duties:
        """What this node does for itself, whoever leads."""
        return Duties(
            self._store,
            self._clock,
            new_id(),
            duties_here(self._store, self._clock, self._node, self._facts_of),
            coordination=Coordination.EVERYONE,
            random=Random(),  # noqa: S311  (spreads load, keeps no secret)
            ear=ear,
        )

    def _facts_of(self, task: str) -> Facts | None:
        return self._registry.get(task).facts if task in self._registry else None

    def _policy_of(self, claim: Claim, details: Details) -> Policy:
        if claim.task not in self._registry:
            return stored_policy(DEFAULT_POLICY, details)
        return self._registry.get(claim.task).policy(details)

    def _begin(self, heart: Heart, ear: Ear | None) -> Runner:
        """Register as a new worker and run for it."""
        me = new_id()
        settings = self._settings
        host = host_name()
        heart.add(
            Worker(
                me,
                f"{host}-{os.getpid()}",
                host=host,
                pid=os.getpid(),
                node=self._node,
                version=release_here(),
                queues=settings.queues or (),
                tasks=tuple(self._registry.names()),
                concurrency=settings.concurrency + settings.threads + settings.children,
            )
        )
        runner = Runner(
            self._store,
            self._registry,
            me,
            settings,
            self._clock,
            ear=ear,
            events=self._events,
            middleware=self._middleware,
            app_path=self._app_path,
        )
        runner.start()
        return runner

    def stop(self, grace: float | None = None) -> None:
        """Claim nothing more, let jobs finish, hand back the rest; stopping twice is harmless."""
        with self._lock:
            runner, parts, over, self._over = self._runner, self._parts, self._over, True
        if runner is None or parts is None or over:
            return
        heart, duties, ear = parts
        duties.close()
        if self._here is not None:
            self._here.close()
        runner.stop(self._settings.grace.total_seconds() if grace is None else grace)
        heart.remove(runner.worker)
        heart.close()
        ear.close()
        self._runner = self._parts = (
            None  # only now: until its end it hears of cancels, and of a lease that is lost
        )

    @property
    def id(self) -> UUID | None:
        """The worker's present id; it is new at every start."""
        runner = self._runner
        return None if runner is None else runner.worker

    def stats(self) -> RunnerStats | None:
        """What it is doing; None when it is not."""
        runner = self._runner
        return None if runner is None else runner.stats()

    def tick(self, budget: float) -> Tick:
        """Do what is due, for at most about so many seconds, and stop."""
        ends = self._clock.monotonic() + budget
        heart = self._heart()
        if self._prepare is not None:
            self._prepare()
        for duties in (self.duties_here(None), self.duties(None)):
            duties.run_once()
        runner = self._begin(heart, None)
        heart.start()
        done = -1
        try:
            # What they enqueue is due as well, and nobody rings for it.
            while done < (done := runner.stats().done):
                runner.wake()
                while not runner.quiet and (left := ends - self._clock.monotonic()) > 0:
                    runner.rest(min(left, 0.01))
        finally:
            runner.stop(0.0)
            heart.remove(runner.worker)
            heart.close()
        stats = runner.stats()
        return Tick(stats.done, stats.errors)

    # What is heard -------------------------------------------------------------------------------------------------------

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

    def _on_lost(self, worker: UUID) -> None:
        """Others may have its jobs: drop them all, and begin again as somebody else."""
        threading.Thread(target=self._begin_again, args=(worker,), name="tidemill-again", daemon=True).start()

    def _begin_again(self, lost: UUID) -> None:
        with self._lock:
            runner = self._runner
            if runner is None or runner.worker != lost:
                return
        _log.error("worker %s has lost its lease: its jobs are dropped, and it begins again", lost)
        runner.abandon()
        while True:
            with self._lock:
                if self._runner is not runner or self._parts is None or self._over:
                    return
                heart, _, ear = self._parts
                try:
                    self._runner = self._begin(heart, ear)
                    return
                except StoreError as error:
                    _log.warning("a new worker cannot be registered yet: %s", error)
            runner.rest(1.0)

    # As a block ----------------------------------------------------------------------------------------------------------

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
