"""Runs jobs in a test: the real store, the real rule book and the real execution, on a clock that stands still.

One job at a time and in this process, so a test sees everything it caused. Schedules fire when the clock has come to their
time. It is no worker: it takes no orphans, keeps no limits (jobs that have some run as if they had none) and stops nothing that
runs too long, though a task that moves the clock past its own timeout has timed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from tidemill.clock import Clock, ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import decide
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import NO_DETAILS, Claim, Details, Finish, Job
from tidemill.domain.lanes import ClaimRequest, Lane, Watermarks
from tidemill.domain.ledger import PauseKind
from tidemill.domain.outcome import Failed, Outcome, Released, TimedOut
from tidemill.domain.requests import Facts
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duties import Fire, FireHere, Wake
from tidemill.engine.duty import Done
from tidemill.engine.execute import Ended, arun, run
from tidemill.engine.node import machine_name, serves
from tidemill.errors import Signal, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Events
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared
from tidemill.testing.outlet import StoreOutlet

JITTER = 0.5
"""The middle of every spread: waits in tests are always the same."""

LEASE = timedelta(days=3650)
"""The runner's life; nobody beats for it while a test moves the clock by weeks."""

_BATCH = 1_000


class Named(Protocol):
    """A task, however it was declared."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Drained:
    """What was run: executions in all, and how many completed their job, failed, put it off, or had lost it."""

    processed: int = 0
    completed: int = 0
    failed: int = 0  #: raised or timed out, whether or not the job is tried again
    put_off: int = 0  #: the job is not over: retried, snoozed, waiting or under review
    lost: int = 0

    def __add__(self, other: Drained) -> Drained:
        return Drained(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class _Work(NamedTuple):
    declared: Declared
    claim: Claim
    job: Job
    outlet: StoreOutlet


class Testing:
    """Runs what is due, in the order a worker would.

    >>> from tidemill.stores.memory import MemoryStore
    >>> with Testing(MemoryStore(), Registry(), ManualClock()) as testing:
    ...     testing.drain().processed
    0
    """

    __test__ = False  # pytest: not a class of tests, whatever its name says

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        *,
        events: Events | None = None,
        middleware: Sequence[Middleware] = (),
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._store, self._registry, self._prepare = store, registry, prepare
        self._events, self._chain = events, middleware
        self.clock = clock
        self._marks = Watermarks()
        self._worker: UUID | None = None
        self._next_due: datetime | None = None
        self._node = machine_name()
        waiting = Wake(store, clock, pinned=True)
        self._firing: tuple[Callable[[], Done], ...] = (
            Fire(store, clock, self._facts_of, pinned=True, on_waiting=waiting.knows),
            FireHere(store, clock, self._node, self._facts_of, pinned=True, on_waiting=waiting.knows),
            waiting,
        )
        self._next_fire: datetime | None = None

    def drain(self, limit: int = 10_000, raise_errors: bool = False) -> Drained:
        """Run jobs until none is due at the present time, or ``limit`` executions are done.

        ``raise_errors`` raises what the first failing job raised, after its failure was written down.
        """
        _need_no_loop()
        done = Drained()
        self._clock_in()
        self.fire()
        while done.processed < limit and (work := self._take()) is not None:
            try:
                ended = run(*work, self.clock, self._chain)
            except BaseException:
                self._give_back(work)
                raise
            done += self._settle(work, ended, raise_errors=raise_errors)
        return done

    async def adrain(self, limit: int = 10_000, raise_errors: bool = False) -> Drained:
        """The same inside a running loop: coroutines run on it, functions in a thread."""
        done = Drained()
        self._clock_in()
        self.fire()
        while done.processed < limit and (work := self._take()) is not None:
            try:
                ended = await arun(*work, self.clock, self._chain)
            except BaseException:
                self._give_back(work)
                raise
            done += self._settle(work, ended, raise_errors=raise_errors)
        return done

    def run_until_idle(
        self, max_time: timedelta = timedelta(days=1), limit: int = 10_000, raise_errors: bool = False
    ) -> Drained:
        """Drain, and move the clock to the next job that is due, until none is due within ``max_time`` from now."""
        end = self.clock.now() + max_time
        done = self.drain(limit, raise_errors)
        while done.processed < limit and self._go_to_next(end):
            done += self.drain(limit - done.processed, raise_errors)
        return done

    async def arun_until_idle(
        self, max_time: timedelta = timedelta(days=1), limit: int = 10_000, raise_errors: bool = False
    ) -> Drained:
        """The same inside a running loop."""
        end = self.clock.now() + max_time
        done = await self.adrain(limit, raise_errors)
        while done.processed < limit and self._go_to_next(end):
            done += await self.adrain(limit - done.processed, raise_errors)
        return done

    def advance(self, by: timedelta) -> datetime:
        """Move the clock on; nothing runs by itself."""
        if not isinstance(self.clock, ManualClock):
            raise UsageError("this clock moves by itself; make the app with clock=ManualClock()")
        return self.clock.advance(by)

    def enqueued(self, task: str | Named | None = None) -> list[Job]:
        """Jobs that wait for a worker or for their time, the oldest first; of one task, or of all."""
        names = () if task is None else (task if isinstance(task, str) else task.name,)
        where = JobFilter(ALL_TENANTS, frozenset({JobState.PENDING, JobState.SCHEDULED}), frozenset(names))
        found: list[Job] = []
        after: str | None = None
        while True:
            page = self._store.jobs(where, sort=Sort.OLDEST, limit=_BATCH, after=after)
            found += page.items
            if page.next is None:
                return found
            after = page.next

    def close(self) -> None:
        """Leave the list of workers; closing twice is harmless."""
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
        """Be a living worker: beat, or register anew where the old one is gone."""
        now = self.clock.now()
        if (
            self._worker is not None
            and self._worker in self._store.beat([self._worker], lease=LEASE, now=now).alive
        ):
            return
        self._worker = new_id()
        self._store.register(Worker(self._worker, "testing", concurrency=1), lease=LEASE, now=now)

    def _facts_of(self, task: str) -> Facts | None:
        return self._registry.get(task).facts if task in self._registry else None

    def fire(self) -> int:
        """Fire what is due at the present time; how many fires there were. ``drain`` does so by itself."""
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

    def _take(self) -> _Work | None:
        while (claim := self._claim() or (self._claim() if self.fire() else None)) is not None:
            declared = self._registry.get(claim.task)
            if claim.expires_at is None or claim.expires_at > self.clock.now():
                (job,) = self._store.get([claim.id], tenant=claim.tenant)
                self._tell("job.started", claim, JobState.RUNNING)
                return _Work(declared, claim, job, StoreOutlet(self._store, claim, self.clock))
            # Its time is over: the rule book cancels what is handed back expired.
            self._write(claim, declared, Released("expired"))
        return None

    def _claim(self) -> Claim | None:
        now = self.clock.now()
        self._next_due = self._store.promote(_BATCH, now=now).next_run_at
        paused = {(pause.kind, pause.name) for pause in self._store.pauses()}
        if any(kind is PauseKind.ALL for kind, _ in paused):
            return None
        self._marks.seen(self._store.lanes())
        # What has limits is counted, so that whoever looks at them sees it, but no rule is kept.
        lanes = [
            lane
            for lane in sorted((*self._marks.lanes(), *self._gates()), key=lambda lane: -lane.priority)
            if (PauseKind.QUEUE, lane.queue) not in paused
            and (PauseKind.TENANT, lane.tenant) not in paused
            and serves(lane.queue, self._node)
        ]
        # Jobs of tasks that are not declared here stay where they are, as any worker would leave them.
        tasks = [name for name in self._registry.names() if (PauseKind.TASK, name) not in paused]
        assert self._worker is not None
        return next(iter(self._store.claim(ClaimRequest(self._worker, lanes, 1, tasks), now=now)), None)

    def _gates(self) -> list[Lane]:
        """All lanes with limits: those whose tasks are not declared here may stand before those whose are."""
        found: list[Lane] = []
        page = self._store.gates()
        while page:
            found += page
            page = self._store.gates(after=page[-1].key)
        return found

    def _settle(self, work: _Work, ended: Ended, *, raise_errors: bool) -> Drained:
        timeout = work.claim.timeout
        if timeout is not None and ended.ended - ended.began > timeout.total_seconds():
            ended = ended._replace(outcome=TimedOut(timeout), result=None, error=None)
        claim = work.claim._replace(cancel_reason=work.outlet.cancel_reason())
        written = self._write(claim, work.declared, ended.outcome, ended, work.job.details)
        failed = isinstance(ended.outcome, Failed | TimedOut)
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

    def _give_back(self, work: _Work) -> None:
        """The run was interrupted, not the job's fault: it may be claimed again, and no attempt is used."""
        self._write(work.claim, work.declared, Released("interrupted"))

    def _write(
        self,
        claim: Claim,
        declared: Declared,
        outcome: Outcome,
        ended: Ended | None = None,
        details: Details = NO_DETAILS,
    ) -> JobState | None:
        """Decide and finish; the state the job went to, or None if it was lost."""
        now = self.clock.now()
        transition = decide(claim, outcome, declared.policy(details), now, JITTER)
        if ended is None:
            finish = Finish(claim, transition)
        else:
            finish = ended.finish(claim, transition, self.clock.monotonic())
        if self._store.finish([finish], now=now):
            return None
        if transition.state in ENDED:
            self._store.notify(["ended"])
            self._tell("job.finished", claim, transition.state)
        return transition.state

    def _tell(self, name: str, claim: Claim, state: JobState) -> None:
        if self._events is not None and self._events.wanted:
            facts = (self.clock.now(), claim.id, claim.task, claim.tenant, state)
            self._events.publish(Event(name, *facts))

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
    raise UsageError("a loop is running here; await adrain() instead of calling drain()")
