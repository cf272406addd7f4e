"""An output writer with really claimed jobs, on a store that can be made to fail."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import cast

from tests.engine.cluster_kit import claim, enqueue
from tests.engine.faulty import Faulty

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NO_DETAILS, Claim, Finish, LogEntry, Progress
from tidemill.engine.held import Desk, Held
from tidemill.engine.scribe import Scribe
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.task import Declared


class Office:
    """An output writer with really claimed jobs."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.memory = MemoryStore(self.clock)
        self.line = Faulty(self.memory)
        self.lost: list[Held] = []
        self.woken: list[str] = []
        self.scribe = Scribe(self.line.store, self.clock, self._on_lost, self.woken.extend)
        self.worker = self.memory.register(Worker(new_id(), "a worker"), lease=timedelta(hours=1)).id

    def _on_lost(self, jobs: Iterable[Held]) -> None:
        self.lost += jobs

    def held(self, count: int = 1) -> list[Held]:
        enqueue(self.memory, count)
        return [self._held(each) for each in claim(self.memory, self.worker)]

    def _held(self, claim: Claim) -> Held:
        return Held(claim, cast(Declared, None), NO_DETAILS, cast(Desk, self), "loop")

    def say(self, held: Held, *lines: str) -> None:
        for line in lines:
            claim = held.claim
            self.scribe.log(held, LogEntry(held.id, claim.token, self.clock.now(), line, worker=claim.worker))

    def progress(self, held: Held, fraction: float) -> None:
        self.scribe.report(held, Progress(fraction))

    def finish(self, *jobs: Held) -> None:
        """Flush and finish the jobs, in the order of the claim loop."""
        self.scribe.settle([held.id for held in jobs])
        assert self.memory.finish([Finish(held.claim, COMPLETED) for held in jobs]) == frozenset()

    def lines(self, held: Held) -> list[str]:
        return [entry.message for _, entry in self.memory.logs(held.id, tenant=ALL_TENANTS)]

    def fraction(self, held: Held) -> float | None:
        (job,) = self.memory.get([held.id], tenant=ALL_TENANTS)
        return None if job.progress is None else job.progress.fraction
