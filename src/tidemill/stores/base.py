"""The store contract: the operations of every store, and their laws.

The conformance suite (``tidemill.testing.conformance``) checks these laws on every store:

1.  **A verb is one atomic compare-and-set.** It takes the expected state or token as an argument, applies its whole batch in
    one transaction, and returns what it changed. It never retries a job, judges an expiry or picks a policy: those decisions
    arrive as arguments (``Transition``, ``Move``, ``Lane``). If a decision depends on something that only the row contains, such as
    a late cancel request, the arguments contain the outcome of each case (``Transition.on_cancel``).
2.  **Fenced verbs** (``start``, ``report``, ``log``, ``save_checkpoints``, ``record_steps``, ``write_streams``,
    ``finish``, ``step``) are keyed by job id, token and
    worker, and write only while that worker holds the job with that token. They return the ids that were **lost**: the store
    wrote nothing for those, and the caller must report it and stop. The token rises by exactly one with each claim and never
    falls. A database that goes back in time (a promoted standby that lagged, a restored backup) may issue a token twice; the
    worker then distinguishes the two claims. Every verb that returns claims sets ``Claim.worker``.
3.  **Verbs of people and duties** (``move``, ``change``, ``request_cancel``, ``delete``, ``forget``) are keyed by id, tenant and expected
    state, and return the ids that **changed**.
4.  **The attempt is counted when the job is claimed.** A transition with ``refund`` undoes that; ``crashed`` counts a crash. A job
    that is suspended counts attempts and crashes from zero again.
5.  **A job is in one place.** The table that holds its row is its state; a job never has two rows.
6.  **An execution is recorded exactly once**: the one that ended the job with the job, every other one as its own row
    (also when an ended job is reopened). A job that ended without being held has no execution for that end. A finish that
    keeps less (``Keep``) deletes the rows of earlier executions, or the job with all its records.
7.  **A unique key** of a tenant is held by one job, from enqueue until that job is claimed or ends (as the key defines), and
    until its window has passed or a ``move`` releases it. A key held until the claim is then cleared from the job (``unique_key``
    becomes None). A ``move`` that reopens an ended job takes its key again; while another job holds it, the job is not moved.
8.  **Every query about jobs names a tenant.** ``ALL_TENANTS`` must be passed explicitly.
9.  **Time is an argument.** ``now=None`` means the store's own clock: the database's on PostgreSQL, the machine's elsewhere.
    A worker's measurements arrive as ages and are subtracted from ``now``; no worker's wall clock enters a table.
10. **A worker that was declared gone is not revived**: ``beat`` refuses it, and its jobs are ``orphans`` until a duty finishes
    them. An expired lease only keeps its worker from claiming until the next ``beat``. An observer declares workers gone.
11. **Errors**: ``StoreBusy`` (nothing happened, try again), ``StoreUnavailable``, ``StoreCorrupt``; and those of the schema.
12. **Within ``transaction()``** all verbs of the same thread commit together, or not at all. It belongs to the thread, so callers
    hold it around store verbs only: never around a user's code and never across an ``await``.
13. **Wake-ups are hints.** ``notify`` may be lost, merged or early; a listener must also poll.
14. **A hold** has one holder among all users of the database. It is never passed on while its holder lives.

Laws 15 to 17 (definitions, schedules and fires) are in ``stores.schedules``, law 18 (keys) with the audit in ``stores.access``,
laws 19 to 21 (limits) in ``stores.limits``, laws 22 and 23 (statistics) in ``stores.stats``, law 24 (deployments) in
``stores.schedules``, law 25 (large values) in ``stores.blobs``, laws 27 and 32 (signals, and wake-ups of suspended jobs) in
``stores.signals``, law 28 (steps) in ``stores.steps``, laws 26, 29 to 31, 33 and 34 (workflows) in ``stores.flows``, laws
35 and 36 (recorded events and alerts) in ``stores.job_events``, law 37 (occurrences) in ``stores.occurrences``, law 38
(streams) in ``stores.streams``, law 39 (deals) in ``stores.deals``, law 40 (records of tasks) in ``stores.tasks``, law 41
(failures) in ``stores.failures``, law 42 (placements of tenants) in ``stores.placements``, and laws 43 and 44 (transfers)
in ``stores.transfers``. Law 45 (requests to workers) is in ``stores.requests``, and law 46 (samples of depths) with the
statistics.

Batches may be empty, and then nothing happens. Duplicate ids in one batch, and duplicate lanes in one claim, are caller errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.calls import new_job_topics
from tidemill.domain.cluster import Heartbeat, Lease, Pulse, Worker
from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.job import (
    Change,
    Checkpoint,
    Claim,
    Enqueued,
    Execution,
    Finish,
    JobRow,
    LogEntry,
    Move,
    NewJob,
    ProgressReport,
)
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
from tidemill.domain.log_search import FoundLine, LogFilter
from tidemill.domain.node_results import NO_STARTS, JobStarts
from tidemill.domain.states import JobState
from tidemill.domain.worker_reports import WorkerReport
from tidemill.stores.access import AuditStore, KeyStore, SessionStore
from tidemill.stores.archive import ArchiveStore
from tidemill.stores.archive_control import ArchiveControlStore
from tidemill.stores.archive_files import ArchiveFileStore
from tidemill.stores.blobs import BlobStore
from tidemill.stores.deals import DealStore
from tidemill.stores.failures import FailureStore
from tidemill.stores.flows import (
    ArchivedFlowStore,
    FlowArchive,
    FlowQueries,
    FlowStats,
    FlowStore,
    NodeResults,
)
from tidemill.stores.job_events import AlertStore, JobEventStore
from tidemill.stores.limits import LimitRuleStore, LimitStore
from tidemill.stores.lock_server import LockingStore
from tidemill.stores.occurrences import OccurrenceStore
from tidemill.stores.placements import PlacementStore
from tidemill.stores.requests import NO_REPORTS, RequestStore
from tidemill.stores.schedules import DefinitionStore, FireStore, ReleaseStore, ScheduleStore
from tidemill.stores.seals import SealStore
from tidemill.stores.server import ServerStore
from tidemill.stores.settings import SettingsStore
from tidemill.stores.signals import EventStore, SignalStore
from tidemill.stores.stats import DepthStore, OccupancyStore, RollupStore, StatsStore
from tidemill.stores.step_pipeline import StepPipeline
from tidemill.stores.steps import StepStore
from tidemill.stores.streams import StreamStore
from tidemill.stores.tasks import TaskStore
from tidemill.stores.transfers import TransferStore


class Promoted(NamedTuple):
    """The number of jobs that ``promote`` moved, their lanes, and when the next job is due (None: none is scheduled).

    With ``look`` also the queues that have pending jobs, with or without limits.
    """

    moved: int
    lanes: frozenset[LaneKey]
    next_run_at: datetime | None
    queues: frozenset[str] = frozenset()


class StepResult(NamedTuple):
    """The finished batch's lost ids, and the newly claimed jobs."""

    lost: frozenset[UUID]
    claims: list[Claim]


class ReadStepResult(StepResult):
    """The result of a step that has also read the answer of ``job_starts`` for some of the claimed jobs."""

    starts: JobStarts = NO_STARTS


class SchemaStatus(NamedTuple):
    """The schema version of a database, the version this code needs, and the migrations that would be applied.

    ``serves`` is the oldest code, by the version it needs, that works with the current schema. A ``version`` above ``wanted`` is
    not an error as long as ``serves`` does not exceed it.
    """

    version: int
    wanted: int
    pending: tuple[str, ...]
    serves: int


class Listener(Protocol):
    """A subscription to wake-ups."""

    def wait(self, timeout: float) -> frozenset[str]:
        """The topics received since the last call, immediately if there are any; empty after ``timeout`` seconds.

        A listener that lost its connection reports ``change`` and ``reconnected`` after it has reconnected.
        """

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that ends with its process, connection or store, and is not inherited by a fork."""

    def held(self) -> bool:
        """Whether it is still held; cheap, without a round trip. The holder releases a lost lock and acquires it again."""

    def release(self) -> None:
        """Release the lock; a second call has no effect."""


class LifecycleStore(ABC):
    """The life cycle of a job: enqueue → promote → claim → start → report → finish."""

    @abstractmethod
    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        """Insert all jobs, or none. A job whose unique key is held is not inserted: its answer names the holder.

        ``jobs`` may be an iterator that creates jobs while earlier ones are inserted; if it raises, nothing is stored. A job whose
        ``run_at`` or ``delay`` (from now) is in the future is ``scheduled``, otherwise it is ``pending`` with the given
        ``run_at``, or now. Within one batch the first job to name a key gets it. An id that is stored anywhere but in the
        archive raises ``JobExists``, and nothing is inserted. A job with ``waiting`` is inserted as ``waiting`` for that reason,
        with ``run_at`` now; only a ``move`` releases it.
        """

    @abstractmethod
    def promote(self, limit: int, *, look: bool = False, now: datetime | None = None) -> Promoted:
        """Move up to ``limit`` due jobs to ``pending``, the earliest first: scheduled ones, and waiting ones with a delay.

        ``next_run_at`` is the earliest of the remaining jobs. With ``look``, also return the queues that have pending jobs.
        """

    @abstractmethod
    def lanes(self, queues: Sequence[str] | None = None) -> list[Lane]:
        """The lanes with pending jobs without limits, each with its lowest number; of the given queues, or of all."""

    @abstractmethod
    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        """Claim pending jobs for a worker, lane by lane in the given order, within a lane by number from ``low`` on.

        Two claims never get the same job. Attempt and token rise by one. A lane yields at most its quota, the claim at most its
        limit; jobs of other tasks are skipped. A worker without a live lease (it has no row, was declared gone, or its
        ``expires_at`` is not after now) gets nothing; the same applies to the claim of a ``step``. A job with a crash is only ever
        ``claimed``: the worker records its start before it runs, so that after another crash it is known whether it ran.
        """

    @abstractmethod
    def start(
        self, claims: Sequence[Claim], ages: Sequence[float] | None = None, *, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Change ``claimed`` jobs to ``running``; no effect on a running one. Returns the lost ids.

        ``ages`` are the seconds since each job began, by the worker's monotonic clock: ``started_at`` is now − age.
        """

    @abstractmethod
    def report(self, reports: Sequence[ProgressReport], *, now: datetime | None = None) -> frozenset[UUID]:
        """Write the progress of held jobs, each replacing the previous one, with the time now. Returns the lost ids."""

    @abstractmethod
    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        """Apply each transition if the fence still holds; the only way out of ``claimed`` and ``running``. Returns the lost ids.

        Ended jobs keep result, error, reason and their last execution. A job that is released (``pending`` with a new number at the
        end of its lane, ``scheduled``, ``waiting``, ``review_needed``) has ``run_at`` = now + delay and the reason; the result of
        a review is kept for the reviewer. A job with a cancel request gets the state ``on_cancel`` of its transition for the
        reason of the request, if there is one: then it is not released. ``started_at`` is now − ``started_ago`` if that is given.

        An accepted finish that completes its job also enqueues the jobs of its ``then``, in the same transaction, and records
        the ``audit`` entries of those that were created. A ``then`` job whose unique key is held is omitted. Any other finish
        ignores its ``then``. ``JobExists`` for one of them undoes the whole batch.

        ``keep`` decides which rows stay: ``ALL``; ``LAST`` deletes the rows of earlier executions; ``NOTHING``, for a job that
        completes, deletes the job with all its records instead of moving it. Limits, follow-up jobs and the windows of unique
        keys are not affected. A tied job keeps its row in any case: its flow needs it.

        The end of a tied job is counted, and ``additions`` are written, as laws 26, 33 and 34 say. ``JobExists``, ``JobNotFound`` or
        ``WaitCycle`` for one of them undoes the whole batch.
        """

    @abstractmethod
    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        """``finish`` one batch and ``claim`` the next in one transaction."""


class ControlStore(ABC):
    """Verbs of people and duties."""

    @abstractmethod
    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        """Apply transitions of jobs that no worker holds, each only in an expected state. Returns the changed ids.

        ``pending`` and ``scheduled`` set ``run_at`` to now + delay. An end sets ``finished_at`` to now and keeps the job's result
        unless the move has one. Reopening an ended job deletes its result and error. ``restart`` sets attempt and crashes to
        zero; the token is unchanged.
        """

    @abstractmethod
    def change(self, changes: Sequence[Change]) -> frozenset[UUID]:
        """Give pending and scheduled jobs another queue or priority, each only if the job is in an expected state; the ids of the
        jobs that are. A pending job moves to the lane of its new queue and priority and keeps its number, so it comes there
        before jobs that became pending after it. Nothing else of a job changes.
        """

    @abstractmethod
    def request_cancel(self, ids: Collection[UUID], *, tenant: str, reason: str) -> frozenset[UUID]:
        """Request cancellation from the workers that hold these jobs; the first reason is kept. Returns the ids that are held."""

    @abstractmethod
    def delete(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete ended jobs with all their records and the unique keys they still hold. Returns the deleted ids."""


class JobQueries(ABC):
    """Reads. A page of jobs or log lines holds 1 to 1,000; any other ``limit`` raises ``BadFilter``."""

    @abstractmethod
    def get(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        """The existing jobs with these ids, in the order of their ids."""

    @abstractmethod
    def jobs(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[JobRow]:
        """One page of the matching jobs. For a text it scans ``where.look`` jobs that match the other conditions.

        A page ends early when arguments and results take more than ``PAGE_BYTES``, and the store reads no more than fits.
        """

    @abstractmethod
    def count(self, where: JobFilter, *, most: int | None = None) -> dict[JobState, int]:
        """The number of matching jobs by state, without zeros; at most ``most`` are counted. With a text: ``BadFilter``."""

    @abstractmethod
    def held(self, worker: UUID) -> list[Claim]:
        """All jobs that this worker holds, oldest claim first; finds claims whose answer was lost."""

    @abstractmethod
    def expired(self, limit: int, *, now: datetime | None = None) -> list[JobRow]:
        """Pending, scheduled and waiting jobs whose ``expires_at`` is not after now, the longest expired first."""

    @abstractmethod
    def executions(self, ids: Collection[UUID], *, tenant: str) -> list[Execution]:
        """Every execution of these jobs, the running one included, by job and number."""

    @abstractmethod
    def logs(
        self,
        id: UUID,
        *,
        tenant: str,
        after: int = 0,
        before: int | None = None,
        levels: frozenset[str] | None = None,
        limit: int = 1000,
    ) -> list[tuple[int, LogEntry]]:
        """A job's log lines in order, each with its position: the first ones after a position, or the last ones ``before`` one.

        ``levels`` restricts them to these levels.
        """

    @abstractmethod
    def search_logs(self, where: LogFilter, *, limit: int = 100, after: str | None = None) -> Page[FoundLine]:
        """One page of the matching log lines of all jobs, newest first; lines of one instant by position.

        A search for a text, tasks or a tenant scans ``where.look`` lines that match the other conditions. A page may
        therefore hold fewer lines than ``limit``, or none, and still have a cursor.
        """


class RecordStore(ABC):
    """Records of jobs: logs and checkpoints."""

    @abstractmethod
    def log(self, entries: Sequence[LogEntry]) -> frozenset[UUID]:
        """Append log lines of held jobs, fenced by their ``number`` (the token) and ``worker``. Returns the lost ids."""

    @abstractmethod
    def save_checkpoints(
        self, entries: Sequence[Checkpoint], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Write checkpoints of held jobs, fenced by their ``number`` (the token) and ``worker``. Returns the lost ids.

        Each replaces the one with the same name, and the last one in a batch wins. They outlive executions and are deleted with
        the job.
        """

    @abstractmethod
    def checkpoints(self, id: UUID, *, tenant: str) -> dict[str, str]:
        """A job's checkpoints by name; empty if there is no such job."""


class WorkerStore(ABC):
    """Liveness: one row per worker, never per job."""

    @abstractmethod
    def register(self, worker: Worker, *, lease: timedelta, now: datetime | None = None) -> Worker:
        """Insert a new worker; its lease lasts for ``lease`` from now."""

    @abstractmethod
    def beat(
        self,
        ids: Collection[UUID],
        *,
        lease: timedelta,
        reports: Mapping[UUID, WorkerReport] = NO_REPORTS,
        now: datetime | None = None,
    ) -> Pulse:
        """Renew these workers' leases, also expired ones. Workers that were declared gone are missing from ``alive``.

        A report replaces the worker's previous one, and its number of slots. A worker without one keeps them.
        """

    @abstractmethod
    def heartbeats(self, *, now: datetime | None = None) -> list[Heartbeat]:
        """The heartbeat counter and the lease of every worker that was not declared gone, in the order of their ids."""

    @abstractmethod
    def declare_gone(
        self, seen: Collection[tuple[UUID, int]], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Retire each of these workers if its ``beats`` is unchanged. Returns the ids of those retired."""

    @abstractmethod
    def retire(self, ids: Collection[UUID], *, crashed: bool = False, now: datetime | None = None) -> None:
        """Retire these workers: their leases end now, and the jobs they still hold are orphans.

        A worker that stops in good order has its last heartbeat now. A crashed one keeps the last heartbeat it sent, like one that is
        declared gone: its lease ends after its last heartbeat, so readers can distinguish the two.
        """

    @abstractmethod
    def drain(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """Ask active workers to finish their jobs and claim no more; they are notified with their next beat."""

    @abstractmethod
    def workers(self) -> list[Worker]:
        """All registered workers, the newest first."""


class RecoveryStore(ABC):
    """Rows that duties clean up after workers: jobs without a worker, jobs past their timeout, and rows that are no longer needed."""

    @abstractmethod
    def orphans(self, limit: int) -> list[Claim]:
        """Jobs held by workers that were declared gone or that have no row, oldest claim first. Read only."""

    @abstractmethod
    def overdue(self, limit: int, *, now: datetime | None = None) -> list[Claim]:
        """Running jobs past their timeout, the longest overdue first. Read only."""

    @abstractmethod
    def sweep(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        """Delete workers that were declared gone, whose lease ended longer ago than that and that hold no job. Returns the number.

        Also deletes unique keys whose window has passed and that no job holds, and requests to supervisors without workers.
        """


class LeaseStore(ABC):
    """Named leases and holds: an optimisation for duties, not needed for their safety."""

    @abstractmethod
    def acquire(
        self,
        name: str,
        holder: UUID,
        *,
        ttl: timedelta,
        stale: tuple[int, datetime] | None = None,
        now: datetime | None = None,
    ) -> Lease | None:
        """Acquire a lease that is free or expired, with the next term; None while another holds it.

        Acquiring a lease again renews it and keeps the term. ``stale`` is a term and its last beat that the caller has seen
        unchanged for the whole lease by its own clock: if they are still the same, the lease is acquired although it has not
        expired.
        """

    @abstractmethod
    def renew(
        self,
        name: str,
        holder: UUID,
        term: int,
        *,
        ttl: timedelta,
        metadata: Mapping[str, object] | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Renew the lease if the holder still has it and it has not expired; False means stop immediately."""

    @abstractmethod
    def release(self, name: str, holder: UUID, term: int) -> bool:
        """Release the lease, if the holder still has it."""

    @abstractmethod
    def leases(self) -> list[Lease]:
        """All leases by name."""

    @abstractmethod
    def hold(self, name: str) -> Lock | None:
        """A lock of the database or the machine instead of a lease, outside of transactions; None while it is held, even by
        this store. Raises ``BadSettings`` where it is not possible.
        """


class SchemaStore(ABC):
    """The schema of the database."""

    @abstractmethod
    def schema(self) -> SchemaStatus:
        """The state of the schema. Read only."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Apply the pending migrations, one migrator at a time. Returns their names."""

    @abstractmethod
    def check(self) -> None:
        """Return if the store answers and its schema serves this code; otherwise raise the error."""


class Store(
    JobEventStore,
    SettingsStore,
    LifecycleStore,
    DealStore,
    ControlStore,
    JobQueries,
    RecordStore,
    WorkerStore,
    RequestStore,
    RecoveryStore,
    LeaseStore,
    ArchiveStore,
    ArchiveFileStore,
    ArchiveControlStore,
    DefinitionStore,
    ScheduleStore,
    FireStore,
    LimitRuleStore,
    LimitStore,
    AuditStore,
    KeyStore,
    SessionStore,
    StatsStore,
    RollupStore,
    DepthStore,
    FailureStore,
    OccupancyStore,
    ReleaseStore,
    TaskStore,
    BlobStore,
    FlowStore,
    FlowQueries,
    NodeResults,
    FlowArchive,
    FlowStats,
    ArchivedFlowStore,
    StepStore,
    StreamStore,
    SignalStore,
    EventStore,
    AlertStore,
    OccurrenceStore,
    SealStore,
    PlacementStore,
    TransferStore,
    ServerStore,
    LockingStore,
    SchemaStore,
):
    """A job store."""

    url: str
    """Its URL, without any password."""

    @property
    def cooperative(self) -> bool:
        """Whether a thread that waits for a verb may do other work (``stores.wait_function``)."""
        return False

    @abstractmethod
    def steps_ahead(self) -> StepPipeline | None:
        """A channel for one thread to send steps before the last one is answered; None in stores without one, which are most."""

    @abstractmethod
    def now(self) -> datetime:
        """The store's own time, the default of every ``now`` argument (law 9)."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All verbs that this thread calls inside commit together when the block ends, or not at all if it raises."""

    @abstractmethod
    def notify(self, topics: Iterable[str]) -> None:
        """Wake listeners soon; calls in quick succession are merged."""

    def enqueue_and_wake(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs and notify the workers that wait for such jobs."""
        written = self.enqueue(jobs)
        self.notify(new_job_topics(jobs))
        return written

    @abstractmethod
    def listen(self) -> Listener:
        """A new listener for wake-ups from every process that uses this store."""

    @abstractmethod
    def rest(self) -> None:
        """Release what idle use does not need, such as connections hardly used since the last call. Any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection, file and thread; a second call has no effect."""
