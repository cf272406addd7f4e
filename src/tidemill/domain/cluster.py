"""Who works here: workers with their leases on life, and named leases for the duties only one may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

WORKER_BEAT = timedelta(seconds=5)
WORKER_EXPIRY = timedelta(seconds=30)
LEASE_BEAT = timedelta(seconds=2.5)
LEASE_EXPIRY = timedelta(seconds=8)
"""Counted from the last beat: the lease of a leader that dies ends 5.5 to 8 seconds later, and another leads within ten."""


class Coordination(StrEnum):
    """Who does the duties. Every duty is safe when two do it at once, so this only saves work."""

    LEASE = "lease"  #: the holder of one lease with a term
    EVERYONE = "everyone"  #: each worker for itself
    ADVISORY = "advisory"  #: whoever holds a lock of the database or of the machine
    STEAL = "steal"  #: all of them, in small batches that pass over what others hold


class WorkerState(StrEnum):
    """What a worker says of itself."""

    ACTIVE = "active"
    DRAINING = "draining"  #: asked to finish what it has and claim nothing more
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process. Its id is new at every start; ``node`` is the machine's stable name.

    ``beats`` counts heartbeats, so that an observer can tell a silent worker from a clock that jumped.
    """

    id: UUID
    name: str
    host: str = ""
    pid: int = 0
    node: str = ""
    version: str = ""
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    concurrency: int = 0
    state: WorkerState = WorkerState.ACTIVE
    started_at: datetime | None = None
    beat_at: datetime | None = None
    expires_at: datetime | None = None
    beats: int = 0


class CancelRequest(NamedTuple):
    """A held job somebody wants stopped."""

    id: UUID
    token: int
    worker: UUID
    reason: str


class Pulse(NamedTuple):
    """The answer to a heartbeat: who is still alive, who is to drain, and which held jobs are to stop."""

    alive: frozenset[UUID]
    draining: frozenset[UUID]
    cancels: list[CancelRequest]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do a duty. ``term`` rises by one each time it changes hands and fences what its holder writes."""

    name: str
    holder: UUID | None
    term: int
    acquired_at: datetime | None = None
    beat_at: datetime | None = None
    expires_at: datetime | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
