"""The runner: claims, runs and finishes jobs for one worker, in this process. It beats for nobody and does no duties."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.job import Claim, LogEntry, Progress
from tidemill.domain.limits import Rules
from tidemill.domain.outcome import TimedOut
from tidemill.engine.alone import AloneLane
from tidemill.engine.beginnings import details_of, held_of, mark_running
from tidemill.engine.breakers import Breakers
from tidemill.engine.claimer import Claimer
from tidemill.engine.config import Config
from tidemill.engine.drive import LoopPump
from tidemill.engine.ear import TICK, Ear
from tidemill.engine.execute import Ended
from tidemill.engine.finisher import Settled, release, settle_as
from tidemill.engine.held import STOPPING, Held
from tidemill.engine.lanes import LOOP, PROCESS, THREAD, LoopLane, ThreadLane, kinds_of, names
from tidemill.engine.news import News
from tidemill.engine.node import concerns, machine_name
from tidemill.engine.plan import Planner, RunnerStats
from tidemill.engine.scribe import Scribe
from tidemill.engine.settings import WorkerSettings
from tidemill.engine.tally import Tally
from tidemill.engine.watch import Watch
from tidemill.stores.base import Store
from tidemill.tasks.events import Events
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.engine")

TRUSTED = 12.0
"""Seconds after a tick was heard in which whoever does the duties is trusted to tell of work that was missed."""

SELDOM = 30.0
"""Seconds after which a worker looks for itself all the same."""

LAST_WORD = 2.0
"""Seconds a job has to stop when the whole worker stops: it has had the grace before."""


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
        ear: Ear | None = None,
        events: Events | None = None,
        middleware: Sequence[Middleware] = (),
        app_path: str | None = None,
        on_stuck: Callable[[str], None] | None = None,
    ) -> None:
        self.store, self.clock, self.worker, self.settings = store, clock, worker, settings
        self._registry, self._ear, self._node = registry, ear, machine_name()
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._held: dict[int, Held] = {}  # by their ids' numbers: UUIDs take five times as long to look up
        self._empty = threading.Condition(self._lock)
        self._stopping = self._abandoned = self._closed = False
        self._closing = threading.Lock()
        self.tally = Tally()
        self._stuck: str | None = None
        self._news = News(store, clock, ear, events)
        self._scribe = Scribe(store, clock, self.lose, self._news.wake)
        self._threads = ThreadLane(settings.threads, clock, middleware, self._ended_in_thread)
        self._alone = AloneLane(app_path, settings, clock, self._begin_alone, self._ended_in_thread)
        self._kinds = kinds_of(registry, settings, processes=self._alone.is_open)
        planner = Planner(self._kinds, settings.buffer.total_seconds(), settings.batch)
        self._claimer = Claimer(store, clock, worker, settings.queues, planner)
        self._breakers = Breakers(store, lambda: self.rules, lambda: self._news.wake({"change"}))
        self._pump = LoopPump(
            store,
            clock,
            worker,
            planner,
            self._claimer,
            self,
            threads=settings.pumps,
            batch=settings.batch,
            poll=self._poll,
        )
        self._loop = LoopLane(settings.concurrency, clock, middleware, self._ended, self._turned, self._pump)
        self._pump.attach(self._loop, ear)
        self._watch = Watch(
            store, clock, self, self._loop, settings.patience.total_seconds(), self._note_stuck
        )

    # Life ----------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim and run."""
        if self._ear is not None:
            self._ear.subscribe(self._heard)
        self._watch.start()
        self._pump.start()

    def wake(self) -> None:
        """There may be something to claim."""
        self._pump.ring()

    def drain(self) -> None:
        """Claim nothing more; what is held is finished."""
        self._pump.pause()

    def wait_empty(self, timeout: float | None = None) -> bool:
        """Wait until nothing is held; False if that takes longer."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._held, timeout)

    @property
    def config(self) -> Config:
        """What operators have set, as of the last look."""
        return self._claimer.config

    @property
    def rules(self) -> Rules:
        """What is limited, as of the last look."""
        return self._claimer.rules

    def rest(self, seconds: float) -> None:
        """Wait so long, or until this runner ends."""
        self._pump.rest(seconds)

    @property
    def quiet(self) -> bool:
        """Nothing is held, and nothing is known to wait."""
        # In this order: what a pump brings is held before it is quiet.
        return self._pump.quiet and not self._held

    def stop(self, grace: float) -> None:
        """Claim nothing more, give what runs its time, then ask it to stop, then hand back what is left."""
        self._stopping = True  # what a claim that is under way still brings goes back
        self.drain()
        self._hand_back()
        if not self.wait_empty(grace):
            self._hand_back()
            left = [held for held in self.holding() if not held.settled]
            _log.info("%d jobs are asked to stop: %s", len(left), names(left[:10]))
            at = self.clock.monotonic()
            for held in left:
                held.releasing = True
                held.stopped_at = held.stopped_at or at
                self.stop_job(held)
            if left and not self.wait_empty(min(self.settings.patience.total_seconds(), LAST_WORD)):
                self._release([held for held in self.holding() if not held.settled])
        self._pump.flushed(5.0)
        self.close()

    def _hand_back(self) -> None:
        """Release what has not begun."""
        self._release([*self._loop.withdraw(), *self._threads.withdraw(), *self._alone.withdraw()])

    def abandon(self) -> None:
        """The lease is lost: whatever runs here is somebody else's now. Stop it, and write nothing."""
        with self._lock:
            self._abandoned = True
        self._pump.pause()
        self.lose(self.holding())
        self.close()

    def close(self) -> None:
        """End every thread of ours; threads of jobs end with their jobs. Who closes it a second time waits for the first."""
        with self._closing:
            closed, self._closed = self._closed, True
            if closed:
                return
            if self._ear is not None:
                self._ear.unsubscribe(self._heard)
            self._watch.close()
            self._pump.close()
            self._breakers.close()
            self._scribe.close()
            self._loop.close()
            self._threads.close()
            self._alone.close()

    def stats(self) -> RunnerStats:
        """A look at what is going on."""
        load = {name: kind.load for name, kind in self._kinds.items()}
        running = sum(min(load[name], kind.slots) for name, kind in self._kinds.items())
        free = sum(kind.free() for kind in self._kinds.values() if kind.tasks)
        buffered = sum(load.values()) - running
        done, errors, ok = self.tally.done, self.tally.errors, self._pump.store_ok
        return RunnerStats(done, running, buffered, free, self._stuck, ok, errors)

    # Hearing and polling -------------------------------------------------------------------------------------------------

    def _heard(self, heard: frozenset[str]) -> None:
        if "change" in heard:
            self._claimer.forget_pauses()
        if "change" in heard or any(concerns(topic, self.settings.queues, self._node) for topic in heard):
            self._pump.ring()
            self._watch.rouse()  # here, where nobody waits for it, and not when there is a job to begin

    def _poll(self) -> float:
        """Seconds until this worker looks for work without being told."""
        now = self.clock.monotonic()
        told = self._ear is not None and now - self._ear.heard_at(TICK) < TRUSTED
        seldom = self._claimer.read_at + (SELDOM if told else self.settings.poll.total_seconds())
        return min(seldom, self._claimer.retry_at) - now

    # Jobs come -----------------------------------------------------------------------------------------------------------

    def take_over(self, claims: Sequence[Claim]) -> None:
        """Begin these, or hand back what must not begin any more."""
        if self.config.tasks:
            claims = [self.config.applied(claim) for claim in claims]
        details = details_of(self.store, claims, self._pump)
        taken = held_of(claims, details, self._registry, self, alone=self._alone.is_open)
        lots: dict[str, list[Held]] = {LOOP: [], THREAD: [], PROCESS: []}
        back: list[Held] = []
        for held in taken.values():
            expires_at = held.claim.expires_at
            late = expires_at is not None and expires_at <= self.clock.now()
            (back if late or self._stopping else lots[held.kind]).append(held)
        jobs = [held for lot in lots.values() for held in lot]
        with self._lock:
            if self._abandoned or self._pump.closed:
                return  # our lease's end puts it right
            mine = [self._held[id] for id in self._held.keys() & taken.keys()]
            self._held.update(taken)
        self.lose(mine)  # somebody took them from us and put them back, before we knew
        if not self._alone.is_open:
            self.lose(mark_running(self.store, [held for held in jobs if held.claim.crashes], self._pump))
        self._news.started(jobs)
        with self._pump.changed:
            for kind, lot in lots.items():
                self._kinds[kind].load += len(lot)
        if lots[LOOP]:
            self._loop.submit(lots[LOOP])
        if lots[THREAD]:
            self._threads.submit(lots[THREAD])
        if lots[PROCESS]:
            self._alone.submit(lots[PROCESS])
        self._watch.rouse()
        if back:
            self._release(back)

    def _begin_alone(self, held: Held) -> bool:
        """A child is ready for it: whether it is still ours."""
        if held.claim.crashes:
            self.lose(mark_running(self.store, [held], self._pump))
        held.began = self.clock.monotonic()
        return not held.settled

    def look(self) -> None:
        """Time has passed."""
        self._alone.look()

    # Jobs go -------------------------------------------------------------------------------------------------------------

    def _ended(self, held: Held, ended: Ended | None) -> None:
        """On the loop: a handler has ended. The pump is told once for all that end in this turn."""
        held.over = True
        self._pump.outbox.append((held, ended))

    def _turned(self) -> None:
        self._pump.knock()

    def _ended_in_thread(self, held: Held, ended: Ended | None) -> None:
        held.over = True
        self._pump.outbox.append((held, ended))
        self._pump.knock()

    def about_to_write(self, settled: Sequence[Settled]) -> None:
        """What they said must be written while they are held."""
        self._scribe.settle(item.claim.id for item in settled)

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None:
        """These ends are in the store; those that are lost are not."""
        with self._lock:
            for item in settled:
                id = item.claim.id.int
                if self._held.get(id) is item.held:  # another pump may have claimed it anew
                    del self._held[id]
            self.tally.note(settled)
            if lost:
                self.tally.collide("lost", len(lost))
            if not self._held:
                self._empty.notify_all()
        kept = settled
        if lost:
            kept = [item for item in settled if item.claim.id not in lost]
            _log.warning(
                "the end of %d jobs was not written: their lease had passed on (%s)",
                len(lost),
                ", ".join(map(str, list(lost)[:5])),
            )
        self._news.finished(kept)
        if self._claimer.counts:
            self._breakers.note(kept)

    def known(self) -> frozenset[UUID]:
        """What is held, as far as this runner knows."""
        with self._lock:
            return frozenset(held.claim.id for held in self._held.values())

    def holding(self) -> list[Held]:
        """Every job in hand."""
        with self._lock:
            return list(self._held.values())

    # Stopping jobs -------------------------------------------------------------------------------------------------------

    def cancel(self, requests: Iterable[CancelRequest]) -> None:
        """Stop these jobs, as somebody asked."""
        for request in requests:
            held = self._held.get(request.id.int)
            if held is None or held.claim.token != request.token or held.cancel_reason is not None:
                continue
            held.cancel_reason = request.reason
            held.stopped_at = self.clock.monotonic()
            if not self._call_off(held):
                self.stop_job(held)

    def _call_off(self, held: Held) -> bool:
        """A job that has not begun need not begin."""
        lane = {LOOP: self._loop.withdraw, THREAD: self._threads.withdraw, PROCESS: self._alone.withdraw}
        if not lane[held.kind](held):
            return False
        self._pump.outbox.append((held, None))
        self._pump.knock()
        return True

    def stop_job(self, held: Held) -> None:
        """Ask a job's handler to stop, by whatever means its lane has."""
        if held.kind == LOOP:
            self._loop.stop(held)
        elif held.kind == PROCESS:
            self._alone.stop(held)

    def give_up(self, held: Held) -> None:
        """It was told to stop and did not: record what became of it, and let its thread be."""
        if held.releasing and not held.timed_out:
            self._release([held])
        elif held.claim.timeout is not None:
            self._pump.settle([settle_as(held, TimedOut(held.claim.timeout), None, self.clock.monotonic())])
        if held.kind == THREAD and self._threads.give_up(held):
            self._pump.outbox.append((held, None))  # the slot is free: another thread takes its place
            self._pump.knock()

    def lose(self, jobs: Iterable[Held]) -> None:
        """These are not ours any more: stop them, and write nothing more about them."""
        found = [held for held in jobs if not held.settled]
        if not found:
            return
        _log.warning("%d jobs are lost to another worker and stopped: %s", len(found), names(found[:10]))
        for held in found:
            held.lost = held.settled = True
            self.stop_job(held)
        with self._lock:
            for held in found:
                if self._held.get(held.claim.id.int) is held:
                    del self._held[held.claim.id.int]
            if not self._held:
                self._empty.notify_all()
        self._scribe.forget([held.claim.id for held in found])

    def _release(self, jobs: Sequence[Held]) -> None:
        at = self.clock.monotonic()
        self._pump.settle([release(held, STOPPING, at) for held in jobs])

    def _note_stuck(self, reason: str) -> None:
        if self._stuck is None:
            self._stuck = reason
            _log.error("%s; its thread cannot be stopped", reason)
            if self._on_stuck is not None:
                self._on_stuck(reason)

    # Words ---------------------------------------------------------------------------------------------------------------

    def report(self, held: Held, progress: Progress) -> None:
        """A job says how far it is."""
        self._scribe.report(held, progress)

    def log(self, held: Held, entry: LogEntry) -> None:
        """A job says something."""
        self._scribe.log(held, entry)
