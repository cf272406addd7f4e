"""Who uses the store and who makes trouble: a producer, an operator, and a nemesis that kills, stops and cuts off workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from uuid import UUID

from tests.simulation.history import History, short
from tests.simulation.line import Line
from tests.simulation.stage import Stage
from tests.simulation.worker import VirtualWorker

from tidemill.domain.decide import Action, expected, move
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob, UniqueHold
from tidemill.domain.ledger import Pause, PauseKind
from tidemill.domain.states import HELD
from tidemill.errors import JobExists, StoreError

TASKS = ("work", "toil")
LIMIT = "narrow"
TIMEOUT = timedelta(seconds=15)


class Producer:
    """Enqueues jobs of all sorts, and asks again until it is told that they are stored."""

    def __init__(
        self, stage: Stage, history: History, line: Line, new_id: Callable[[], UUID], dice: Random, jobs: int
    ) -> None:
        self._stage, self._history, self._line = stage, history, line
        self._new_id, self._dice, self._jobs = new_id, dice, jobs
        self.done = False

    def live(self) -> None:
        left = self._jobs
        while left > 0:
            batch = [self._new() for _ in range(self._dice.choice([1, 1, 1, 2, 4]))]
            left -= len(batch)
            self._enqueue(batch)
            self._stage.sleep(self._dice.uniform(0.1, 3.0))
        self.done = True

    def _new(self) -> NewJob:
        dice = self._dice
        roll = dice.random()
        return NewJob(
            self._new_id(),
            dice.choice(TASKS),
            queue=dice.choice(["a", "b"]),
            priority=dice.choice([0, 0, 5]),
            max_attempts=dice.choice([1, 2, 4, 4, 6]),
            timeout=TIMEOUT,
            delay=timedelta(seconds=dice.uniform(0, 20)) if roll < 0.2 else None,
            unique=UniqueHold(f"key{dice.randrange(2)}") if 0.2 <= roll < 0.35 else None,
            limits=(LIMIT,) if 0.35 <= roll < 0.55 else (),
            expires_at=self._stage.clock.now() + timedelta(seconds=10) if 0.55 <= roll < 0.6 else None,
        )

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        while True:
            try:
                answers = self._line.store.enqueue(jobs)
            except JobExists:  # the first time it was stored, and only the answer was lost
                stored = self._patiently({job.id for job in jobs if job.unique is None})
                self._history.told(stored)
                return
            except StoreError:
                self._stage.sleep(self._dice.uniform(0.05, 1.0))
                continue
            self._history.told(answer.id for answer in answers)
            return

    def _patiently(self, ids: set[UUID]) -> set[UUID]:
        """Which of these the store has: all of them, as a batch is one write."""
        while True:
            try:
                found = {job.id for job in self._line.store.get(ids, tenant=ALL_TENANTS)}
            except StoreError:
                self._stage.sleep(0.1)
                continue
            if found != ids:
                self._history.broken("I1", f"half of a batch is stored: {sorted(map(short, found))}")
            return ids


class Operator:
    """Cancels, retries and pauses, without looking twice."""

    def __init__(self, stage: Stage, history: History, line: Line, dice: Random) -> None:
        self._stage, self._history, self._line, self._dice = stage, history, line, dice
        self.done = False

    def live(self) -> None:
        while not self.done:
            self._stage.sleep(self._dice.uniform(1.0, 8.0))
            act = self._dice.choice([self._cancel, self._cancel, self._retry, self._pause])
            try:
                act()
            except StoreError:
                self._stage.say("the operator shrugs")

    def _one(self) -> UUID | None:
        ids = list(self._history.accounts)
        return self._dice.choice(ids) if ids else None

    def _cancel(self) -> None:
        id, store = self._one(), self._line.store
        for job in [] if id is None else store.get([id], tenant=ALL_TENANTS):
            if job.state in expected(Action.CANCEL):
                store.move([move(job, Action.CANCEL, "not wanted")])
            elif job.state in HELD:
                store.request_cancel([job.id], tenant=ALL_TENANTS, reason="not wanted")

    def _retry(self) -> None:
        id, store = self._one(), self._line.store
        for job in [] if id is None else store.get([id], tenant=ALL_TENANTS):
            if job.state in expected(Action.RETRY):
                store.move([move(job, Action.RETRY)])

    def _pause(self) -> None:
        store, queue = self._line.store, self._dice.choice(["a", "b"])
        store.pause([Pause(PauseKind.QUEUE, queue)])
        try:
            self._stage.sleep(self._dice.uniform(0.5, 5.0))
        finally:
            self.resume(queue)

    def resume(self, queue: str) -> None:
        """End a pause, asking until it is ended."""
        while True:
            try:
                self._line.store.resume([(PauseKind.QUEUE, queue)])
                return
            except StoreError:
                self._stage.sleep(0.5)


class Nemesis:
    """Picks a worker now and then, and does something to it."""

    def __init__(
        self, stage: Stage, history: History, workers: Callable[[], Sequence[VirtualWorker]], dice: Random
    ) -> None:
        self._stage, self._history, self._workers, self._dice = stage, history, workers, dice
        self.done = False

    def live(self) -> None:
        while not self.done:
            self._stage.sleep(self._dice.uniform(0.5, 7.0))
            workers = [worker for worker in self._workers() if not worker.over]
            if workers and not self.done:
                worker = self._dice.choice(workers)
                act = self._dice.choice([self._kill, self._pause, self._pause, self._cut, self._stop])
                self._stage.say(f"{act.__name__[1:]} {short(worker.id)}")
                act(worker)

    def _kill(self, worker: VirtualWorker) -> None:
        worker.die()

    def _pause(self, worker: VirtualWorker) -> None:
        """As SIGSTOP does, or a machine that swaps; often for longer than the lease lasts."""
        self._history.disturb(worker.id)
        self._stage.hold(worker.actors, self._dice.uniform(1.0, 30.0))

    def _cut(self, worker: VirtualWorker) -> None:
        self._history.disturb(worker.id)
        worker.line.cut_until = self._stage.seconds + self._dice.uniform(1.0, 20.0)

    def _stop(self, worker: VirtualWorker) -> None:
        worker.stopping = True
