"""One run: a store, three workers, and everybody who uses and disturbs them, all decided by one number.

Bad weather for a while; then it clears up, whoever was held up goes on, and within a bounded time every job that was accepted must
have ended. Whether the promises were kept is judged by the history, never by the store alone.
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

from tests.simulation.history import History, short
from tests.simulation.line import Line, Network, Weather
from tests.simulation.people import LIMIT, TASKS, TIMEOUT, Nemesis, Operator, Producer
from tests.simulation.stage import START, Stage
from tests.simulation.worker import VirtualWorker

from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.limits import Rule
from tidemill.domain.retry import Fixed
from tidemill.domain.states import ENDED, ExecutionState
from tidemill.domain.timetable import Schedule
from tidemill.domain.triggers.every import Every
from tidemill.engine.duties import fire
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import declare

STORM = 45.0
"""Seconds of bad weather."""

CALM = 600.0
"""Seconds after which everything must be over."""

WORKERS, JOBS, MOST = 3, 16, 2
EVERY = timedelta(seconds=7)
CATCH_UP = timedelta(seconds=20)  # what became due so long before the schedules end must have been fired

OpenStore = Callable[[Clock], Store]


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run."""

    seed: int
    violations: tuple[str, ...]
    trace: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The same for the same trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


def run(seed: int, open_store: OpenStore = MemoryStore) -> Ran:
    """Play one seed."""
    engine = logging.getLogger("tidemill.engine")
    level, dice = engine.level, random.getstate()
    engine.setLevel(logging.CRITICAL + 1)
    random.seed(seed)  # the engine spreads its waits by these dice
    world = World(seed, open_store)
    try:
        with patch.object(fire, "new_id", world.new_id):
            world.play()
        return Ran(seed, tuple(world.history.violations), tuple(world.stage.trace))
    finally:
        world.close()
        random.setstate(dice)
        engine.setLevel(level)


class World:
    """Everybody."""

    def __init__(self, seed: int, open_store: OpenStore) -> None:
        self.stage = Stage(seed)
        self.store = open_store(self.stage.clock)
        self.history = History(self.stage, {LIMIT: MOST})
        self._network = Network(self.stage)
        self._weather = Weather.storm()
        self._count = 0
        self._coordination = self.stage.dice.choice(
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
            self._hire()

    def new_id(self) -> UUID:
        """Ids rise, and are the same each time."""
        self._count += 1
        return UUID(int=0x0197A000_0000_7000_8000_000000000000 + self._count)

    def _dice(self) -> Random:
        return Random(self.stage.dice.getrandbits(64))

    def _line(self, disturbed: Callable[[], None] = lambda: None) -> Line:
        return Line(self.stage, self.store, self.history, self._network, lambda: self._weather, disturbed)

    def _schedule(self, key: str, overlap: str, misfire: str | dict[str, int]) -> UUID:
        id = self.new_id()
        trigger = Every(EVERY, START).to_data()
        row = Schedule(id, key, "work", trigger, overlap=overlap, misfire=misfire, next_fire_at=START + EVERY)
        assert not self.store.put_schedules([row])
        return id

    # Workers -------------------------------------------------------------------------------------------------------------

    def _hire(self) -> None:
        id = self.new_id()
        line = self._line(lambda: self.history.disturb(id))
        worker = VirtualWorker(
            self.stage,
            self.history,
            line,
            self._registry,
            id,
            self._dice(),
            self._coordination,
            self._replace,
        )
        self._workers.append(worker)

    def _replace(self, gone: VirtualWorker) -> None:
        if gone not in self._workers:
            return  # it ended in two ways at once
        self._workers.remove(gone)

        def later() -> None:
            self.stage.sleep(self.stage.dice.uniform(0.1, 3.0))
            self._hire()

        self.stage.enter("hire", later)

    # The piece -----------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Storm, calm, and the verdict."""
        stage, history = self.stage, self.history
        producer = Producer(stage, history, self._line(), self.new_id, self._dice(), JOBS)
        operator = Operator(stage, history, self._line(), self._dice())
        nemesis = Nemesis(stage, history, lambda: self._workers, self._dice())
        for name, person in (("producer", producer), ("operator", operator), ("nemesis", nemesis)):
            stage.enter(name, person.live)
        stage.enter("weather", lambda: self._clear_up(operator, nemesis))
        over = stage.play(until=lambda: self._is_over(producer), most=STORM + CALM)
        if not over:
            left = [short(id) for id, account in history.accounts.items() if account.state not in ENDED]
            history.broken("L1", f"after {CALM:g} calm seconds these have not ended: {', '.join(left)}")
        if not history.violations:
            self._judge()

    def _clear_up(self, operator: Operator, nemesis: Nemesis) -> None:
        stage = self.stage
        stage.sleep(STORM)
        self._weather = Weather()
        operator.done = nemesis.done = True
        for worker in self._workers:
            worker.line.cut_until = 0.0
        stage.say("the weather clears up")
        stage.sleep(CATCH_UP.total_seconds() + 5)
        self.store.enable_schedules(list(self._schedules.values()), tenant=ALL_TENANTS, enabled=False)
        self._disabled_at = stage.clock.now()
        stage.say("no more fires")

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
                history.broken("I1", f"{short(id)} is gone")
                continue
            if job.state is not account.state:
                history.broken("I2", f"{short(id)} is {job.state}, and ended as {account.state}")
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
        """Of the schedule that makes up for everything, each instant made a job; of the other, each job is of an instant."""
        assert self._disabled_at is not None
        at, each = START + EVERY, self._schedules["each"]
        while at <= self._disabled_at - CATCH_UP:
            if (each, at) not in self.history.fires:
                self.history.broken("I13", f"the fire of {at:%H:%M:%S} made no job")
            at += EVERY
        for _, fire_at in self.history.fires:
            if (fire_at - START) % EVERY:
                self.history.broken("I13", f"there is no fire at {fire_at:%H:%M:%S.%f}")

    def close(self) -> None:
        """Everybody leaves."""
        self.stage.close()
        self.store.close()


async def _nothing() -> None:
    """What the jobs do."""
