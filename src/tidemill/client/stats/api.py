"""``app.stats``: the named questions and their asynchronous twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidemill.client.core import Client
from tidemill.client.stats.questions import Questions
from tidemill.client.stats.reports import (
    ActiveWorker,
    DeadLetter,
    Health,
    HeldJobReport,
    Leader,
    Overview,
    PolicyArchival,
    QueueDepth,
    Report,
    StatusCount,
    TaskDuration,
    TaskFailures,
    TaskLag,
    TaskRetries,
    TenantLoad,
    ThroughputStep,
    WorkerPerformance,
)
from tidemill.client.stats.snapshot import Metrics
from tidemill.domain.alerts import Alert
from tidemill.domain.stats import ErrorGroup

R = TypeVar("R")

NAMED = (
    "queue_depth",
    "active_workers",
    "orphans",
    "overdue",
    "stuck",
    "lag",
    "failures",
    "worker_performance",
    "retries",
    "by_status",
    "durations",
    "tenants",
    "throughput",
    "errors",
    "dead_letters",
    "leaders",
    "archival",
    "health",
)
"""The questions that the command line and the HTTP API offer by name."""


class StatsApi(Questions):
    """The questions and their asynchronous twins: ``await app.stats.alag(…)`` takes the arguments of ``lag``.

    >>> from tidemill import App
    >>> app = App("memory://")
    >>> list(app.stats.queue_depth())
    []
    >>> app.close()
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._metrics = Metrics(client)

    def metrics(self) -> str:
        """Return the store's metrics in Prometheus text format; at most five seconds old."""
        return self._metrics.text()

    async def ametrics(self) -> str:
        return await self._later(self.metrics)

    async def _later(self, ask: Callable[..., R], *args: Any, **how: Any) -> R:
        answer: R = await self._client.in_thread(lambda: ask(*args, **how))
        return answer

    async def aqueue_depth(self, *args: Any, **how: Any) -> Report[QueueDepth]:
        return await self._later(self.queue_depth, *args, **how)

    async def aactive_workers(self, *args: Any, **how: Any) -> Report[ActiveWorker]:
        return await self._later(self.active_workers, *args, **how)

    async def aorphans(self, *args: Any, **how: Any) -> Report[HeldJobReport]:
        return await self._later(self.orphans, *args, **how)

    async def aoverdue(self, *args: Any, **how: Any) -> Report[HeldJobReport]:
        return await self._later(self.overdue, *args, **how)

    async def astuck(self, *args: Any, **how: Any) -> Report[HeldJobReport]:
        return await self._later(self.stuck, *args, **how)

    async def alag(self, *args: Any, **how: Any) -> Report[TaskLag]:
        return await self._later(self.lag, *args, **how)

    async def afailures(self, *args: Any, **how: Any) -> Report[TaskFailures]:
        return await self._later(self.failures, *args, **how)

    async def aworker_performance(self, *args: Any, **how: Any) -> Report[WorkerPerformance]:
        return await self._later(self.worker_performance, *args, **how)

    async def aretries(self, *args: Any, **how: Any) -> Report[TaskRetries]:
        return await self._later(self.retries, *args, **how)

    async def aby_status(self, *args: Any, **how: Any) -> Report[StatusCount]:
        return await self._later(self.by_status, *args, **how)

    async def adurations(self, *args: Any, **how: Any) -> Report[TaskDuration]:
        return await self._later(self.durations, *args, **how)

    async def atenants(self, *args: Any, **how: Any) -> Report[TenantLoad]:
        return await self._later(self.tenants, *args, **how)

    async def athroughput(self, *args: Any, **how: Any) -> Report[ThroughputStep]:
        return await self._later(self.throughput, *args, **how)

    async def aerrors(self, *args: Any, **how: Any) -> Report[ErrorGroup]:
        return await self._later(self.errors, *args, **how)

    async def adead_letters(self, *args: Any, **how: Any) -> Report[DeadLetter]:
        return await self._later(self.dead_letters, *args, **how)

    async def aleaders(self, *args: Any, **how: Any) -> Report[Leader]:
        return await self._later(self.leaders, *args, **how)

    async def aarchival(self, *args: Any, **how: Any) -> Report[PolicyArchival]:
        return await self._later(self.archival, *args, **how)

    async def ahealth(self, *args: Any, **how: Any) -> Health:
        return await self._later(self.health, *args, **how)

    async def aoverview(self, *args: Any, **how: Any) -> Overview:
        return await self._later(self.overview, *args, **how)

    async def aalerts(self, *args: Any, **how: Any) -> list[Alert]:
        return await self._later(self.alerts, *args, **how)
