"""The participants: a producer, an operator, and a nemesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from uuid import UUID

from tests.simulation.connection import Connection
from tests.simulation.history import History, short
from tests.simulation.simulator import Simulator
from tests.simulation.worker import VirtualWorker

from tidemill.domain.decide import Action, expected, move
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob, UniqueHold
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.states import HELD
from tidemill.errors import JobExists, StoreError

TASKS = ("work", "toil")
LIMIT = "narrow"
TIMEOUT = timedelta(seconds=15)


class Producer:
    """Enqueues jobs of every kind, and repeats each call until it is confirmed."""

    def __init__(
        self,
        simulator: Simulator,
        history: History,
        connection: Connection,
        new_id: Callable[[], UUID],
        rng: Random,
        jobs: int,
    ) -> None:
        self._simulator, self._history, self._connection = simulator, history, connection
        self._new_id, self._rng, self._jobs = new_id, rng, jobs
        self.done = False

    def run(self) -> None:
        left = self._jobs
        while left > 0:
            batch = [self._new() for _ in range(self._rng.choice([1, 1, 1, 2, 4]))]
            left -= len(batch)
            self._enqueue(batch)
            self._simulator.sleep(self._rng.uniform(0.1, 3.0))
        self.done = True

    def _new(self) -> NewJob:
        rng = self._rng
        roll = rng.random()
        return NewJob(
            self._new_id(),
            rng.choice(TASKS),
            queue=rng.choice(["a", "b"]),
            priority=rng.choice([0, 0, 5]),
            max_attempts=rng.choice([1, 2, 4, 4, 6]),
            timeout=TIMEOUT,
            delay=timedelta(seconds=rng.uniform(0, 20)) if roll < 0.2 else None,
            unique=UniqueHold(f"key{rng.randrange(2)}") if 0.2 <= roll < 0.35 else None,
            limits=(LIMIT,) if 0.35 <= roll < 0.55 else (),
            expires_at=self._simulator.clock.now() + timedelta(seconds=10) if 0.55 <= roll < 0.6 else None,
        )

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        while True:
            try:
                answers = self._connection.store.enqueue(jobs)
            # The first call stored the jobs, and only the response was lost.
            except JobExists:
                stored = self._check_stored({job.id for job in jobs if job.unique is None})
                self._history.confirm(stored)
                return
            except StoreError:
                self._simulator.sleep(self._rng.uniform(0.05, 1.0))
                continue
            self._history.confirm(answer.id for answer in answers)
            return

    def _check_stored(self, ids: set[UUID]) -> set[UUID]:
        """Check that the store has all jobs of a batch, which is one write; return their ids."""
        while True:
            try:
                stored = {job.id for job in self._connection.store.get(ids, tenant=ALL_TENANTS)}
            except StoreError:
                self._simulator.sleep(0.1)
                continue
            # A store that went back in time since the first call has lost the whole batch.
            if stored != ids and (stored or not self._history.was_rewound(ids)):
                self._history.broken("I1", f"part of a batch is stored: {sorted(map(short, stored))}")
            return stored


class Operator:
    """Cancels, retries and pauses at random."""

    def __init__(self, simulator: Simulator, history: History, connection: Connection, rng: Random) -> None:
        self._simulator, self._history, self._connection, self._rng = simulator, history, connection, rng
        self.done = False

    def run(self) -> None:
        while not self.done:
            self._simulator.sleep(self._rng.uniform(1.0, 8.0))
            act = self._rng.choice([self._cancel, self._cancel, self._retry, self._pause])
            try:
                act()
            except StoreError:
                self._simulator.say("the operator's call failed")

    def _one(self) -> UUID | None:
        ids = list(self._history.accounts)
        return self._rng.choice(ids) if ids else None

    def _cancel(self) -> None:
        id, store = self._one(), self._connection.store
        for job in [] if id is None else store.get([id], tenant=ALL_TENANTS):
            if job.state in expected(Action.CANCEL):
                store.move([move(job, Action.CANCEL, "not wanted")])
            elif job.state in HELD:
                store.request_cancel([job.id], tenant=ALL_TENANTS, reason="not wanted")

    def _retry(self) -> None:
        id, store = self._one(), self._connection.store
        for job in [] if id is None else store.get([id], tenant=ALL_TENANTS):
            if job.state in expected(Action.RETRY):
                store.move([move(job, Action.RETRY)])

    def _pause(self) -> None:
        store, queue = self._connection.store, self._rng.choice(["a", "b"])
        store.pause([Pause(PauseKind.QUEUE, queue)])
        try:
            self._simulator.sleep(self._rng.uniform(0.5, 5.0))
        finally:
            self.resume(queue)

    def resume(self, queue: str) -> None:
        """Resume a queue, and repeat the call until it succeeds."""
        while True:
            try:
                self._connection.store.resume([(PauseKind.QUEUE, queue)])
                return
            except StoreError:
                self._simulator.sleep(0.5)


class Nemesis:
    """Disturbs a random worker from time to time."""

    def __init__(
        self,
        simulator: Simulator,
        history: History,
        workers: Callable[[], Sequence[VirtualWorker]],
        rng: Random,
        snapshot: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self._simulator, self._history, self._workers, self._rng = simulator, history, workers, rng
        self._snapshot = snapshot
        self.done = False

    def run(self) -> None:
        while not self.done:
            self._simulator.sleep(self._rng.uniform(0.5, 7.0))
            workers = [worker for worker in self._workers() if not worker.over]
            if workers and not self.done:
                worker = self._rng.choice(workers)
                act = self._rng.choice(self._acts())
                self._simulator.say(f"{act.__name__[1:]} {short(worker.id)}")
                act(worker)

    def _acts(self) -> list[Callable[[VirtualWorker], None]]:
        acts = [
            self._kill,
            self._pause,
            self._pause,
            self._cut,
            self._stop,
            self._halt_heartbeat,
            self._step_clock,
        ]
        return acts if self._snapshot is None else [*acts, self._rewind]

    def _kill(self, worker: VirtualWorker) -> None:
        worker.die()

    def _halt_heartbeat(self, worker: VirtualWorker) -> None:
        """Halt a supervisor, as SIGSTOP does: no heartbeat and no duties, while jobs are claimed and run."""
        self._history.disturb(worker.id)
        heartbeat, _, duties = worker.actors[:3]
        self._simulator.hold([heartbeat, duties], self._rng.uniform(5.0, 30.0))

    def _step_clock(self, _worker: VirtualWorker) -> None:
        """Step the store's clock for a while. Workers measure time on their own, so none of them is disturbed."""
        self._history.step_clock(timedelta(seconds=self._rng.choice([60, -60, 300, -300])))
        self._simulator.sleep(self._rng.uniform(1.0, 20.0))
        if not self.done:
            self._history.step_clock(timedelta(0))

    def _rewind(self, _worker: VirtualWorker) -> None:
        """Promote a lagging standby: the writes of the last moment are lost, and all connections break."""
        assert self._snapshot is not None
        rewind = self._snapshot()
        self._simulator.sleep(self._rng.uniform(0.2, 2.0))
        if self.done:
            return
        for worker in self._workers():
            self._history.disturb(worker.id)
            worker.connection.cut_until = self._simulator.seconds + self._rng.uniform(0.2, 2.0)
            worker.connection.is_broken = True
        rewind()

    def _pause(self, worker: VirtualWorker) -> None:
        """Pause a worker, as SIGSTOP or swapping does; often for longer than its lease."""
        self._history.disturb(worker.id)
        self._simulator.hold(worker.actors, self._rng.uniform(1.0, 30.0))

    def _cut(self, worker: VirtualWorker) -> None:
        self._history.disturb(worker.id)
        worker.connection.cut_until = self._simulator.seconds + self._rng.uniform(1.0, 20.0)

    def _stop(self, worker: VirtualWorker) -> None:
        worker.stopping = True
