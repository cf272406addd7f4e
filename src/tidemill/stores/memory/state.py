"""All that a memory store remembers, and the one way in which a job gets from one place to another.

``State`` keeps its indexes right and copies itself for a transaction. It must not check tokens or tenants, read a clock or
decide anything: the verbs do the first, their callers the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from tidemill.domain.access import Key
from tidemill.domain.cluster import Lease, Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NO_DETAILS, Claim, Execution, Job, LogEntry, UniqueHold
from tidemill.domain.lanes import LaneKey
from tidemill.domain.ledger import AuditRecord, Pause, PauseKind, Setting
from tidemill.domain.limits import Rule, gate_of
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.states import HELD, JobState
from tidemill.domain.timetable import Definition, DefinitionVersion, Fired, FireKey, Schedule

_EXPIRING = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds a unique key: while ``live``, and until ``window_ends_at`` in any case."""

    job_id: UUID
    live: bool
    window_ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of a limit's name. ``begun`` has (when, how many), the oldest first."""

    used: int = 0
    begun: tuple[tuple[datetime, int], ...] = ()
    full_until_at: datetime | None = None
    breaker: str | None = None
    changed_at: datetime | None = None


@dataclass(slots=True)
class State:
    """Every value is immutable, so a copy of the containers is a copy of everything."""

    jobs: dict[UUID, Job] = field(default_factory=dict)
    #: Pending jobs by number. Numbers only rise, so the order of insertion is the order of numbers; an OrderedDict, because
    #: a dict walks over what was deleted at its head.
    lanes: dict[LaneKey, OrderedDict[int, UUID]] = field(default_factory=dict)
    seqs: dict[UUID, int] = field(default_factory=dict)
    #: (run_at, id) of every job that ``promote`` will move, in order.
    alarms: list[tuple[datetime, UUID]] = field(default_factory=list)
    #: (expires_at, id) of every job that nobody holds and that may expire, in order.
    expiries: list[tuple[datetime, UUID]] = field(default_factory=list)
    held: set[UUID] = field(default_factory=set)
    #: Executions that are over, in the order of their numbers.
    executions: dict[UUID, list[Execution]] = field(default_factory=dict)
    logs: dict[UUID, list[tuple[int, LogEntry]]] = field(default_factory=dict)
    checkpoints: dict[UUID, dict[str, str]] = field(default_factory=dict)
    #: By (tenant, key); and what each job that has a key asked for, which a reopened job asks for again.
    holds: dict[tuple[str, str], Hold] = field(default_factory=dict)
    rules: dict[UUID, UniqueHold] = field(default_factory=dict)
    workers: dict[UUID, Worker] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    pauses: dict[tuple[PauseKind, str], Pause] = field(default_factory=dict)
    audit: list[AuditRecord] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=dict)
    archive: dict[UUID, ArchivedJob] = field(default_factory=dict)
    definitions: dict[UUID, Definition] = field(default_factory=dict)
    #: Every version of each definition, the oldest first.
    versions: dict[UUID, list[DefinitionVersion]] = field(default_factory=dict)
    schedules: dict[UUID, Schedule] = field(default_factory=dict)
    #: By schedule; a schedule's fires outlive it.
    fires: dict[UUID, dict[FireKey, Fired]] = field(default_factory=dict)
    limits: dict[str, Rule] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)
    last_seq: int = 0
    last_position: int = 0

    def copy(self) -> State:
        """The same memory in containers of its own."""
        return State(
            jobs=dict(self.jobs),
            lanes={key: OrderedDict(queue) for key, queue in self.lanes.items()},
            seqs=dict(self.seqs),
            alarms=list(self.alarms),
            expiries=list(self.expiries),
            held=set(self.held),
            executions={id: list(rows) for id, rows in self.executions.items()},
            logs={id: list(lines) for id, lines in self.logs.items()},
            checkpoints={id: dict(values) for id, values in self.checkpoints.items()},
            holds=dict(self.holds),
            rules=dict(self.rules),
            workers=dict(self.workers),
            leases=dict(self.leases),
            settings=dict(self.settings),
            pauses=dict(self.pauses),
            audit=list(self.audit),
            keys=dict(self.keys),
            archive=dict(self.archive),
            definitions=dict(self.definitions),
            versions={id: list(rows) for id, rows in self.versions.items()},
            schedules=dict(self.schedules),
            fires={id: dict(rows) for id, rows in self.fires.items()},
            limits=dict(self.limits),
            counted=dict(self.counted),
            last_seq=self.last_seq,
            last_position=self.last_position,
        )

    def find(self, id: UUID, tenant: str) -> Job | None:
        """The job of this id, if it is this tenant's."""
        job = self.jobs.get(id)
        return job if job is not None and tenant in (ALL_TENANTS, job.tenant) else None

    def find_held(self, id: UUID, token: int) -> Job | None:
        """The job of this id, if it is held under this token."""
        job = self.jobs.get(id)
        return job if job is not None and job.state in HELD and job.token == token else None

    def place(self, job: Job, *, wakes: bool = False) -> None:
        """Write a job down and put it where its state belongs; a waiting one that ``wakes`` gets an alarm at ``run_at``."""
        self._take_out(job.id)
        self.jobs[job.id] = job
        if job.state is JobState.PENDING:
            self.last_seq += 1
            self.seqs[job.id] = self.last_seq
            self.lanes.setdefault(lane_key(job), OrderedDict())[self.last_seq] = job.id
        elif job.state is JobState.SCHEDULED or (job.state is JobState.WAITING and wakes):
            insort(self.alarms, (job.run_at, job.id))
        elif job.state in HELD:
            self.held.add(job.id)
        if job.expires_at is not None and job.state in _EXPIRING:
            insort(self.expiries, (job.expires_at, job.id))

    def rewrite(self, job: Job) -> None:
        """Write new facts of a job that stays where it is."""
        self.jobs[job.id] = job

    def relabel(self, jobs: Sequence[Job]) -> None:
        """Write pending and scheduled jobs with other limits; a pending one keeps its number in the lane it gets to."""
        touched: set[LaneKey] = set()
        for job in jobs:
            if job.state is JobState.PENDING:
                key, seq = lane_key(job), self.seqs[job.id]
                before = lane_key(self.jobs[job.id])
                del self.lanes[before][seq]
                if not self.lanes[before]:
                    del self.lanes[before]
                self.lanes.setdefault(key, OrderedDict())[seq] = job.id
                touched.add(key)
            self.jobs[job.id] = job
        for key in touched & self.lanes.keys():
            self.lanes[key] = OrderedDict(sorted(self.lanes[key].items()))

    def remove(self, id: UUID) -> None:
        """Forget a job and all that was written about it; its unique key's window, if it has one, goes on."""
        self._take_out(id)
        for table in (self.jobs, self.executions, self.logs, self.checkpoints, self.rules):
            table.pop(id, None)

    def _take_out(self, id: UUID) -> None:
        job = self.jobs.get(id)
        if job is None:
            return
        if job.state is JobState.PENDING:
            key = lane_key(job)
            del self.lanes[key][self.seqs.pop(id)]
            if not self.lanes[key]:
                del self.lanes[key]
        elif job.state in (JobState.SCHEDULED, JobState.WAITING):
            _discard(self.alarms, (job.run_at, id))
        else:
            self.held.discard(id)
        if job.expires_at is not None and job.state in _EXPIRING:
            _discard(self.expiries, (job.expires_at, id))


def _discard(ordered: list[tuple[datetime, UUID]], item: tuple[datetime, UUID]) -> None:
    at = bisect_left(ordered, item)
    if at < len(ordered) and ordered[at] == item:
        del ordered[at]


def lane_key(job: Job) -> LaneKey:
    """The lane a job stands in when it is pending."""
    return LaneKey(job.queue, job.tenant, job.priority, gate_of(job.limits))


def claim_of(job: Job, seq: int | None = None) -> Claim:
    """A held job as its worker knows it; ``seq`` is the number it had, known only at the claim itself."""
    return Claim(
        id=job.id,
        task=job.task,
        queue=job.queue,
        tenant=job.tenant,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        crashes=job.crashes,
        token=job.token,
        run_at=job.run_at,
        created_at=job.created_at,
        expires_at=job.expires_at,
        timeout=job.timeout,
        args=job.args,
        unique_key=job.unique_key,
        limits=job.limits or None,
        detailed=job.details != NO_DETAILS,
        seq=seq,
        state=job.state,
        cancel_reason=job.cancel_reason,
        worker=job.worker,
    )
