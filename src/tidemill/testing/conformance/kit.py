"""Builders of the conformance tests: jobs, instants, and jobs in every state.

Nothing here depends on a particular store, reads a clock or sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar
from uuid import UUID

from tidemill.domain.cluster import WORKER_EXPIRY, Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import (
    Claim,
    ErrorInfo,
    Execution,
    Finish,
    JobRow,
    LogEntry,
    Move,
    NewJob,
    Transition,
)
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.retention import ArchivedJob, ArchivePolicy
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.errors import StoreBusy
from tidemill.ids import new_id
from tidemill.stores.base import Store

T = TypeVar("T")
P = ParamSpec("P")
S, E = JobState, ExecutionState

T0: Final = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
"""The instant at which most tests begin."""

TICK: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
_BEFORE: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LEASE: Final = datetime(5000, 1, 1, tzinfo=UTC) - _BEFORE

WORKER: Final = UUID("0197a000-0000-7000-8000-00000000000a")
OTHER: Final = UUID("0197a000-0000-7000-8000-00000000000b")

BOOM: Final = ErrorInfo("ValueError", "boom", "Traceback (most recent call last):\n  ValueError: boom")

FAILED: Final = Transition(S.FAILED, E.FAILED, "ValueError: boom")
AGAIN: Final = Transition(S.PENDING, E.FAILED, "once more")
LATER: Final = Transition(S.SCHEDULED, E.FAILED, "in an hour", HOUR)
RELEASED: Final = Transition(S.PENDING, E.RELEASED, "handed back", refund=True)
CRASHED: Final = Transition(S.PENDING, E.CRASHED, "worker lost", crashed=True)
SUSPENDED: Final = Transition(S.WAITING, E.SUSPENDED, "awaits a signal", refund=True)
ASLEEP: Final = Transition(S.WAITING, E.SUSPENDED, "sleeps an hour", HOUR, refund=True)
REVIEW: Final = Transition(S.REVIEW_NEEDED, E.REVIEW, "please look")

ENDS: Final = {
    S.COMPLETED: COMPLETED,
    S.FAILED: FAILED,
    S.TIMED_OUT: Transition(S.TIMED_OUT, E.TIMED_OUT, "exceeded timeout of 1 seconds"),
    S.CANCELLED: Transition(S.CANCELLED, E.CANCELLED, "no longer wanted"),
    S.DEAD_LETTERED: Transition(S.DEAD_LETTERED, E.FAILED, "attempts exhausted"),
}
"""A transition into each final state."""

BACKS: Final = {S.PENDING: AGAIN, S.SCHEDULED: LATER, S.WAITING: SUSPENDED, S.REVIEW_NEEDED: REVIEW}
"""A transition into each state that a held job can return to."""

REOPENABLE: Final = ENDED - {S.COMPLETED}
CANCELLABLE: Final = frozenset({S.SCHEDULED, S.PENDING, S.WAITING, S.REVIEW_NEEDED})
UNHELD: Final = [S.SCHEDULED, S.PENDING, S.WAITING, S.REVIEW_NEEDED, *sorted(ENDED)]


def at(seconds: float) -> datetime:
    """Return the instant this many seconds after ``T0``."""
    return T0 + timedelta(seconds=seconds)


def a_job(task: str = "work", *, id: UUID | None = None, **fields: Any) -> NewJob:
    """Return a job to enqueue, with a new id unless one is given."""
    return NewJob(id or new_id(), task, **fields)


def put(store: Store, *jobs: NewJob, now: datetime = T0) -> list[UUID]:
    """Enqueue jobs that must all be created; return their ids."""
    answers = store.enqueue(jobs, now=now)
    assert [(answer.id, answer.created) for answer in answers] == [(job.id, True) for job in jobs]
    return [job.id for job in jobs]


def put_one(store: Store, task: str = "work", *, now: datetime = T0, **fields: Any) -> UUID:
    """Enqueue one new job; return its id."""
    return put(store, a_job(task, **fields), now=now)[0]


def ordered_lanes(store: Store, queues: Sequence[str] | None = None) -> list[Lane]:
    """Return the store's lanes, highest priority first; limited lanes follow their plain lane."""
    lanes = [*store.lanes(queues), *store.gates(queues)]
    return sorted(lanes, key=lambda lane: (-lane.priority, lane.queue, lane.tenant, lane.gate))


def hire(store: Store, *workers: UUID) -> None:
    """Register those workers that are not registered yet, with a lease that outlasts every test: only they may claim."""
    registered = set(ids_of(store.workers()))
    for worker in workers:
        if worker not in registered:
            patiently(store.register, Worker(worker, f"w-{worker}"), lease=_LEASE, now=_BEFORE)


def asks(store: Store, worker: UUID, *request: Any, **more: Any) -> ClaimRequest:
    """Return a claim request of a registered worker."""
    hire(store, worker)
    return ClaimRequest(worker, *request, **more)


def wants(
    store: Store,
    *,
    worker: UUID = WORKER,
    limit: int = 10_000,
    queues: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    start: bool = True,
) -> ClaimRequest:
    """Return a request for everything in the store's current lanes."""
    return asks(store, worker, ordered_lanes(store, queues), limit, tasks, start)


def claim_all(store: Store, *, now: datetime = T0, **request: Any) -> list[Claim]:
    """Claim everything that is pending, or what the request selects (see ``wants``)."""
    return store.claim(wants(store, **request), now=now)


def claim_one(store: Store, id: UUID | None = None, *, now: datetime = T0, **request: Any) -> Claim:
    """Claim exactly one job, which must be the only claimable one."""
    (claim,) = claim_all(store, now=now, **request)
    assert id is None or claim.id == id
    return claim


def finish_all(
    store: Store,
    claims: Sequence[Claim],
    transition: Transition = COMPLETED,
    *,
    now: datetime = T0,
    **how: Any,
) -> None:
    """Finish claims that must all still hold, with the same transition."""
    assert store.finish([Finish(claim, transition, **how) for claim in claims], now=now) == frozenset()


def get_one(store: Store, id: UUID, *, tenant: str = ALL_TENANTS) -> JobRow:
    """Return the one job of this id."""
    (job,) = store.get([id], tenant=tenant)
    return job


def executions_of(store: Store, id: UUID) -> list[Execution]:
    """Return all executions of one job."""
    return store.executions([id], tenant=ALL_TENANTS)


def messages(store: Store, id: UUID) -> list[str]:
    """Return the messages of a job's log."""
    return [entry.message for _, entry in store.logs(id, tenant=ALL_TENANTS)]


Snapshot = tuple[list[JobRow], list[Execution], list[tuple[int, LogEntry]]]


def snapshot(store: Store, id: UUID) -> Snapshot:
    """Return everything visible of one job; two snapshots are equal if nothing was written in between."""
    return (
        store.get([id], tenant=ALL_TENANTS),
        store.executions([id], tenant=ALL_TENANTS),
        store.logs(id, tenant=ALL_TENANTS),
    )


def bring(store: Store, state: JobState, *, now: datetime = T0, **fields: Any) -> JobRow:
    """Create a job and bring it into the given state by ordinary transitions, in a separate queue."""
    fields.setdefault("queue", f"queue-{new_id()}")
    id = put_one(store, now=now, delay=HOUR if state is S.SCHEDULED else None, **fields)
    if state not in (S.SCHEDULED, S.PENDING):
        claim = claim_one(store, id, now=now, queues=[fields["queue"]], start=state is not S.CLAIMED)
        if state in ENDS:
            finish_all(store, [claim], ENDS[state], now=now, result='{"n":1}', error=BOOM)
        elif state in BACKS:
            finish_all(store, [claim], BACKS[state], now=now, result='{"n":1}')
    job = get_one(store, id)
    assert job.state is state
    return job


def held(job: JobRow) -> Claim:
    """Return the claim of a held job, built from its row."""
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
        limits=job.limits,
        detailed=False,
        seq=None,
        state=job.state,
        cancel_reason=job.cancel_reason,
        worker=job.worker,
    )


def retry(job: JobRow, **fields: Any) -> Move:
    """Return an operator's retry of an ended job."""
    return Move(job.id, job.tenant, REOPENABLE, S.PENDING, "retry", restart=True, **fields)


def a_line(claim: Claim, message: str, **fields: Any) -> LogEntry:
    """Return a log line of a held job."""
    return LogEntry(claim.id, claim.token, T0, message, worker=claim.worker, **fields)


def register(
    store: Store, *ids: UUID, now: datetime = T0, lease: timedelta = WORKER_EXPIRY, **fields: Any
) -> list[Worker]:
    """Register new workers."""
    return [store.register(Worker(id, f"w-{id}", **fields), lease=lease, now=now) for id in ids]


def patiently(verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the verb again while the store is busy (law 11); return its answer."""
    for _ in range(1000):
        with suppress(StoreBusy):
            return verb(*args, **kwargs)
    return verb(*args, **kwargs)


def together(works: Sequence[Callable[[], T]]) -> list[T]:
    """Run each function in a separate thread, all starting at once; return their results."""
    gate = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        gate.wait(timeout=60)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [begun.result(timeout=300) for begun in [pool.submit(run, work) for work in works]]


def ids_of(items: Collection[Any]) -> list[UUID]:
    """Return the ids of jobs, claims or documents, in order."""
    return [item.id for item in items]


def due(store: Store, policy: ArchivePolicy, now: datetime) -> list[ArchivedJob]:
    """Return the live jobs that a policy archives by age, as documents."""
    return store.archivable(policy.aged(now), policy=policy.name, tier=policy.tier)
