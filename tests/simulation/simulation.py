"""One simulation: a store, three workers and all participants, from one seed.

Faults occur for a while; then they stop, paused workers continue, and every accepted job must end within a bounded time. The
history judges the invariants, never the store alone.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from unittest.mock import patch
from uuid import UUID

from tests.simulation.connection import Connection, FaultRates, Network
from tests.simulation.history import History, short
from tests.simulation.participants import LIMIT, TASKS, TIMEOUT, Nemesis, Operator, Producer
from tests.simulation.simulator import START, Simulator, StoreClock
from tests.simulation.worker import VirtualWorker

from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.limits import Rule
from tidemill.domain.retry import Fixed
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.states import ENDED, ExecutionState
from tidemill.domain.triggers.every import Every
from tidemill.engine.duties import fire
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import declare

FAULTY_SECONDS = 45.0
"""Seconds with faults."""

SETTLE_SECONDS = 600.0
"""Seconds after the faults within which every job must end."""

WORKERS, JOBS, MOST = 3, 16, 2
EVERY = timedelta(seconds=7)
# Fires that became due this long before the end of the schedules must have happened.
CATCH_UP = timedelta(seconds=20)

OpenStore = Callable[[Clock], Store]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    seed: int
    violations: tuple[str, ...]
    trace: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return a hash of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


def run(seed: int, open_store: OpenStore = MemoryStore) -> RunResult:
    """Run one seed."""
    engine = logging.getLogger("tidemill.engine")
    level, rng = engine.level, random.getstate()
    engine.setLevel(logging.CRITICAL + 1)
    random.seed(seed)  # the engine draws its jitter from the global generator
    simulation = Simulation(seed, open_store)
    try:
        with patch.object(fire, "new_id", simulation.new_id):
            simulation.play()
        return RunResult(seed, tuple(simulation.history.violations), tuple(simulation.simulator.trace))
    finally:
        simulation.close()
        random.setstate(rng)
        engine.setLevel(level)


class Simulation:
    """The store, the workers and all participants."""

    def __init__(self, seed: int, open_store: OpenStore) -> None:
        self.simulator = Simulator(seed)
        self.clock = StoreClock(self.simulator.clock)
        self.store = open_store(self.clock)
        self.history = History(self.simulator, {LIMIT: MOST}, self.clock)
        self._network = Network(self.simulator)
        self._rates = FaultRates.faulty()
        self._count = 0
        self._coordination = self.simulator.rng.choice(
            [Coordination.LEASE, Coordination.LEASE, Coordination.EVERYONE]
        )
        self._registry = Registry()
        for name in TASKS:
            retry = Fixed(wait=timedelta(seconds=2))
            self._registry.add(declare(_nothing, TaskOptions(name=name, retry=retry, timeout=TIMEOUT)))
        self.store.put_rules([Rule(LIMIT, max=MOST)])
        self._schedules = {
            key: self._schedule(key, overlap, misfire)
            for key, overlap, misfire in (("each", "allow", {"all": 100}), ("some", "skip", "once"))
        }
        self._disabled_at: datetime | None = None
        self._workers: list[VirtualWorker] = []
        for _ in range(WORKERS):
            self._start_worker()

    def new_id(self) -> UUID:
        """Return the next id of an increasing, deterministic sequence."""
        self._count += 1
        return UUID(int=0x0197A000_0000_7000_8000_000000000000 + self._count)

    def _rng(self) -> Random:
        return Random(self.simulator.rng.getrandbits(64))

    def _connection(self, disturbed: Callable[[], None] = lambda: None) -> Connection:
        return Connection(
            self.simulator, self.store, self.history, self._network, lambda: self._rates, disturbed
        )

    def _schedule(self, key: str, overlap: str, misfire: str | dict[str, int]) -> UUID:
        id = self.new_id()
        trigger = Every(EVERY, START).to_data()
        row = ScheduleRow(
            id, key, "work", trigger, overlap=overlap, misfire=misfire, next_fire_at=START + EVERY
        )
        assert not self.store.put_schedules([row])
        return id

    # Workers -------------------------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        id = self.new_id()
        connection = self._connection(lambda: self.history.disturb(id))
        worker = VirtualWorker(
            self.simulator,
            self.history,
            connection,
            self._registry,
            id,
            self._rng(),
            self._coordination,
            self._replace,
        )
        self._workers.append(worker)

    def _replace(self, gone: VirtualWorker) -> None:
        if gone not in self._workers:
            return  # it ended in two ways at once
        self._workers.remove(gone)

        def later() -> None:
            self.simulator.sleep(self.simulator.rng.uniform(0.1, 3.0))
            self._start_worker()

        self.simulator.enter("hire", later)

    # The run -------------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Run with faults, let everything settle, and check the invariants."""
        simulator, history = self.simulator, self.history
        producer = Producer(simulator, history, self._connection(), self.new_id, self._rng(), JOBS)
        operator = Operator(simulator, history, self._connection(), self._rng())
        snapshot = self._snapshot if isinstance(self.store, MemoryStore) else None
        nemesis = Nemesis(simulator, history, lambda: self._workers, self._rng(), snapshot)
        for name, participant in (("producer", producer), ("operator", operator), ("nemesis", nemesis)):
            simulator.enter(name, participant.run)
        simulator.enter("weather", lambda: self._stop_faults(operator, nemesis))
        over = simulator.play(until=lambda: self._is_over(producer), most=FAULTY_SECONDS + SETTLE_SECONDS)
        if not over:
            left = [short(id) for id, account in history.accounts.items() if account.state not in ENDED]
            history.broken(
                "L1", f"these jobs have not ended {SETTLE_SECONDS:g} s after the faults: {', '.join(left)}"
            )
        if not history.violations:
            self._judge()

    def _snapshot(self) -> Callable[[], None]:
        """Save the store's state; the returned function rewinds it."""
        store, rewind = self.store, self.history.snapshot()
        assert isinstance(store, MemoryStore)
        state = store._state.copy()

        def back() -> None:
            store._state = state.copy()
            rewind()

        return back

    def _stop_faults(self, operator: Operator, nemesis: Nemesis) -> None:
        simulator = self.simulator
        simulator.sleep(FAULTY_SECONDS)
        self._rates = FaultRates()
        operator.done = nemesis.done = True
        # Jobs scheduled while the clock was ahead become due.
        self.history.step_clock(self.clock.highest)
        for worker in self._workers:
            worker.connection.cut_until = 0.0
        simulator.say("the faults stop")
        # A rewound store may be paused again.
        for queue in ("a", "b"):
            operator.resume(queue)
        simulator.sleep(CATCH_UP.total_seconds() + 5)
        self.store.enable_schedules(list(self._schedules.values()), tenant=ALL_TENANTS, enabled=False)
        self._disabled_at = self.clock.now()
        simulator.say("the schedules are disabled")

    def _is_over(self, producer: Producer) -> bool:
        if self.history.violations:
            return True
        return self._disabled_at is not None and producer.done and self.history.ended_all

    def _judge(self) -> None:
        history = self.history
        jobs = {job.id: job for job in self.store.get(list(history.accounts), tenant=ALL_TENANTS)}
        executions = self.store.executions(list(history.accounts), tenant=ALL_TENANTS)
        for id, account in history.accounts.items():
            job = jobs.get(id)
            if job is None:
                history.broken("I1", f"{short(id)} is lost")
                continue
            if job.state is not account.state:
                history.broken("I2", f"{short(id)} is {job.state}, but ended as {account.state}")
            if (job.token, job.attempt) != (account.token, account.spent):
                history.broken("I8", f"{short(id)} has token {job.token} and attempt {job.attempt}")
            mine = [execution for execution in executions if execution.job_id == id]
            if [execution.number for execution in mine] != [*range(1, job.token + 1)]:
                history.broken("I4", f"executions of {short(id)} are missing or doubled")
            if any(execution.state is ExecutionState.RUNNING for execution in mine):
                history.broken("I5", f"an execution of {short(id)} has no end")
        self._judge_fires()
        history.check_effects()

    def _judge_fires(self) -> None:
        """Check that the schedule with misfire 'all' created a job for every instant, and that every fire is on the grid."""
        assert self._disabled_at is not None
        at, schedule = START + EVERY, self._schedules["each"]
        while at <= self._disabled_at - CATCH_UP:
            if (schedule, at) not in self.history.fires:
                self.history.broken("I13", f"the fire of {at:%H:%M:%S} created no job")
            at += EVERY
        for _, fire_at in self.history.fires:
            if (fire_at - START) % EVERY:
                self.history.broken("I13", f"there is no fire at {fire_at:%H:%M:%S.%f}")

    def close(self) -> None:
        """End all actors and close the store."""
        self.simulator.close()
        self.store.close()


async def _nothing() -> None:
    """The handler of every task."""
