"""Workers with their heartbeats, and named leases for duties with a single holder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.worker_reports import ScaleRequest, WorkerReport

WORKER_BEAT = timedelta(seconds=5)
WORKER_EXPIRY = timedelta(seconds=30)
LEASE_BEAT = timedelta(seconds=2.5)
LEASE_EXPIRY = timedelta(seconds=8)
"""Counted from the last heartbeat: a dead leader's lease ends 5.5 to 8 s later, and another worker leads within 10 s."""


DUTIES = "duties"
"""The lease of all duties; with a lease for each duty, the beginning of their names."""


class Coordination(StrEnum):
    """Which workers perform the duties. Every duty is safe when two workers run it at once, so this only saves work."""

    LEASE = "lease"  #: the holder of one lease with a term
    EVERYONE = "everyone"  #: each worker
    ADVISORY = "advisory"  #: the holder of a lock of the database or the machine
    STEAL = "steal"  #: all workers, in small batches that skip locked rows
    REDIS = "redis"  #: all workers, in small batches; a lock in Redis for each schedule while it fires


SPREAD = frozenset({Coordination.STEAL, Coordination.REDIS})
"""The modes in which workers share the duties by small batches."""

LED = frozenset({Coordination.LEASE, Coordination.ADVISORY})
"""The modes with one leader at a time."""


class WorkerState(StrEnum):
    """The state that a worker reports."""

    ACTIVE = "active"
    DRAINING = "draining"  #: finishes its jobs and claims no new ones
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process. Its id is new at every start; ``node`` is the machine's stable name.

    ``beats`` counts heartbeats, so that an observer can distinguish a silent worker from a clock that jumped.
    ``supervisor`` is the id of the process that takes requests for it, new at every start: its supervisor, or itself if it has
    none. Workers of versions that take no requests have none. ``place`` is its place among the runners of the supervisor, which
    its successor takes over.
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
    supervisor: UUID | None = None
    place: int = 0
    report: WorkerReport | None = None  #: with its latest heartbeat
    paused: bool = False  #: an operator asked it to claim nothing for now

    @property
    def left(self) -> bool:
        """Whether it left in good order: its lease ended no later than its last heartbeat."""
        if self.state is not WorkerState.STOPPED or self.beat_at is None or self.expires_at is None:
            return False
        return self.expires_at <= self.beat_at


def is_active(worker: Worker) -> bool:
    """Whether a worker, if it is alive, claims jobs."""
    return worker.state is WorkerState.ACTIVE and not worker.paused


class CancelRequest(NamedTuple):
    """A held job that should be cancelled."""

    id: UUID
    token: int
    worker: UUID
    reason: str


class Heartbeat(NamedTuple):
    """The observable state of a worker that was not declared gone.

    ``left`` is the remaining time of its lease by the store's clock; it is negative after the lease has expired.
    """

    worker: UUID
    beats: int
    lease: timedelta
    left: timedelta


class Pulse(NamedTuple):
    """The answer to a heartbeat: workers that are still registered, workers to drain, and held jobs to cancel.

    Also the paused workers, and by worker the latest request to its supervisor.
    """

    alive: frozenset[UUID]
    draining: frozenset[UUID]
    cancels: list[CancelRequest]
    paused: frozenset[UUID] = frozenset()
    scales: Mapping[UUID, ScaleRequest] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to perform a duty. ``term`` rises by one with each new holder and fences the holder's writes."""

    name: str
    holder: UUID | None
    term: int
    acquired_at: datetime | None = None
    beat_at: datetime | None = None
    expires_at: datetime | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    kind: str = "lease"  #: "redis" for a lock in Redis, which has no term

    def held(self, now: datetime) -> bool:
        """Whether a process holds it at this time."""
        return self.holder is not None and self.expires_at is not None and self.expires_at > now

    @property
    def unused_by(self) -> str | None:
        """The coordination mode of the workers that do their duties without this lease; None where it is in use."""
        mode = self.metadata.get("coordination")
        return mode if isinstance(mode, str) else None

    @property
    def is_of_app(self) -> bool:
        """Whether a program holds it with ``app.lease``, and not a worker for its duties."""
        return self.name.startswith(_APP)

    def health(self, now: datetime) -> str:
        """How its holder does: ``ok``, ``late`` if it should have renewed it, ``expired``; ``free`` or ``unused`` without one."""
        if self.unused_by is not None:
            return "unused"
        if self.holder is None or self.beat_at is None or self.expires_at is None:
            return "free"
        if not self.held(now):
            return "expired"
        # Holders renew at least every third of the length.
        return "late" if now - self.beat_at > (self.expires_at - self.beat_at) / 2 else "ok"


_APP = "app:"


def app_lease_name(name: str) -> str:
    """The name under which a lease of a program is stored, apart from those of the workers.

    >>> app_lease_name("nightly-index")
    'app:nightly-index'
    """
    return _APP + name


def duty_lease_name(duty: str) -> str:
    """The name of the lease of one duty, in a fleet with a lease for each.

    >>> duty_lease_name("promote")
    'duties:promote'
    """
    return f"{DUTIES}:{duty}"


def duty_of_lease(lease: str) -> str | None:
    """The duty of this lease; None if it is not the lease of one duty.

    >>> duty_of_lease("duties:promote"), duty_of_lease("duties")
    ('promote', None)
    """
    head, mark, duty = lease.partition(":")
    return duty if head == DUTIES and mark else None


def leases_to_ask_for(leases: Iterable[Lease], holder: UUID, now: datetime) -> list[str]:
    """The leases of duties that a process may ask another to pass on, so that both hold about as many.

    They are half of the difference to the process with the most leases, the last by name.
    """
    held: dict[UUID, list[str]] = {holder: []}
    for lease in leases:
        if lease.holder is not None and lease.held(now) and duty_of_lease(lease.name) is not None:
            held.setdefault(lease.holder, []).append(lease.name)
    most = max(held.values(), key=len)
    return sorted(most)[len(most) - (len(most) - len(held[holder])) // 2 :]


class LeaseHolder(NamedTuple):
    """The process that holds a lease, and the workers that run in it or under it."""

    name: str | None  #: host and process id; None if the process runs a version that does not record it
    workers: tuple[UUID, ...] = ()


def holder_data(name: str, workers: Iterable[UUID]) -> dict[str, object]:
    """The data that a holder records about itself in its lease."""
    return {"name": name, "workers": sorted(str(id) for id in workers)}


def holder_of(lease: Lease, workers: Iterable[Worker]) -> LeaseHolder | None:
    """The holder of a lease, also after it expired; None if it was released."""
    if lease.holder is None:
        return None
    data = lease.metadata.get("holder")
    if not isinstance(data, Mapping):
        known = next((worker for worker in workers if worker.id == lease.holder), None)
        return LeaseHolder(None) if known is None else LeaseHolder(known.name, (known.id,))
    name, ids = data.get("name"), data.get("workers")
    found = []
    for id in ids if isinstance(ids, list | tuple) else ():
        try:
            found.append(UUID(str(id)))
        except ValueError:
            continue
    return LeaseHolder(name if isinstance(name, str) else None, tuple(found))
