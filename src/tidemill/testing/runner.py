"""A runner for jobs in tests, with real execution on a manual clock.

It runs one job at a time in this process, so a test sees all effects. Schedules fire when the clock reaches their time. It is not
a worker: it reclaims no orphans, enforces no limits and stops no job that runs too long. A task that advances the clock past its
own timeout has timed out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from tidemill.clock import Clock, ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED, decide
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import NO_DETAILS, Claim, Details, Finish, JobRow, LogEntry
from tidemill.domain.job_requests import TaskData
from tidemill.domain.lanes import ClaimRequest, Lane, Watermarks
from tidemill.domain.misfits import tried
from tidemill.domain.outcome import Crashed, Failed, Misfit, Outcome, Released, TimedOut
from tidemill.domain.record import Record, rows_kept
from tidemill.domain.records import PauseKind
from tidemill.domain.signals import NewSignal, Posted
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.completion import Connections
from tidemill.engine.duties import CascadeDuty, FireDuty, FireHere, LocalFireHooks, ReactDuty, Wake
from tidemill.engine.duty import Done
from tidemill.engine.lifespan import Lifetime, OwnLoopLifetime, RunningLoopLifetime
from tidemill.engine.log_records import stamp_records
from tidemill.engine.node import machine_name, serves
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.engine.runner.publisher import publish_enqueued
from tidemill.engine.runner.retry_hooks import timed_out
from tidemill.engine.wakeup_topics import topics
from tidemill.errors import Signal, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Events
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared
from tidemill.testing.kill_points import KillPoints, WorkerKilled
from tidemill.testing.store_outlet import StoreOutlet

JITTER = 0.5
"""The middle of every jitter range, so that delays in tests are deterministic."""

LEASE = timedelta(days=3650)
"""The lease of the runner, which sends no heartbeats while a test advances the clock by weeks."""

_BATCH = 1_000


class Named(Protocol):
    """A task, however it was declared."""

    @property
    def name(self) -> str: ...


class HasId(Protocol):
    """A job, however it is held."""

    @property
    def id(self) -> UUID: ...


@dataclass(frozen=True, slots=True)
class Drained:
    """The executions of a run: in all, and how many completed, failed, postponed or had lost their job."""

    processed: int = 0
    completed: int = 0
    failed: int = 0  #: raised an exception or timed out, whether or not the job is retried
    put_off: int = 0  #: the job has not ended: retried, snoozed, waiting or under review
    lost: int = 0

    def __add__(self, other: Drained) -> Drained:
        return Drained(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class _Work(NamedTuple):
    declared: Declared
    claim: Claim
    job: JobRow
    outlet: StoreOutlet

    def warn(self, text: str) -> None:
        claim = self.claim
        self.outlet.log(
            LogEntry(claim.id, claim.token, self.outlet.now(), text, "warning", worker=claim.worker)
        )


class Testing:
    """Runs due jobs in the order of a worker.

    >>> from tidemill.stores.memory import MemoryStore
    >>> with Testing(MemoryStore(), Registry(), ManualClock()) as testing:
    ...     testing.drain().processed
    0
    """

    __test__ = False  # not a test class, despite its name

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        *,
        events: Events | None = None,
        hooks: Hooks = NO_HOOKS,
        connections: Connections | None = None,
        prepare: Callable[[], object] | None = None,
        store_name: str | None = None,
    ) -> None:
        self._connections, self._store_name = connections, store_name
        self._store, self._registry, self._prepare = store, registry, prepare
        self._events, self._hooks = events, hooks
        self.clock = clock
        stamp_records()
        self._marks = Watermarks()
        self._worker: UUID | None = None
        self._next_due: datetime | None = None
        self._node = machine_name()
        waiting, fire_hooks = Wake(store, clock, pinned=True), LocalFireHooks(hooks, events)
        self._firing: tuple[Callable[[], Done], ...] = (
            FireDuty(store, clock, self._task_data_of, fire_hooks, pinned=True, on_waiting=waiting.knows),
            FireHere(
                store,
                clock,
                self._node,
                self._task_data_of,
                fire_hooks,
                pinned=True,
                on_waiting=waiting.knows,
            ),
            ReactDuty(store, clock, self._task_data_of, fire_hooks, pinned=True, on_waiting=waiting.knows),
            waiting,
            CascadeDuty(store, clock, pinned=True),
        )
        self._next_fire: datetime | None = None
        self._kill_points = KillPoints()

    def kill_at(self, point: str) -> None:
        """Let the worker die when a job reaches this point next; ``drain`` then continues as another worker would.

        ``after-step:charge`` is after the record of the step, ``in-step:charge`` after its effect and before its record, and
        ``finish`` before the end of an execution is written.
        """
        self._kill_points.arm(point)

    @property
    def kills(self) -> list[str]:
        """The points at which the worker died, in order."""
        return self._kill_points.kills

    def resume_all(self, max_time: Duration = "1d", limit: int = 10_000) -> Drained:
        """Run jobs until none is due within ``max_time``, and let the worker die once at every step boundary of each job.

        A function whose steps are sound has the same result as without the crashes: compare it with that of ``drain``.
        """
        kept, self._kill_points = self._kill_points, KillPoints(everywhere=True)
        try:
            return self.run_until_idle(max_time, limit)
        finally:
            kept.kills += self._kill_points.kills
            self._kill_points = kept

    async def aresume_all(self, max_time: Duration = "1d", limit: int = 10_000) -> Drained:
        """The same inside a running event loop."""
        kept, self._kill_points = self._kill_points, KillPoints(everywhere=True)
        try:
            return await self.arun_until_idle(max_time, limit)
        finally:
            kept.kills += self._kill_points.kills
            self._kill_points = kept

    def drain(self, limit: int = 10_000, raise_errors: bool = False) -> Drained:
        """Run jobs until none is due at the current time, or until ``limit`` executions.

        ``raise_errors`` raises the exception of the first failing job, after its failure was recorded.
        """
        _need_no_loop()
        done, life = Drained(), OwnLoopLifetime(self._hooks)
        self._clock_in()
        self.fire()
        try:
            while done.processed < limit and (work := self._take(life)) is not None:
                try:
                    life.enter()
                    ended = run(*work, self.clock, self._hooks)
                except BaseException:
                    self._give_back(work)
                    raise
                done += self._settle(work, ended, raise_errors=raise_errors)
        finally:
            life.exit()
        return done

    async def adrain(self, limit: int = 10_000, raise_errors: bool = False) -> Drained:
        """The same inside a running event loop: coroutines run on it, functions in a thread."""
        done, life = Drained(), RunningLoopLifetime(self._hooks)
        self._clock_in()
        self.fire()
        try:
            while done.processed < limit and (work := self._take(life)) is not None:
                try:
                    await life.aenter()
                    ended = await arun(*work, self.clock, self._hooks)
                except BaseException:
                    self._give_back(work)
                    raise
                done += self._settle(work, ended, raise_errors=raise_errors)
        finally:
            await life.aexit()
        return done

    def run_until_idle(
        self, max_time: Duration = "1d", limit: int = 10_000, raise_errors: bool = False
    ) -> Drained:
        """Drain, and advance the clock to the next due job, until none is due within ``max_time`` from now."""
        end = self.clock.now() + read_duration("max_time", max_time)
        done = self.drain(limit, raise_errors)
        while done.processed < limit and self._go_to_next(end):
            done += self.drain(limit - done.processed, raise_errors)
        return done

    async def arun_until_idle(
        self, max_time: Duration = "1d", limit: int = 10_000, raise_errors: bool = False
    ) -> Drained:
        """The same inside a running event loop."""
        end = self.clock.now() + read_duration("max_time", max_time)
        done = await self.adrain(limit, raise_errors)
        while done.processed < limit and self._go_to_next(end):
            done += await self.adrain(limit - done.processed, raise_errors)
        return done

    def advance(self, by: Duration) -> datetime:
        """Advance the clock; this runs no jobs."""
        if not isinstance(self.clock, ManualClock):
            raise UsageError(
                'this clock moves by itself; use app.override("memory://", clock=ManualClock()), or make the app with'
                " clock=ManualClock()"
            )
        return self.clock.advance(by)

    def signal(
        self, job: JobRow | UUID | HasId, name: str, payload: object = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to a job, as ``app.signal`` does; ``drain`` then resumes it. Returns False for a repeated key."""
        id = job if isinstance(job, UUID) else job.id
        tenant = next((row.tenant for row in self._store.get([id], tenant=ALL_TENANTS)), "default")
        text = None if payload is None else json.dumps(payload)
        (answer,) = self._store.post_signals([NewSignal(id, tenant, name, text, key)], now=self.clock.now())
        if answer not in (Posted.ACCEPTED, Posted.REPEATED):
            raise UsageError(f"job {id} takes no signal {name!r}: {answer}")
        self._store.wake_receivers([id], now=self.clock.now())
        return answer is Posted.ACCEPTED

    def enqueued(self, task: str | Named | None = None) -> list[JobRow]:
        """Jobs that wait for a worker or for their time, oldest first; of one task, or of all."""
        names = () if task is None else (task if isinstance(task, str) else task.name,)
        where = JobFilter(ALL_TENANTS, frozenset({JobState.PENDING, JobState.SCHEDULED}), frozenset(names))
        found: list[JobRow] = []
        after: str | None = None
        while True:
            page = self._store.jobs(where, sort=Sort.OLDEST, limit=_BATCH, after=after)
            found += page.items
            if page.next is None:
                return found
            after = page.next

    def close(self) -> None:
        """Retire the runner's worker; a second call has no effect."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._store.retire([worker], now=self.clock.now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # One job -----------------------------------------------------------------------------------------------------------

    def _clock_in(self) -> None:
        """Keep the runner's worker alive: send a heartbeat, or register a new worker if the old one is gone."""
        now = self.clock.now()
        if (
            self._worker is not None
            and self._worker in self._store.beat([self._worker], lease=LEASE, now=now).alive
        ):
            return
        self._worker = new_id()
        me = Worker(self._worker, "testing", node=self._node, concurrency=1)
        self._store.register(me, lease=LEASE, now=now)

    def _task_data_of(self, task: str) -> TaskData | None:
        return self._registry.get(task).data if task in self._registry else None

    def fire(self) -> int:
        """Fire the schedules that are due now; returns the number of fires. ``drain`` calls this itself."""
        if self._prepare is not None:
            self._prepare()
        fires, ahead = 0, []
        for duty in self._firing:
            done = Done(more=True)
            while done.more:
                done = duty()
                fires += done.items
            if done.next_at is not None and not isinstance(duty, Wake):
                ahead.append(done.next_at)
        self._next_fire = min(ahead, default=None)
        return fires

    def _take(self, life: Lifetime) -> _Work | None:
        while (claim := self._claim() or (self._claim() if self.fire() else None)) is not None:
            declared = self._registry.get(claim.task)
            if claim.expires_at is None or claim.expires_at > self.clock.now():
                (job,) = self._store.get([claim.id], tenant=claim.tenant)
                self._tell("job.started", claim, JobState.RUNNING)
                return _Work(
                    declared,
                    claim,
                    job,
                    StoreOutlet(
                        self._store,
                        claim,
                        self.clock,
                        declared,
                        self._connections,
                        life,
                        self._store_name,
                        job.details,
                        self._kill_points,
                    ),
                )
            # The rules cancel an expired job that is released.
            self._write(claim, declared, Released("expired"))
        return None

    def _claim(self) -> Claim | None:
        now = self.clock.now()
        self._next_due = self._store.promote(_BATCH, now=now).next_run_at
        paused = {(pause.kind, pause.name) for pause in self._store.pauses()}
        if any(kind is PauseKind.ALL for kind, _ in paused):
            return None
        self._marks.seen(self._store.lanes())
        # Jobs with limits are counted, so that the counts are visible, but no rule is enforced.
        lanes = [
            lane
            for lane in sorted((*self._marks.lanes(), *self._gates()), key=lambda lane: -lane.priority)
            if (PauseKind.QUEUE, lane.queue) not in paused
            and (PauseKind.TENANT, lane.tenant) not in paused
            and serves(lane.queue, self._node, self._worker)
        ]
        # Jobs of tasks that are not declared here are not claimed, as by any worker.
        tasks = [
            name
            for name in self._registry.served_names()
            if not {(PauseKind.TASK, name), (PauseKind.TASK, self._registry.name_of(name))} & paused
        ]
        assert self._worker is not None
        return next(iter(self._store.claim(ClaimRequest(self._worker, lanes, 1, tasks), now=now)), None)

    def _gates(self) -> list[Lane]:
        """All lanes with limits, because lanes of tasks that are not declared here may precede others."""
        found: list[Lane] = []
        page = self._store.gates()
        while page:
            found += page
            page = self._store.gates(after=page[-1].key)
        return found

    def _settle(self, work: _Work, ended: ExecutionEnd, *, raise_errors: bool) -> Drained:
        work.outlet.finishing()
        if work.outlet.killed is not None:
            return self._crash(work, work.outlet.killed)
        timeout = work.claim.timeout
        if timeout is not None and ended.ended - ended.began > timeout.total_seconds():
            outcome = timed_out(
                work.declared, work.claim, timeout, lambda: work.job, self.clock.now(), work.warn
            )
            ended = ended._replace(outcome=outcome, result=None, error=None)
        claim = work.outlet.claim._replace(cancel_reason=work.outlet.cancel_reason())
        written = self._write(
            claim, work.declared, ended.outcome, ended, work.job.details, completes=work.outlet.completes
        )
        failed = isinstance(ended.outcome, Failed | TimedOut | Misfit)
        if (
            raise_errors
            and failed
            and ended.exception is not None
            and not isinstance(ended.exception, Signal)
        ):
            raise ended.exception
        return Drained(
            processed=1,
            completed=int(written is JobState.COMPLETED),
            failed=int(failed),
            put_off=int(written is not None and written not in ENDED),
            lost=int(written is None),
        )

    def _crash(self, work: _Work, killed: WorkerKilled) -> Drained:
        """Reclaim the job of a worker that died, as the leader does."""
        claim = work.outlet.claim._replace(cancel_reason=work.outlet.cancel_reason(), state=JobState.RUNNING)
        # A crash that only tests the job is not charged, so that many of them are no crash loop.
        crashed = Crashed(str(killed), alone=not self._kill_points.everywhere)
        written = self._write(claim, work.declared, crashed, None, work.job.details)
        return Drained(processed=1, put_off=int(written not in ENDED), lost=int(written is None))

    def _give_back(self, work: _Work) -> None:
        """Release a job whose run was interrupted; it may be claimed again, and no attempt is used."""
        self._write(work.claim, work.declared, Released("interrupted"))

    def _write(
        self,
        claim: Claim,
        declared: Declared,
        outcome: Outcome,
        ended: ExecutionEnd | None = None,
        details: Details = NO_DETAILS,
        *,
        completes: bool = False,
    ) -> JobState | None:
        """Decide and finish; returns the job's new state, or None if it was lost."""
        now = self.clock.now()
        if isinstance(outcome, Misfit):
            known = tried(self._store.executions([claim.id], tenant=claim.tenant), claim.token)
            outcome = replace(outcome, times=known.times, since=known.since)
        transition = decide(claim, outcome, declared.policy(details), now, JITTER)
        if ended is None:
            finish = Finish(claim, transition)
        else:
            finish = ended.finish(claim, transition, self.clock.monotonic())
            if isinstance(outcome, Misfit) and transition.state is not JobState.FAILED:
                finish = finish._replace(error=None)
        keep = rows_kept(declared.record(details), transition.state, claim.token)
        finish = finish._replace(keep=keep)
        if self._store.finish([finish], now=now):
            if not completes or not self._is_completed(claim, declared.record(details)):
                return None
            transition = COMPLETED
        if transition.state in ENDED:
            self._store.notify(topics([finish]))
            self._tell("job.finished", claim, transition.state)
        if transition.state is JobState.COMPLETED and self._events is not None and self._events.wanted:
            publish_enqueued(self._store, self.clock, self._events, finish.then)
        return transition.state

    def _is_completed(self, claim: Claim, record: Record) -> bool:
        """Whether a user's transaction has completed the job."""
        found = self._store.get([claim.id], tenant=claim.tenant)
        if not found and record is Record.NONE:
            return True
        return any(job.token == claim.token and job.state is JobState.COMPLETED for job in found)

    def _tell(self, name: str, claim: Claim, state: JobState) -> None:
        if self._events is not None and self._events.wanted:
            data = (self.clock.now(), claim.id, claim.task, claim.tenant, state)
            self._events.publish(Event(name, *data))

    def _go_to_next(self, end: datetime) -> bool:
        due = min((at for at in (self._next_due, self._next_fire) if at is not None), default=None)
        if due is None or due > end or due <= self.clock.now():
            return False
        self.advance(due - self.clock.now())
        return True


def _need_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("an event loop is running; await adrain() instead of calling drain()")
