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
from tidemill.engine.exchange.held_job import HeldJob, RunnerServices
from tidemill.engine.runner.output_writer import OutputWriter
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.task import Declared


class Office:
    """An output writer with really claimed jobs."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.memory = MemoryStore(self.clock)
        self.line = Faulty(self.memory)
        self.lost: list[HeldJob] = []
        self.woken: list[str] = []
        self.output_writer = OutputWriter(self.line.store, self.clock, self._on_lost, self.woken.extend)
        self.worker = self.memory.register(Worker(new_id(), "a worker"), lease=timedelta(hours=1)).id

    def _on_lost(self, jobs: Iterable[HeldJob]) -> None:
        self.lost += jobs

    def held(self, count: int = 1) -> list[HeldJob]:
        enqueue(self.memory, count)
        return [self._held(each) for each in claim(self.memory, self.worker)]

    def _held(self, claim: Claim) -> HeldJob:
        return HeldJob(claim, cast(Declared, None), NO_DETAILS, cast(RunnerServices, self), "loop")

    def say(self, held: HeldJob, *lines: str) -> None:
        for line in lines:
            claim = held.claim
            self.output_writer.log(
                held, LogEntry(held.id, claim.token, self.clock.now(), line, worker=claim.worker)
            )

    def progress(self, held: HeldJob, fraction: float) -> None:
        self.output_writer.report(held, Progress(fraction))

    def finish(self, *jobs: HeldJob) -> None:
        """Flush and finish the jobs, in the order of the claim loop."""
        self.output_writer.settle([held.id for held in jobs])
        assert self.memory.finish([Finish(held.claim, COMPLETED) for held in jobs]) == frozenset()

    def lines(self, held: HeldJob) -> list[str]:
        return [entry.message for _, entry in self.memory.logs(held.id, tenant=ALL_TENANTS)]

    def fraction(self, held: HeldJob) -> float | None:
        (job,) = self.memory.get([held.id], tenant=ALL_TENANTS)
        return None if job.progress is None else job.progress.fraction
