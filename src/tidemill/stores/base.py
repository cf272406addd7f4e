"""The store contract: what every store promises, in verbs of the domain.

The laws, which the conformance suite (``tidemill.testing.conformance``) checks on every store alike:

1.  **A verb is one atomic compare-and-set.** It takes the expected state or token as an argument, does all of its batch in
    one transaction, and says what it changed. It never retries a job, counts a limit, judges an expiry or picks a policy:
    those decisions arrive as arguments (``Transition``, ``Move``, ``Lane``).
2.  **Fenced verbs** (``start``, ``report``, ``log``, ``save_checkpoints``, ``finish``, ``step``) are keyed by job id *and* lease
    token, and hold only while the job is held. They return the ids that were **lost**: nothing was written for those, and the
    caller must say so and stop. The token rises by exactly one with each claim and never falls.
3.  **Verbs of people and duties** (``move``, ``request_cancel``, ``delete``, ``forget``) are keyed by id, tenant and expected
    state, and return the ids that **changed**.
4.  **The attempt is counted when the job is claimed.** A transition with ``refund`` gives it back; ``crashed`` counts a crash.
5.  **A job is in one place.** Its state is where its row is; it moves, and no two rows ever stand for one job.
6.  **An execution is written down exactly once**: the one that ended the job with the job, every other one as its own row
    (also when an ended job is reopened). A job that ended without being held has no execution for that end.
7.  **A unique key** of a tenant is held by one job, from enqueue until that job is claimed or ends (as the key says), and
    until its window has passed or a ``move`` lets it go. A key held until the claim leaves the job with it (``unique_key`` becomes
    None). A ``move`` that reopens an ended job takes its key again; while another job holds it, the job is not moved.
8.  **The tenant is part of every question** about jobs. ``ALL_TENANTS`` must be said aloud.
9.  **Time is an argument.** ``now=None`` means the store's own clock: the database's on PostgreSQL, the machine's elsewhere.
    A worker's measurements arrive as ages and are subtracted from ``now``; no worker's wall clock enters a table.
10. **An expired worker is not revived**: ``beat`` refuses it, and its jobs are ``orphans`` until somebody finishes them.
11. **Errors**: ``StoreBusy`` (nothing happened, ask again), ``StoreUnavailable``, ``StoreCorrupt``; and those of the schema.
12. **Within ``transaction()``** all verbs of the same thread commit together, or not at all.
13. **Wake-ups are hints.** ``notify`` may be lost, merged or early; whoever listens must also poll.
14. **A hold** has one holder among all who use the database. It is never given away while its holder lives.

Laws 15 to 17, of definitions, schedules and fires, are in ``stores.planning``; 18, of keys, in ``stores.guarding``, with the audit;
19 to 21, of limits, in ``stores.limiting``; 22 and 23, of what operators ask, in ``stores.insight``.

Batches may be empty, and then nothing happens. Ids given twice in one batch, and lanes in one claim, are an error of the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.cluster import Lease, Pulse, Worker
from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.job import (
    Checkpoint,
    Claim,
    Enqueued,
    Execution,
    Finish,
    Job,
    LogEntry,
    Move,
    NewJob,
    Report,
)
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
from tidemill.domain.states import JobState
from tidemill.stores.ahead import StepsAhead
from tidemill.stores.archiving import Archive
from tidemill.stores.guarding import Audit, Keys
from tidemill.stores.insight import Insight
from tidemill.stores.limiting import Limits
from tidemill.stores.planning import Definitions, Schedules
from tidemill.stores.steering import Settings


class Promoted(NamedTuple):
    """What ``promote`` moved, into which lanes, and when the next job is due (None: none is scheduled); and, where that was asked
    for too, the queues in which jobs are pending, of whatever limits.
    """

    moved: int
    lanes: frozenset[LaneKey]
    next_run_at: datetime | None
    queues: frozenset[str] = frozenset()


class Step(NamedTuple):
    """The finished batch's lost ids, and the newly claimed jobs."""

    lost: frozenset[UUID]
    claims: list[Claim]


class SchemaStatus(NamedTuple):
    """Where a database stands: the version it has, the one this code needs, and what would be applied."""

    version: int
    wanted: int
    pending: tuple[str, ...]


class Listener(Protocol):
    """Hears wake-ups."""

    def wait(self, timeout: float) -> frozenset[str]:
        """The topics heard since the last call, at once if there are any; empty after ``timeout`` seconds."""

    def close(self) -> None: ...


class Hold(Protocol):
    """A lock that lives with its holder: it ends with the process, the connection or the store, and no fork has it."""

    def held(self) -> bool:
        """Whether it is still ours; cheap, as nobody is asked. One that was lost is released and asked for again."""

    def release(self) -> None:
        """Let others have it; doing so twice is harmless."""


class Flow(ABC):
    """A job's way: enqueue → promote → claim → start → report → finish."""

    @abstractmethod
    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        """Insert all jobs, or none. A job whose unique key is held is not inserted: its answer names the holder. Jobs may be made
        while those before them are inserted (``jobs`` is an iterator); what the making raises leaves nothing behind.

        ``run_at`` or ``delay`` (from now) ahead of now makes a job ``scheduled``, otherwise it is ``pending`` with the given
        ``run_at``, or now. Within one batch the first job to name a key gets it. An id that is stored anywhere but in the
        archive is ``JobExists``, and nothing is inserted. A job with ``waiting`` is inserted as ``waiting`` for that reason,
        with ``run_at`` now; nothing but a ``move`` brings it on."""

    @abstractmethod
    def promote(self, limit: int, *, look: bool = False, now: datetime | None = None) -> Promoted:
        """Move up to ``limit`` jobs that are due to ``pending``, the earliest first: scheduled ones, and waiting ones whose
        transition gave them a delay. ``next_run_at`` is the earliest among those that remain. With ``look``, say also which queues
        have pending jobs.
        """

    @abstractmethod
    def lanes(self, queues: Sequence[str] | None = None) -> list[Lane]:
        """The lanes that hold pending jobs without limits, each with the lowest number in it; of the given queues, or of all."""

    @abstractmethod
    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        """Take pending jobs for a worker, lane by lane in the order given, within a lane by number from ``low`` on. Two claims
        never get the same job. Attempt and token rise by one. A lane yields at most its quota, the claim at most its limit;
        jobs of tasks not asked for are passed over and stay. A job that was in a crash is only ever ``claimed``: whoever
        begins it writes that first, so that at the next crash it is known whether it ran.
        """

    @abstractmethod
    def start(self, claims: Sequence[Claim], *, now: datetime | None = None) -> frozenset[UUID]:
        """Turn ``claimed`` jobs to ``running``; starting a running one again changes nothing. Returns the lost ids."""

    @abstractmethod
    def report(self, reports: Sequence[Report], *, now: datetime | None = None) -> frozenset[UUID]:
        """Write progress of held jobs, each replacing the one before and dated now. Returns the lost ids."""

    @abstractmethod
    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        """Every exit from ``claimed`` and ``running``: write each transition if the token still holds; the lost ids. Ended
        jobs keep result, error, reason and their last execution. A job that goes back (``pending`` with a new number at the
        end of its lane, ``scheduled``, ``waiting``, ``review_needed``) has ``run_at`` = now + delay and the reason; the
        result of a review is kept for whoever decides. A job that was asked to stop ends as ``cancelled`` for that reason
        instead of going back, save to a review. ``started_at`` is now − ``started_ago`` where that is given.
        """

    @abstractmethod
    def step(self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None) -> Step:
        """``finish`` one batch and ``claim`` the next in one transaction."""


class Control(ABC):
    """What people and duties do to jobs."""

    @abstractmethod
    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        """Carry out transitions of jobs nobody holds, each only if the job is in an expected state; the changed ids. ``pending``
        and ``scheduled`` set ``run_at`` to now + delay; an end sets ``finished_at`` to now, and keeps the result the job has
        unless the move brings one. Reopening an ended job drops its result and error. ``restart`` sets attempt and crashes to
        zero; the token stays.
        """

    @abstractmethod
    def request_cancel(self, ids: Collection[UUID], *, tenant: str, reason: str) -> frozenset[UUID]:
        """Ask the workers that hold these jobs to stop them; the first reason stays. Returns the ids that are held."""

    @abstractmethod
    def delete(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Remove ended jobs with all that was written about them, and what they still hold. Returns the ids removed."""


class Queries(ABC):
    """Reading; nothing here changes anything. A page of jobs or log lines holds 1 to 1,000; another ``limit`` is ``BadFilter``."""

    @abstractmethod
    def get(self, ids: Collection[UUID], *, tenant: str) -> list[Job]:
        """The jobs of these ids that there are, in the order of their ids."""

    @abstractmethod
    def jobs(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[Job]:
        """One page of the jobs that match. For a text it looks at ``where.look`` jobs that match all else, and goes on from there."""

    @abstractmethod
    def count(self, where: JobFilter, *, most: int | None = None) -> dict[JobState, int]:
        """How many jobs match, by state, without states of none; no more than ``most`` are counted. With a text: ``BadFilter``."""

    @abstractmethod
    def held(self, worker: UUID) -> list[Claim]:
        """Every job this worker holds, claimed or running, the oldest claim first: what a lost answer may have given it."""

    @abstractmethod
    def expired(self, limit: int, *, now: datetime | None = None) -> list[Job]:
        """Pending, scheduled and waiting jobs whose ``expires_at`` is not after now, the longest expired first."""

    @abstractmethod
    def executions(self, ids: Collection[UUID], *, tenant: str) -> list[Execution]:
        """Every execution of these jobs, the running one included, by job and number."""

    @abstractmethod
    def logs(
        self, id: UUID, *, tenant: str, after: int = 0, before: int | None = None, limit: int = 1000
    ) -> list[tuple[int, LogEntry]]:
        """A job's log lines as they were written, each with its position: the first after one, or the last ``before`` one."""


class Records(ABC):
    """What is written down of jobs: logs and checkpoints."""

    @abstractmethod
    def log(self, entries: Sequence[LogEntry]) -> frozenset[UUID]:
        """Append log lines of held jobs, fenced by their ``number`` (the token). Returns the lost ids."""

    @abstractmethod
    def save_checkpoints(
        self, entries: Sequence[Checkpoint], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Write checkpoints of held jobs, fenced by their ``number`` (the token), each over the one of the same name; the
        last of those in one batch stays. They outlive executions and go with the job. Returns the lost ids.
        """

    @abstractmethod
    def checkpoints(self, id: UUID, *, tenant: str) -> dict[str, str]:
        """A job's checkpoints by name; empty where there is no such job."""


class Workers(ABC):
    """Liveness: one row per worker, never per job."""

    @abstractmethod
    def register(self, worker: Worker, *, lease: timedelta, now: datetime | None = None) -> Worker:
        """Write a new worker down; it is alive for ``lease`` from now."""

    @abstractmethod
    def beat(self, ids: Collection[UUID], *, lease: timedelta, now: datetime | None = None) -> Pulse:
        """Renew these workers' leases. A worker whose lease ran out is not alive again, and is missing from ``alive``."""

    @abstractmethod
    def retire(self, ids: Collection[UUID], *, now: datetime | None = None) -> None:
        """These workers are gone: their leases end now, and what they still hold are orphans."""

    @abstractmethod
    def drain(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """Ask active workers to finish what they hold and claim nothing more; they learn it with their next beat."""

    @abstractmethod
    def workers(self) -> list[Worker]:
        """All workers that are written down, the newest first."""

    @abstractmethod
    def orphans(self, limit: int, *, now: datetime | None = None) -> list[Claim]:
        """Jobs held by workers whose lease has run out or who are not known, oldest claim first; nothing is changed."""

    @abstractmethod
    def overdue(self, limit: int, *, now: datetime | None = None) -> list[Claim]:
        """Running jobs that are past their timeout, the longest overdue first; nothing is changed."""

    @abstractmethod
    def sweep(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        """Remove workers whose lease ended longer ago than that and who hold nothing; how many. Unique keys whose window has
        passed, so that nothing holds them, go with them.
        """


class Leases(ABC):
    """Named leases and holds: an optimisation for duties, never their safety."""

    @abstractmethod
    def acquire(
        self, name: str, holder: UUID, *, ttl: timedelta, now: datetime | None = None
    ) -> Lease | None:
        """Take a lease that is free or has run out, with the next term; None while another holds it. Acquiring what one
        already holds renews it and keeps the term.
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
        """Hold on, if it is still ours and has not run out; False means stop at once."""

    @abstractmethod
    def release(self, name: str, holder: UUID, term: int) -> bool:
        """Give the lease up, if it is still ours."""

    @abstractmethod
    def leases(self) -> list[Lease]:
        """All leases by name."""

    @abstractmethod
    def hold(self, name: str) -> Hold | None:
        """Instead of a lease, a lock of the database or the machine, outside of transactions; None while anybody has it, be
        it this store. ``BadSettings`` where there can be none.
        """


class Store(
    Flow,
    Control,
    Queries,
    Records,
    Workers,
    Leases,
    Settings,
    Archive,
    Definitions,
    Schedules,
    Limits,
    Audit,
    Keys,
    Insight,
):
    """A place that remembers jobs."""

    url: str
    """Where it is, without any password."""

    @property
    def cooperative(self) -> bool:
        """Whether a thread that waits for a verb may do something else meanwhile (``stores.waiting``)."""
        return False

    @abstractmethod
    def steps_ahead(self) -> StepsAhead | None:
        """A way for one thread to send steps before the last one is answered; None where there is none, as in most stores."""

    @abstractmethod
    def schema(self) -> SchemaStatus:
        """Where the schema stands; a read."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the schema up to this code's version, one migrator at a time; the names of what was applied."""

    @abstractmethod
    def check(self) -> None:
        """Nothing, if the store answers and its schema is the one this code needs; else the error that says why not."""

    @abstractmethod
    def now(self) -> datetime:
        """The store's own time, which counts wherever none is given (law 9)."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All verbs this thread calls inside commit together when the block ends, or not at all when it raises."""

    @abstractmethod
    def notify(self, topics: Iterable[str]) -> None:
        """Wake those who listen, soon: calls in quick succession are merged."""

    @abstractmethod
    def listen(self) -> Listener:
        """A new ear for wake-ups from every process that uses this store."""

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection, file and thread; closing twice is harmless."""
