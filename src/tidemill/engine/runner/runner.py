"""The runner: claims, runs and finishes jobs for one worker in this process.

It sends no heartbeats and performs no duties.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim
from tidemill.domain.limits import Rules
from tidemill.domain.node_results import NO_STARTS, JobStarts
from tidemill.domain.outcome import STOPPING, Misfit, Snoozed
from tidemill.domain.worker_reports import SlotCounts
from tidemill.engine.completion import Connections
from tidemill.engine.exchange.exchange import Exchange
from tidemill.engine.exchange.finisher import Settled, release, settle_as
from tidemill.engine.exchange.held_job import LOST, HeldJob
from tidemill.engine.exchange.job_starts import held_of, lots_of, mark_running, starts_of, supersede
from tidemill.engine.exchange.planner import Planner, RunnerStats, stats_of
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.exchange.start_deadlines import Permits
from tidemill.engine.executors.kinds import LOOP, PROCESS, THREAD, kinds_of, thread_slots
from tidemill.engine.executors.local import ENDLESS, Executor, LoopExecutor, ThreadExecutor, names
from tidemill.engine.executors.process_queue import ProcessQueue
from tidemill.engine.job_log import failure_entry, log_ends, log_starts
from tidemill.engine.lifespan import Lifetime, LoopLifetime
from tidemill.engine.listener import TICK, WakeupListener
from tidemill.engine.log_capture import begin_capture, end_capture
from tidemill.engine.log_records import stamp_records
from tidemill.engine.node import machine_name
from tidemill.engine.runner.breaker_reports import BreakerReports
from tidemill.engine.runner.counters import Counters
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.engine.runner.misfits import Misfits
from tidemill.engine.runner.output_writer import OutputWriter
from tidemill.engine.runner.publisher import Publisher
from tidemill.engine.runner.quarantine import Quarantine
from tidemill.engine.runner.retry_hooks import has_hooks
from tidemill.engine.runner.self_check import RunnerCondition, SelfCheck
from tidemill.engine.runner.step_writer import StepWriter
from tidemill.engine.runner.watchdog import Fence, Watchdog
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.engine.summons import Summons
from tidemill.engine.worker_settings import SELDOM, TRUSTED, WorkerSettings
from tidemill.stores.base import Store
from tidemill.stores.wakeup_messages import RECONNECTED
from tidemill.tasks.events import Events
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.engine")

ClaimerFactory = Callable[[Store, Clock, UUID, tuple[str, ...] | None, Planner], Claimer]
"""Creates the claimer of a runner."""

LAST_WORD = 2.0
"""Seconds a job has to stop when the whole worker stops, after the grace period."""


class Runner:
    """Runs one app's jobs for one worker."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        worker: UUID,
        settings: WorkerSettings,
        clock: Clock,
        *,
        listener: WakeupListener | None = None,
        events: Events | None = None,
        hooks: Hooks = NO_HOOKS,
        app_path: str | None = None,
        connections: Connections | None = None,
        on_stuck: Callable[[str], None] | None = None,
        fence: Fence | None = None,
        store_name: str | None = None,
        make_claimer: ClaimerFactory = Claimer,
        paused: bool = False,
    ) -> None:
        self.connections, self.store_name, self._hooks = connections, store_name, hooks
        self._noted: set[tuple[int, int]] = set()  # failures that are in the job's log and not written yet
        self.store, self.clock, self.worker, self.settings = store, clock, worker, settings
        self._registry, self._listener, self._node = registry, listener, machine_name()
        self._summons = Summons(worker, settings.queues, self._node, clock)
        self._on_stuck, self._fence = on_stuck, fence
        self._lock = threading.Lock()
        # Keyed by the integer of the id: looking up a UUID takes five times as long.
        self._held: dict[int, HeldJob] = {}
        self._empty = threading.Condition(self._lock)
        self._stopping = self._abandoned = self._closed = False
        self._draining, self._paused = False, paused
        self._captures: int | None = None
        self._closing = threading.Lock()
        self.counters = Counters()
        self._stuck: str | None = None
        self._misfits = Misfits(store, settings.newer_code_wait, self._put_out)
        self._check = SelfCheck()
        self._news = Publisher(store, clock, listener, events)
        self._output_writer = OutputWriter(store, clock, self._lose_held, self._news.wake)
        self.step_writer = StepWriter(store, self.counters)
        # Progress, log lines and streams of jobs go directly to the output writer.
        self.report, self.log = self._output_writer.report, self._output_writer.log
        self.write_stream = self._output_writer.write_stream
        self.flush, self.unwritten = self._output_writer.flush, self._output_writer.unwritten
        lease = ENDLESS if fence is None else fence
        self._threads = ThreadExecutor(thread_slots(settings), clock, hooks, self._ended_in_thread, lease)
        self._alone = ProcessQueue(
            app_path,
            settings,
            clock,
            self._begin_alone,
            self._ended_in_thread,
            self._news.publish,
            store_name=store_name,
        )
        self._kinds = kinds_of(registry, settings, processes=self._alone.is_open)
        planner = Planner(self._kinds, settings.buffer.total_seconds(), settings.batch)
        self._quarantine = Quarantine(planner, self._begin_here, self.wake)
        self._claimer = make_claimer(store, clock, worker, settings.queues, planner)
        self.permits = Permits(store, clock, lambda: self.rules, self.lose)
        self._breakers = BreakerReports(store, lambda: self.rules, lambda: self._news.wake({"change"}))
        self._exchange = Exchange(
            store,
            clock,
            worker,
            planner,
            self._claimer,
            self,
            threads=settings.pumps,
            batch=settings.batch,
            poll=self._poll,
            may_claim=lambda: fence is None or fence.holds,
        )
        self._outbox = self._exchange.outbox
        self._loop = LoopExecutor(
            settings.concurrency, clock, hooks, self._ended, self._turned, self._exchange.loop, lease
        )
        self._exchange.loop.attach(self._loop, listener)
        self.life: Lifetime = LoopLifetime(hooks, self._loop.started)
        self._lanes: dict[str, Executor] = {LOOP: self._loop, THREAD: self._threads, PROCESS: self._alone}
        self._watch = Watchdog(
            store, clock, self, self._loop, settings.patience.total_seconds(), self._note_stuck
        )

    # Lifecycle --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Enter the app's lifespan, then start claiming and running jobs."""
        stamp_records()
        self._captures = self._hooks.capture
        begin_capture(self._captures)
        self.life.enter()
        if self._listener is not None:
            self._listener.subscribe(self._heard)
        self._watch.start()
        self._exchange.start(claims=not self._paused)

    def wake(self) -> None:
        """Claim soon, because there may be new jobs."""
        self._exchange.ring()

    def drain(self) -> None:
        """Stop claiming; held jobs are still finished."""
        self._draining = True
        self._exchange.pause()

    def pause(self) -> None:
        """Claim nothing until ``resume``; held jobs are still run."""
        self._paused = True
        self._exchange.pause()

    def resume(self) -> None:
        """Claim again, unless the runner is draining."""
        self._paused = False
        if not self._draining:
            self._exchange.resume()

    @property
    def slots(self) -> SlotCounts:
        """The number of slots."""
        return SlotCounts(self.settings.concurrency, self.settings.threads, self.settings.children)

    def resize(self, slots: SlotCounts) -> None:
        """Change the number of slots. Jobs that run finish, also where there are fewer slots now."""
        self.settings = replace(self.settings, **slots._asdict())
        with self._exchange.changed:
            for name, number in (
                (LOOP, slots.concurrency),
                (THREAD, thread_slots(self.settings)),
                (PROCESS, slots.children),
            ):
                self._kinds[name].slots = number
        self._loop.resize(slots.concurrency)
        self._threads.resize(thread_slots(self.settings))
        self._alone.resize(slots.children, slots.threads)
        self._exchange.ring()

    def wait_empty(self, timeout: float | None = None) -> bool:
        """Wait until no job is held. Returns False on timeout."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._held, timeout)

    @property
    def config(self) -> RuntimeSettings:
        """Operator settings as last read from the store."""
        return self._claimer.config

    @property
    def rules(self) -> Rules:
        """Limit rules as last read from the store."""
        return self._claimer.rules

    def rest(self, seconds: float) -> None:
        """Wait this many seconds, or until this runner is closed."""
        self._exchange.rest(seconds)

    @property
    def quiet(self) -> bool:
        """Whether no job is held and the exchange is idle."""
        # Check the exchange first: it is not quiet until its claims are held.
        return self._exchange.quiet and not self._held

    def stop(self, grace: float) -> None:
        """Stop claiming, wait for running jobs, then ask them to stop, then release the rest."""
        self._stopping = True  # claims that are under way are released
        self.drain()
        self._hand_back()
        if grace and (running := [held for held in self.holding() if held.is_open]):
            _log.info(
                "waiting up to %g s for %s: %s", grace, _several(running, "running job"), names(running[:10])
            )
        if not self.wait_empty(grace):
            self._hand_back()
            left = [held for held in self.holding() if held.is_open]
            _log.info("asking %s to stop: %s", _several(left, "job"), names(left[:10]))
            at = self.clock.monotonic()
            for held in left:
                held.releasing = True
                held.stopped_at = held.stopped_at or at
                self.stop_job(held)
            if left and not self.wait_empty(min(self.settings.patience.total_seconds(), LAST_WORD)):
                self._release([held for held in self.holding() if held.is_open])
        self._exchange.flushed(5.0)
        self.close()

    def _hand_back(self) -> None:
        """Release jobs that have not started."""
        waiting = [held for lane in self._lanes.values() for held in lane.withdraw()]
        self._release([*waiting, *self._quarantine.withdraw()])

    def abandon(self) -> None:
        """Stop all jobs and write nothing, because the lease is lost and other workers may run the jobs now."""
        with self._lock:
            self._abandoned = True
        self._exchange.pause()
        self.lose(self.holding())
        self.close()

    def close(self) -> None:
        """End all threads of the runner; threads of jobs end with their jobs. A second call waits for the first."""
        with self._closing:
            closed, self._closed = self._closed, True
            if closed:
                return
            if self._listener is not None:
                self._listener.unsubscribe(self._heard)
            self._watch.close()
            self._misfits.close()
            self._exchange.close()
            self._breakers.close()
            self._output_writer.close()
            self.step_writer.close()
            self.life.exit()
            self._loop.close()
            self._threads.close()
            self._alone.close()
            end_capture(self._captures)

    def stats(self) -> RunnerStats:
        """Return the current figures."""
        return stats_of(self._kinds.values(), self.counters, self._stuck, store_ok=self._exchange.store_ok)

    def condition(self) -> RunnerCondition:
        """Return the state from which the supervisor judges the runner's health. Call it about once a second."""
        return self._check.look(self._loop, self._exchange, self.holding(), self.clock.monotonic())

    # Wake-ups and polling ---------------------------------------------------------------------------------------------

    def _heard(self, heard: frozenset[str]) -> None:
        if RECONNECTED in heard:
            self._exchange.reconnected()
        if "change" in heard:
            self._claimer.forget_pauses()
        called = self._summons.answers(heard)
        if "change" in heard or called:
            self._exchange.ring()
            self._watch.rouse()  # start the watch here, where no job waits for it, and not when a job starts

    def _poll(self) -> float:
        """Return the seconds until the next poll without a wake-up."""
        now = self.clock.monotonic()
        told = self._listener is not None and now - self._listener.heard_at(TICK) < TRUSTED
        seldom = self._claimer.read_at + (SELDOM if told else self.settings.poll.total_seconds())
        return min(seldom, self._claimer.retry_at) - now

    # Incoming jobs ----------------------------------------------------------------------------------------------------

    def take_over(
        self, claims: Sequence[Claim], dated: float | None = None, starts: JobStarts = NO_STARTS
    ) -> None:
        """Start these jobs, or release those that must not start.

        Starts under a rate were recorded at or after the reading ``dated``. ``starts`` has data of jobs that is read already.
        """
        if self.config.tasks:
            claims = [self.config.applied(claim, self._registry.name_of(claim.task)) for claim in claims]
        starts = starts_of(self.store, claims, self._exchange, starts)
        if starts.details:
            linked = [id.int for id, details in starts.details.items() if details.group_id is not None]
            self._exchange.linked.update(linked)
        alone = self._alone.is_open
        taken = held_of(claims, starts, self._registry, self, alone=alone)
        now = self.clock.now()
        back = [
            held
            for held in taken.values()
            if self._stopping or (held.claim.expires_at is not None and held.claim.expires_at <= now)
        ]
        lots, apart = lots_of(taken.values(), frozenset(back), alone=alone)
        if self._claimer.rates:
            self.permits.give(chain(apart, *lots.values()), dated)
        with self._lock:
            if self._abandoned or self._exchange.closed:
                return  # the jobs are recovered when our lease expires
            mine = [self._held[id] for id in self._held.keys() & taken.keys()]
            self._held.update(taken)
        if mine:  # another worker or a rewound database has already put them back into their queue
            with self._exchange.changed:
                supersede(mine, taken)
                gone = self._mark_lost(mine)
            self._drop(gone)
        if apart:
            self._quarantine.add(apart)
        elsewhere: Sequence[tuple[HeldJob, Snoozed]] = ()
        if lots[PROCESS]:
            lots[PROCESS], elsewhere = self._alone.admit(lots[PROCESS])
        self._news.started(chain(apart, *lots.values()))
        if self._hooks.log_jobs:
            log_starts(chain(apart, *lots.values()))
        self._submit(lots)
        self._watch.rouse()
        if back:
            self._release(back)
        if elsewhere:
            at = self.clock.monotonic()
            self._exchange.settle([settle_as(held, outcome, None, at) for held, outcome in elsewhere])

    def _submit(self, lots: Mapping[str, Sequence[HeldJob]]) -> None:
        with self._exchange.changed:
            for kind, lot in lots.items():
                self._kinds[kind].load += len(lot)
        for kind, lot in lots.items():
            if lot:
                self._lanes[kind].submit(lot)

    def _begin_here(self, held: HeldJob) -> None:
        """Start a suspect in this process, where nothing else runs."""
        self.lose(mark_running(self.store, [held], self._exchange))
        self._submit({held.kind: [held]})

    def _begin_alone(self, held: HeldJob) -> bool:
        """Record the start of a job in a ready child. Returns whether this worker still holds the job."""
        if held.claim.crashes:
            self.lose(mark_running(self.store, [held], self._exchange))
        held.began = self.clock.monotonic()
        return held.is_open and (self._fence is None or held.began < self._fence.until)

    def look(self) -> None:
        """Run the periodic checks of the fence and the child processes."""
        if self._fence is not None:
            self._fence.look()
        self._alone.look()

    @property
    def has_suspects(self) -> bool:
        """Whether suspects of a crash are waiting, or one has just ended."""
        return self._quarantine.is_shut

    def begin_suspects(self) -> None:
        """Start the next suspect, if nothing else runs here."""
        self._quarantine.look(self.holding())

    # Finished jobs ----------------------------------------------------------------------------------------------------

    def _ended(self, held: HeldJob, ended: ExecutionEnd | None) -> None:
        """Queue the outcome of a handler that ended on the loop. The exchange is notified once per turn of the loop."""
        # The type is checked here, because every job passes this point and nearly none is a misfit.
        if ended is not None and type(ended.outcome) is Misfit and self._misfits.takes(held, ended):
            return
        held.over = True
        self._outbox.append((held, ended))

    def _turned(self) -> None:
        self._exchange.knock()

    def _ended_in_thread(self, held: HeldJob, ended: ExecutionEnd | None) -> None:
        if ended is None or type(ended.outcome) is not Misfit or not self._misfits.takes(held, ended):
            self._put_out(held, ended)

    def _put_out(self, held: HeldJob, ended: ExecutionEnd | None) -> None:
        held.over = True
        self._exchange.outbox.append((held, ended))
        self._exchange.knock()

    def about_to_write(self, settled: Sequence[Settled]) -> None:
        """Write log lines and progress of these jobs first, because that requires holding the jobs."""
        if self._hooks.capture is not None:
            self._note_failures([item for item in settled if item.transition is not COMPLETED])
        self._output_writer.settle(item.claim.id for item in settled)

    def _note_failures(self, settled: Iterable[Settled]) -> None:
        """Add the failures of attempts to the logs of their jobs, once."""
        for item in settled:
            key = (item.claim.id.int, item.claim.token)
            if key not in self._noted and (
                entry := failure_entry(item, self._hooks.capture, self.clock.now())
            ):
                self._noted.add(key)
                self._output_writer.log(item.held, entry)

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None:
        """Handle outcomes that were written, except the ``lost`` ones, which the store refused."""
        jobs = self._held
        with self._lock:
            for item in settled:
                id = item.claim.id.int
                if jobs.get(id) is item.held:  # another thread may have claimed it again
                    del jobs[id]
            self.counters.note(settled)
            if self._exchange.linked:
                self._exchange.linked.difference_update(item.claim.id.int for item in settled)
            if self._noted:
                self._noted.difference_update((item.claim.id.int, item.claim.token) for item in settled)
            if lost:
                self.counters.collide("lost", len(lost))
            if not self._held:
                self._empty.notify_all()
        kept = settled
        if lost:
            kept = [item for item in settled if item.claim.id not in lost]
            _log.warning(
                "the results of %d jobs were not written: their leases were lost (%s)",
                len(lost),
                ", ".join(map(str, list(lost)[:5])),
            )
        log_ends(kept, everything=self._hooks.log_jobs)
        self._news.finished(kept)
        if self._claimer.counts:
            self._breakers.note(kept)

    def holding(self) -> list[HeldJob]:
        """Return all held jobs."""
        with self._lock:
            return list(self._held.values())

    # Stopping jobs ----------------------------------------------------------------------------------------------------

    def cancel(self, requests: Iterable[CancelRequest]) -> None:
        """Cancel these jobs."""
        for request in requests:
            held = self._held.get(request.id.int)
            if held is None or held.claim.token != request.token or held.cancel_reason is not None:
                continue
            held.cancel_reason = request.reason
            held.stopped_at = self.clock.monotonic()
            if not self._call_off(held):
                self.stop_job(held)

    def _call_off(self, held: HeldJob) -> bool:
        """Cancel a job that has not started. Returns False if it has."""
        if self._quarantine.withdraw(held):
            self._exchange.settle([settle_as(held, held.outcome(None), None, self.clock.monotonic())])
            return True
        if not self._lanes[held.kind].withdraw(held):
            return False
        self._exchange.outbox.append((held, None))
        self._exchange.knock()
        return True

    def stop_job(self, held: HeldJob) -> None:
        """Ask a job's handler to stop, by the means of its executor."""
        if held.kind == LOOP:
            self._loop.stop(held)
        elif held.kind == PROCESS:
            self._alone.stop(held)

    def give_up(self, held: HeldJob) -> None:
        """Record the outcome of a job that was asked to stop and did not, and abandon its thread."""
        if held.releasing and not held.timed_out:
            self._release([held])
        elif held.claim.timeout is not None and has_hooks(held.declared):
            # Hooks are user code. They run on their own thread, so that they cannot delay the watch.
            threading.Thread(target=self._time_out, args=(held,), name="tidemill-hooks", daemon=True).start()
        elif held.claim.timeout is not None:
            self._time_out(held)
        if held.kind == THREAD and self._threads.give_up(held):
            # The slot is free: a new thread replaces the abandoned one.
            self._exchange.outbox.append((held, None))
            self._exchange.knock()

    def lose(self, jobs: Iterable[HeldJob]) -> None:
        """Stop jobs that this worker no longer holds, and write nothing more about them."""
        with self._exchange.changed:
            gone = self._mark_lost(jobs)
        self._drop(gone)

    def _mark_lost(self, jobs: Iterable[HeldJob]) -> list[HeldJob]:
        """Mark the undecided ones of these jobs as lost, and return them. Requires the lock of the exchange."""
        found = [held for held in jobs if held.is_open]
        for held in found:
            held.phase = LOST
        return found

    def _drop(self, jobs: Sequence[HeldJob]) -> None:
        """Stop the handlers of lost jobs, and forget the jobs."""
        if not jobs:
            return
        _log.warning(
            "%d jobs were taken over by another worker and are stopped: %s", len(jobs), names(jobs[:10])
        )
        for held in jobs:
            self.stop_job(held)
        with self._lock:
            for held in jobs:
                if self._held.get(held.claim.id.int) is held:
                    del self._held[held.claim.id.int]
                    self._exchange.linked.discard(held.claim.id.int)
            if not self._held:
                self._empty.notify_all()
        self._output_writer.forget([held.claim.id for held in jobs])

    def _time_out(self, held: HeldJob) -> None:
        assert held.claim.timeout is not None
        outcome = held.timed_out_after(held.claim.timeout)
        self._exchange.settle([settle_as(held, outcome, None, self.clock.monotonic())])

    def _lose_held(self, jobs: Iterable[HeldJob]) -> None:
        """Stop jobs whose output the store refused, except those that the user's transaction may have completed."""
        self.lose(held for held in jobs if not held.completes)

    def _release(self, jobs: Sequence[HeldJob]) -> None:
        at = self.clock.monotonic()
        self._exchange.settle([release(held, STOPPING, at) for held in jobs])

    def _note_stuck(self, reason: str) -> None:
        if self._stuck is None:
            self._stuck = reason
            _log.error("%s; its thread cannot be stopped", reason)
            if self._on_stuck is not None:
                self._on_stuck(reason)


def _several(jobs: Sequence[HeldJob], what: str) -> str:
    return f"{len(jobs)} {what}{'' if len(jobs) == 1 else 's'}"
