"""A worker without threads, built from the engine's own parts.

Instead of running handlers, it draws their outcomes and durations. It begins, stops, loses and releases jobs as a runner does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TypeVar
from uuid import UUID

from tests.simulation.connection import Connection
from tests.simulation.history import Effect, History, short
from tests.simulation.simulator import Actor, Simulator, Skewed

from tidemill.clock import Clock
from tidemill.domain.cluster import CancelRequest, Coordination, Worker
from tidemill.domain.decide import Policy
from tidemill.domain.job import Claim, Details, ErrorInfo, LogEntry, Progress
from tidemill.domain.node_results import NO_STARTS, JobStarts
from tidemill.domain.outcome import STOPPING, Failed, Outcome, Snoozed, Succeeded, Suspended
from tidemill.domain.streams import StreamEntry
from tidemill.engine.completion import Unwritten
from tidemill.engine.duties import usual_duties
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.engine.exchange.exchange import Exchange
from tidemill.engine.exchange.finisher import Settled, release
from tidemill.engine.exchange.held_job import HeldJob, Phase
from tidemill.engine.exchange.job_starts import held_of, mark_running, starts_of, supersede
from tidemill.engine.exchange.planner import ExecutorLoad, Planner
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.exchange.start_deadlines import Permits
from tidemill.engine.executors.kinds import LOOP
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.engine.lifespan import Lifetime, OwnLoopLifetime
from tidemill.engine.runner.counters import Counters
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.engine.runner.step_writer import StepWriter
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.errors import StoreError
from tidemill.tasks.hooks import NO_HOOKS
from tidemill.tasks.registry import Registry

T = TypeVar("T")

BEAT, EXPIRY = timedelta(seconds=2), timedelta(seconds=10)
POLL = 3.0
SLOTS, BATCH = 3, 4
BOOM = ErrorInfo("ValueError", "boom")


class TurnCondition(threading.Condition):
    """A condition whose waiters sleep in simulated time."""

    def __init__(self, like: threading.Condition, sleep: Callable[[float], None]) -> None:
        super().__init__(like._lock)  # type: ignore[attr-defined]
        self._sleep = sleep

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Poll the predicate."""
        while not (value := predicate()):
            self.release()
            try:
                self._sleep(0.01)
            finally:
                self.acquire()
        return value


class SimulatedState(SharedState):
    """The shared state of an exchange whose threads wait in simulated time and are actors."""

    def __init__(
        self,
        planner: Planner,
        sleep: Callable[[float], None],
        enter: Callable[[str, Callable[[], None]], Actor],
    ) -> None:
        super().__init__(planner)
        self.calm = TurnCondition(self.changed, sleep)
        self._sleep, self._enter = sleep, enter

    def rest(self, seconds: float) -> None:
        self._sleep(seconds)

    def run_apart(self, act: Callable[[], None], name: str) -> None:
        self._enter(name, act)


@dataclass(slots=True)
class Run:
    """A run of a handler, and its drawn end."""

    held: HeldJob
    effect: Effect
    ends: float
    outcome: Outcome | None


class VirtualWorker:
    """One worker process."""

    def __init__(
        self,
        simulator: Simulator,
        history: History,
        connection: Connection,
        registry: Registry,
        id: UUID,
        rng: Random,
        coordination: Coordination,
        on_gone: Callable[[VirtualWorker], None],
    ) -> None:
        self.simulator, self.history, self.connection, self.id = simulator, history, connection, id
        self.store = connection.store
        self.store_name: str | None = None
        self.life: Lifetime = OwnLoopLifetime(NO_HOOKS)
        self.clock: Clock = Skewed(
            simulator.clock, timedelta(seconds=rng.uniform(-5, 5)), rng.uniform(0, 1000)
        )
        self._registry, self._rng, self._on_gone = registry, rng, on_gone
        self._held: dict[int, HeldJob] = {}
        self._runs: list[Run] = []
        self.counters = Counters()
        self.step_writer = StepWriter(self.store, self.counters)
        self.over = self.stopping = False
        self._kind = ExecutorLoad(LOOP, SLOTS, tuple(registry.names()))
        planner = Planner({LOOP: self._kind}, buffer=0.5, batch=BATCH)
        self._claimer = Claimer(self.store, self.clock, id, None, planner)
        self.permits = Permits(self.store, self.clock, lambda: self._claimer.rules, self.lose)
        self.shared = SimulatedState(planner, simulator.sleep, self._enter)
        self.exchange = Exchange(
            self.store,
            self.clock,
            id,
            planner,
            self._claimer,
            self,
            threads=0,
            batch=BATCH,
            poll=self._poll,
            shared=self.shared,
        )
        self.heart = HeartbeatThread(
            self.store,
            self.clock,
            beat=BEAT,
            expiry=EXPIRY,
            on_cancel=self._cancel,
            on_drain=lambda _: self.exchange.pause(),
            on_lost=lambda _: self._abandon(),
            random=rng,
        )
        facts = {name: registry.get(name).data for name in registry.names()}
        duties = usual_duties(self.store, self.clock, self._policy_of, rng, task_data_of=facts.get)
        watched = [replace(duty, run=self._watched(duty)) for duty in duties]
        self.duties = Duties(self.store, self.clock, id, watched, coordination=coordination, random=rng)
        name = short(id)
        self.actors: list[Actor] = [
            simulator.enter(f"heart{name}", self._beat),
            simulator.enter(f"pump{name}", self._work),
            simulator.enter(f"duties{name}", self._serve),
        ]

    def _enter(self, name: str, body: Callable[[], None]) -> Actor:
        """Start another thread of this process."""
        actor = self.simulator.enter(f"{name}{short(self.id)}", body)
        self.actors.append(actor)
        return actor

    # The three loops -----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        try:
            self.heart.add(Worker(self.id, f"w{short(self.id)}"))
        except StoreError:
            self._abandon()  # a worker that cannot register exits, and is restarted with another id
        while not self.over:
            self.simulator.sleep(self.heart.step())

    def _serve(self) -> None:
        while not self.over:
            self.simulator.sleep(max(self.duties.step(), 0.001))
        if self.stopping:
            self.duties.close()

    def _watched(self, duty: Duty) -> Callable[[], Done]:
        """Wrap a duty so that any error other than a store error is a violation."""

        def run() -> Done:
            try:
                return duty.run()
            except StoreError:
                raise
            except Exception as error:
                self.history.broken("E1", f"duty {duty.name} failed: {error!r}")
                raise

        return run

    def _work(self) -> None:
        while not self.over and not self.heart.ages():
            self.simulator.sleep(0.1)  # wait until the worker is registered
        self.exchange.start()
        while not self.over:
            if self.stopping:
                self._hand_back()
                return
            self._end_runs()
            if not self.exchange.threads.turn():
                ends = min((run.ends for run in self._runs), default=float("inf"))
                self.simulator.sleep(max(min(self._idle(), ends - self.clock.monotonic()), 0.001))

    def _idle(self) -> float:
        """Return the seconds for which a thread of the exchange would wait."""
        with self.shared.changed:
            wait = self.exchange.threads.idle()
        return POLL if wait is None else wait

    def _poll(self) -> float:
        at = min(self._claimer.read_at + POLL, self._claimer.retry_at)
        return at - self.clock.monotonic()

    # Shutdown ------------------------------------------------------------------------------------------------------------

    def _hand_back(self) -> None:
        """Stop gracefully: release running jobs, then retire the worker."""
        self.exchange.pause()
        for held in list(self._held.values()):
            held.releasing = True
            self._stop(held)
        while not self.over and (self.shared.outbox or self._held):
            if not self.exchange.threads.turn():
                break
        self.over = True
        self.heart.remove(self.id)
        self._leave()

    def _abandon(self) -> None:
        """Stop after the lease is lost, and write nothing."""
        self.simulator.say(f"{short(self.id)} has lost its lease")
        self.over = True
        self.exchange.pause()
        self.lose(list(self._held.values()))
        self.exchange.close()
        self._leave()

    def die(self) -> None:
        """Kill the process."""
        self.over = True
        self.simulator.kill(self.actors)
        self._leave()

    def _leave(self) -> None:
        for run in self._runs:
            self.history.ended(run.effect)
        self._runs.clear()
        self._on_gone(self)

    # Jobs, as a runner holds them ----------------------------------------------------------------------------------------

    @property
    def config(self) -> RuntimeSettings:
        return self._claimer.config

    def take_over(
        self, claims: Sequence[Claim], dated: float | None = None, starts: JobStarts = NO_STARTS
    ) -> None:
        details = starts_of(self.store, claims, self.exchange, starts)
        taken = held_of(claims, details, self._registry, self, alone=False)
        if self.over or self.exchange.closed:
            return  # the claims are reclaimed when the lease expires
        late = [held for held in taken.values() if self._is_late(held.claim)]
        mine = [self._held[id] for id in self._held.keys() & taken.keys()]
        self._held.update(taken)
        supersede(mine, taken)
        self.lose(mine)
        jobs = [held for held in taken.values() if held not in late]
        self.lose(mark_running(self.store, [held for held in jobs if held.claim.crashes], self.exchange))
        if self._is_gone():
            return
        self._kind.load += len(jobs)
        for held in jobs:
            self._begin(held)
        if late:
            at = self.clock.monotonic()
            self.exchange.settle([release(held, STOPPING, at) for held in late])

    def _is_gone(self) -> bool:
        """Return whether the worker has ended in between."""
        return self.over

    def _is_late(self, claim: Claim) -> bool:
        return self.stopping or (claim.expires_at is not None and claim.expires_at <= self.clock.now())

    def _begin(self, held: HeldJob) -> None:
        if not held.is_open:
            self.exchange.outbox.append((held, None))
            return
        held.began = self.clock.monotonic()
        seconds = self._rng.choice([0.05, 0.5, 2.0, 6.0, 20.0, 60.0])
        ends: list[Outcome] = [
            Succeeded("1"),
            Failed(BOOM),
            Failed(BOOM, permanent=True),
            Snoozed(timedelta(seconds=3)),
            Suspended("sleeps", timedelta(seconds=4)),
        ]
        outcome: Outcome | None = self._rng.choices(ends, [14, 3, 1, 1, 1])[0]
        timeout = held.claim.timeout
        if timeout is not None and seconds >= timeout.total_seconds():
            seconds, outcome = timeout.total_seconds(), None
        effect = self.history.began(held.claim, self.id)
        self._runs.append(Run(held, effect, held.began + seconds, outcome))

    def _end_runs(self) -> None:
        now = self.clock.monotonic()
        for run in [run for run in self._runs if run.ends <= now]:
            self._runs.remove(run)
            self.history.ended(run.effect)
            held, outcome = run.held, run.outcome
            if outcome is None:
                held.timed_out = True
                self.exchange.outbox.append((held, None))
            else:
                result = outcome.result if isinstance(outcome, Succeeded) else None
                error = outcome.error if isinstance(outcome, Failed) else None
                assert held.began is not None
                self.exchange.outbox.append(
                    (held, ExecutionEnd(outcome, result, error, held.began, run.ends))
                )

    def _stop(self, held: HeldJob) -> bool:
        for run in self._runs:
            if run.held is held:
                self._runs.remove(run)
                self.history.ended(run.effect)
                self.exchange.outbox.append((held, None))
                return True
        return False

    def _cancel(self, request: CancelRequest) -> None:
        held = self._held.get(request.id.int)
        if held is None or held.claim.token != request.token or held.cancel_reason is not None:
            return
        held.cancel_reason = request.reason
        self._stop(held)

    def lose(self, jobs: Iterable[HeldJob]) -> None:
        """Drop jobs that this worker no longer holds."""
        for held in [held for held in jobs if held.is_open]:
            held.phase = Phase.LOST
            self._stop(held)
            if self._held.get(held.claim.id.int) is held:
                del self._held[held.claim.id.int]

    def about_to_write(self, settled: Sequence[Settled]) -> None:
        """Do nothing: these jobs write no output."""

    def written(self, settled: Sequence[Settled], lost: frozenset[UUID]) -> None:
        """Forget written ends; lost ones are not in the store."""
        for item in settled:
            if self._held.get(item.claim.id.int) is item.held:
                del self._held[item.claim.id.int]

    def holding(self) -> list[HeldJob]:
        """Return every held job."""
        return list(self._held.values())

    def _policy_of(self, claim: Claim, details: Details) -> Policy:
        return self._registry.get(claim.task).policy(details)

    # Services for a held job ---------------------------------------------------------------------------------------------

    def report(self, held: HeldJob, progress: Progress) -> None:
        """Ignore progress."""

    def log(self, held: HeldJob, entry: LogEntry) -> None:
        """Ignore log lines."""

    @property
    def connections(self) -> None:
        """Return None: no connection completes a job."""
        return None

    def flush(self, held: HeldJob) -> None:
        """Do nothing: there is no output."""

    def write_stream(self, held: HeldJob, entries: Sequence[StreamEntry]) -> None:
        """Drop items of streams."""

    def unwritten(self, held: HeldJob) -> Unwritten:
        """Return no output."""
        return Unwritten()
