"""The data of a memory store, and the moves of jobs between its containers.

``State`` maintains its indexes and copies itself for a transaction. It does not check tokens or tenants, which the verbs do, and
makes no decisions, which callers do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.access import Key
from tidemill.domain.alert_history import StoredAlert
from tidemill.domain.archive_files import Manifest
from tidemill.domain.archived_flows import ArchivedFlow
from tidemill.domain.cluster import Lease, Worker
from tidemill.domain.depths import DepthStep
from tidemill.domain.failures import ErrorMark, StoredFailure
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Edge, FlowRow, Join, UnreachableJob
from tidemill.domain.job import NO_DETAILS, Claim, Execution, JobRow, LogEntry, UniqueHold
from tidemill.domain.lanes import LaneKey
from tidemill.domain.limits import Rule, gate_of
from tidemill.domain.reactions import Occurrence
from tidemill.domain.records import AuditRecord, Pause, PauseKind, Setting
from tidemill.domain.releases import Deploy, ReleaseRecord
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.rollups import RollupScope, Unit
from tidemill.domain.schedules import Definition, DefinitionVersion, Fired, FireKey, ScheduleRow
from tidemill.domain.sessions import StoredSession
from tidemill.domain.signals import EmittedEvent, StoredSignal, StoredWait
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.domain.streams import StreamEntry, StreamPosition
from tidemill.domain.subscriptions import StoredEvent
from tidemill.domain.task_records import TaskRecord
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.domain.worker_reports import ScaleRequest

_EXPIRING = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})


@dataclass(frozen=True, slots=True)
class UniqueKeyHold:
    """The holder of a unique key: while ``live``, and in any case until ``window_ends_at``."""

    job_id: UUID
    live: bool
    window_ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class LimitCount:
    """The counts of a limit's name. ``begun`` has (when, how many), the oldest first."""

    used: int = 0
    begun: tuple[tuple[datetime, int], ...] = ()
    full_until_at: datetime | None = None
    breaker: str | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BlobRow:
    """The parts of a blob, or its place outside the store."""

    parts: tuple[str, ...]
    place: str | None
    created_at: datetime
    archived: bool = False


@dataclass(frozen=True, slots=True)
class EventRow:
    """A recorded event, and when its subscription may handle it."""

    event: StoredEvent
    due_at: datetime
    error: str | None = None


class RollupKey(NamedTuple):
    """The jobs that one rollup counts; properties outside its scope are empty."""

    scope: RollupScope
    at: datetime
    unit: Unit
    tenant: str
    task: str
    queue: str
    worker: str
    state: str


class RollupSums(NamedTuple):
    """The sums of one rollup; durations are microseconds."""

    jobs: int
    retried: int
    attempts: int
    most_attempts: int
    ran: int
    run_time: int
    longest: int
    lag: int
    longest_lag: int
    last_at: datetime


class TimesKey(NamedTuple):
    """One bucket of the run times or waits of a rollup."""

    rollup: RollupKey
    measure: str
    bucket: int


class DepthKey(NamedTuple):
    """The queue and the time of a sample."""

    unit: Unit
    queue: str
    at: datetime


@dataclass(slots=True)
class State:
    """All containers. Every value is immutable, so copying the containers copies everything."""

    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    #: Pending jobs by number. Numbers only rise, so insertion order is number order. An OrderedDict, because a dict iterates
    #: over deleted entries at its head.
    lanes: dict[LaneKey, OrderedDict[int, UUID]] = field(default_factory=dict)
    seqs: dict[UUID, int] = field(default_factory=dict)
    #: (run_at, id) of every job that ``promote`` will move, in order.
    alarms: list[tuple[datetime, UUID]] = field(default_factory=list)
    #: (expires_at, id) of every job that no worker holds and that may expire, in order.
    expiries: list[tuple[datetime, UUID]] = field(default_factory=list)
    held: set[UUID] = field(default_factory=set)
    #: Ended executions, in the order of their numbers.
    executions: dict[UUID, list[Execution]] = field(default_factory=dict)
    logs: dict[UUID, list[tuple[int, LogEntry]]] = field(default_factory=dict)
    checkpoints: dict[UUID, dict[str, str]] = field(default_factory=dict)
    streams: dict[UUID, dict[tuple[str, StreamPosition], StreamEntry]] = field(default_factory=dict)
    #: Unread signals by job, the oldest first; and the keys that each job has accepted.
    signals: dict[UUID, list[StoredSignal]] = field(default_factory=dict)
    signal_keys: dict[UUID, frozenset[str]] = field(default_factory=dict)
    #: The token of the execution that suspended a job, and what the job waits for.
    waits: dict[UUID, tuple[int, tuple[StoredWait, ...]]] = field(default_factory=dict)
    events: dict[UUID, EmittedEvent] = field(default_factory=dict)
    #: By job and number.
    blobs: dict[UUID, dict[int, BlobRow]] = field(default_factory=dict)
    #: By (tenant, key); and the rule of each job with a key, which applies again when the job is reopened.
    holds: dict[tuple[str, str], UniqueKeyHold] = field(default_factory=dict)
    rules: dict[UUID, UniqueHold] = field(default_factory=dict)
    workers: dict[UUID, Worker] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    pauses: dict[tuple[PauseKind, str], Pause] = field(default_factory=dict)
    audit: list[AuditRecord] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=dict)
    sessions: dict[str, StoredSession] = field(default_factory=dict)
    archive: dict[UUID, ArchivedJob] = field(default_factory=dict)
    archive_files: dict[UUID, Manifest] = field(default_factory=dict)
    definitions: dict[UUID, Definition] = field(default_factory=dict)
    #: Every version of each definition, the oldest first.
    versions: dict[UUID, list[DefinitionVersion]] = field(default_factory=dict)
    schedules: dict[UUID, ScheduleRow] = field(default_factory=dict)
    #: By schedule; a schedule's fires outlive it.
    fires: dict[UUID, dict[FireKey, Fired]] = field(default_factory=dict)
    #: By schedule, and job or event.
    occurrences: dict[tuple[UUID, UUID], Occurrence] = field(default_factory=dict)
    limits: dict[str, Rule] = field(default_factory=dict)
    releases: dict[str, ReleaseRecord] = field(default_factory=dict)
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    deploys: dict[tuple[str, str], Deploy] = field(default_factory=dict)
    failures: list[StoredFailure] = field(default_factory=list)
    error_marks: dict[tuple[str, str], ErrorMark] = field(default_factory=dict)
    counted: dict[str, LimitCount] = field(default_factory=dict)
    placements: dict[str, TenantPlacement] = field(default_factory=dict)
    #: Jobs whose end is counted.
    tied: set[UUID] = field(default_factory=set)
    #: By job and need; and the jobs that need each job or group.
    edges: dict[UUID, dict[UUID, Edge]] = field(default_factory=dict)
    needed: dict[UUID, set[UUID]] = field(default_factory=dict)
    #: By job or group, and shard.
    joins: dict[UUID, dict[int, Join]] = field(default_factory=dict)
    flows: dict[UUID, FlowRow] = field(default_factory=dict)
    archived_flows: dict[UUID, ArchivedFlow] = field(default_factory=dict)
    unreachable: dict[UUID, UnreachableJob] = field(default_factory=dict)
    #: Recorded events by number, in order.
    job_events: dict[int, EventRow] = field(default_factory=dict)
    alerts: dict[UUID, StoredAlert] = field(default_factory=dict)
    last_event: int = 0
    #: The journal of ends: a job, the state it ended in unless it continues, and its execution unless no worker held it.
    ends: list[tuple[JobRow, JobState | None, Execution | None]] = field(default_factory=list)
    rollups: dict[RollupKey, RollupSums] = field(default_factory=dict)
    #: Jobs and microseconds.
    rollup_times: dict[TimesKey, tuple[int, int]] = field(default_factory=dict)
    depths: dict[DepthKey, DepthStep] = field(default_factory=dict)
    #: Paused places of supervisors, and the latest request to each supervisor.
    worker_pauses: set[tuple[UUID, int]] = field(default_factory=set)
    worker_scales: dict[UUID, ScaleRequest] = field(default_factory=dict)
    last_seq: int = 0
    last_position: int = 0

    def copy(self) -> State:
        """The same data in new containers."""
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
            streams={id: dict(items) for id, items in self.streams.items()},
            signals={id: list(rows) for id, rows in self.signals.items()},
            signal_keys=dict(self.signal_keys),
            waits=dict(self.waits),
            events=dict(self.events),
            job_events=dict(self.job_events),
            alerts=dict(self.alerts),
            last_event=self.last_event,
            blobs={id: dict(rows) for id, rows in self.blobs.items()},
            holds=dict(self.holds),
            rules=dict(self.rules),
            workers=dict(self.workers),
            leases=dict(self.leases),
            settings=dict(self.settings),
            pauses=dict(self.pauses),
            audit=list(self.audit),
            keys=dict(self.keys),
            sessions=dict(self.sessions),
            archive=dict(self.archive),
            archive_files=dict(self.archive_files),
            definitions=dict(self.definitions),
            versions={id: list(rows) for id, rows in self.versions.items()},
            schedules=dict(self.schedules),
            fires={id: dict(rows) for id, rows in self.fires.items()},
            occurrences=dict(self.occurrences),
            limits=dict(self.limits),
            releases=dict(self.releases),
            tasks=dict(self.tasks),
            deploys=dict(self.deploys),
            failures=list(self.failures),
            error_marks=dict(self.error_marks),
            counted=dict(self.counted),
            placements=dict(self.placements),
            tied=set(self.tied),
            edges={id: dict(edges) for id, edges in self.edges.items()},
            needed={id: set(jobs) for id, jobs in self.needed.items()},
            joins={id: dict(rows) for id, rows in self.joins.items()},
            flows=dict(self.flows),
            archived_flows=dict(self.archived_flows),
            unreachable=dict(self.unreachable),
            ends=list(self.ends),
            rollups=dict(self.rollups),
            rollup_times=dict(self.rollup_times),
            depths=dict(self.depths),
            worker_pauses=set(self.worker_pauses),
            worker_scales=dict(self.worker_scales),
            last_seq=self.last_seq,
            last_position=self.last_position,
        )

    def find(self, id: UUID, tenant: str) -> JobRow | None:
        """The job with this id, if it belongs to this tenant."""
        job = self.jobs.get(id)
        return job if job is not None and tenant in (ALL_TENANTS, job.tenant) else None

    def find_held(self, id: UUID, token: int, worker: UUID | None) -> JobRow | None:
        """The job with this id, if this worker holds it with this token."""
        job = self.jobs.get(id)
        if job is None or job.state not in HELD or (job.token, job.worker) != (token, worker):
            return None
        return job

    def place(self, job: JobRow, *, wakes: bool = False) -> None:
        """Store a job in the container of its state; a waiting one that ``wakes`` gets an alarm at ``run_at``."""
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

    def rewrite(self, job: JobRow) -> None:
        """Replace a job that stays in its container."""
        self.jobs[job.id] = job

    def relabel(self, jobs: Sequence[JobRow]) -> None:
        """Replace pending and scheduled jobs whose limits, queue or priority changed; a pending one keeps its number in its new lane."""
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
        """Delete a job and all its records; the window of its unique key, if it has one, remains."""
        self._take_out(id)
        for table in (self.jobs, self.executions, self.logs, self.checkpoints, self.streams, self.rules):
            table.pop(id, None)
        self.tied.discard(id)
        self.remove_edges(id)
        self.remove_messages(id)
        self.remove_blobs(id)

    def remove_messages(self, id: UUID) -> None:
        """Delete the signals and waits of a job."""
        for table in (self.signals, self.signal_keys, self.waits):
            table.pop(id, None)

    def put_edge(self, edge: Edge) -> None:
        """Store an edge; one of the same job and need is replaced."""
        self.edges.setdefault(edge.job_id, {})[edge.needs_id] = edge
        self.needed.setdefault(edge.needs_id, set()).add(edge.job_id)

    def remove_edges(self, id: UUID) -> None:
        """Delete the edges and the join of a job or group; edges to it stay with the jobs that need it."""
        for needs_id in self.edges.pop(id, {}):
            self.needed[needs_id].discard(id)
            if not self.needed[needs_id]:
                del self.needed[needs_id]
        self.joins.pop(id, None)
        self.unreachable.pop(id, None)

    def kept_by_flow(self, id: UUID) -> bool:
        """Whether a job belongs to a live flow, or a job that needs it or its group has not ended."""
        if id not in self.tied:
            return False
        details = self.jobs[id].details
        flows = (self.flows.get(one) for one in (details.flow_id, details.group_id) if one is not None)
        if any(flow is not None and flow.ended_at is None for flow in flows):
            return True
        needs = (id,) if details.group_id is None else (id, details.group_id)
        dependants = (self.jobs.get(one) for need in needs for one in self.needed.get(need, ()))
        return any(job is not None and job.state not in ENDED for job in dependants)

    def leaves_with_flow(self, id: UUID) -> bool:
        """Whether a job belongs to a flow in the live tables, so that it is archived together with the flow."""
        return id in self.tied and self.jobs[id].details.flow_id in self.flows

    def remove_blobs(self, id: UUID) -> None:
        """Delete the blobs of a job, except archived ones, and rows that name a place outside the store."""
        kept = {
            number: row
            for number, row in self.blobs.pop(id, {}).items()
            if row.archived or row.place is not None
        }
        if kept:
            self.blobs[id] = kept

    def mark_blobs(self, id: UUID, *, archived: bool) -> None:
        """Record whether an archived document refers to the blobs of a job."""
        if id in self.blobs:
            self.blobs[id] = {
                number: replace(row, archived=archived) for number, row in self.blobs[id].items()
            }

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


def lane_key(job: JobRow) -> LaneKey:
    """The lane of a job while it is pending."""
    return LaneKey(job.queue, job.tenant, job.priority, gate_of(job.limits))


def claim_of(job: JobRow, seq: int | None = None) -> Claim:
    """A held job as a claim; ``seq`` is its former number, known only during the claim itself."""
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
