"""The part of the store contract for requests of operators to running workers.

45. **A request reaches a worker with its next heartbeat.** A pause belongs to a place of a supervisor, so the successor of a paused
    runner is paused as well. A request for a number of processes and slots belongs to the supervisor, replaces the previous one
    and has the next number. Requests end with the last worker of their supervisor, when ``sweep`` deletes that worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from types import MappingProxyType
from uuid import UUID

from tidemill.domain.worker_reports import Scale, WorkerReport

NO_REPORTS: Mapping[UUID, WorkerReport] = MappingProxyType({})


class RequestStore(ABC):
    """Requests to workers that run."""

    @abstractmethod
    def pause_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """Pause the places of these workers, except of those that stopped or take no requests. Returns those newly paused."""

    @abstractmethod
    def resume_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """End the pauses of these workers' places. Returns the workers that were paused."""

    @abstractmethod
    def scale(self, supervisor: UUID, scale: Scale) -> bool:
        """Request these numbers of a supervisor, instead of its previous request. False if all its workers have stopped."""
