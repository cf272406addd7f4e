"""The life cycle of a job in the SQL store, from enqueue to finish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Enqueued, Finish, NewJob, ProgressReport
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
from tidemill.domain.limits import count, gate_of
from tidemill.domain.record import Keep
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import JobExists, StoreBusy
from tidemill.stores.access import AuditStore
from tidemill.stores.base import LifecycleStore, Promoted, StepResult
from tidemill.stores.follow_ups import completing, following_entries
from tidemill.stores.sql.driver import QueryCall, Row
from tidemill.stores.sql.job_rows import dump_details, dump_error, dump_progress, load_limits
from tidemill.stores.sql.limit_counts import LimitCounts

_LOT = 1_000  # jobs of one finish that one statement inserts
_ALL = Keep.ALL
_ROUNDS = 20  # maximum tries of a job whose key is released between two reads
_CRASHES, _LIMITS, _SEQ = 7, 15, 17  # columns of a claimed row
# Columns of a finish and the attributes of its transition.
_END_COLUMNS = {"to_state": "state", "execution": "execution", "reason": "reason", "crashed": "crashed"}
_RELEASE_COLUMNS = {"delay": "delay", "refund": "refund", "on_cancel": "on_cancel"}
_claim = partial(tuple.__new__, Claim)  # Claim._make without its length check


class SqlLifecycle(LimitCounts, LifecycleStore, AuditStore):
    """enqueue → promote → claim → start → report → finish."""

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        jobs = jobs if isinstance(jobs, Sequence) else list(jobs)
        if len(jobs) > 1 and any(job.unique is not None for job in jobs):
            with self._db.transaction():  # a held key needs a second round, within the same transaction
                return self._enqueue(jobs, now)
        return self._enqueue(jobs, now)

    def _enqueue(self, jobs: Sequence[NewJob], now: datetime | None) -> list[Enqueued]:
        outcome: dict[UUID, Enqueued] = {}
        left: Sequence[NewJob] = jobs
        for _ in range(_ROUNDS):
            if not left:
                return [outcome[job.id] for job in jobs]
            rows = self._db.run("enqueue", {"now": now}, *_enqueued(left))
            taken = [row[0] for row in rows if row[1]]
            if taken:
                raise JobExists(
                    f"job {taken[0]} is already stored; nothing was enqueued", ids=frozenset(taken)
                )
            if not rows:
                outcome.update((job.id, Enqueued(job.id, True)) for job in left)
                return [outcome[job.id] for job in jobs]
            left_out = {row[0] for row in rows}
            outcome.update((job.id, Enqueued(job.id, True)) for job in left if job.id not in left_out)
            left = self._held(outcome, [job for job in left if job.id in left_out], now)
        raise StoreBusy("a unique key changed its holder repeatedly; nothing was enqueued, try again")

    def _held(
        self, outcome: dict[UUID, Enqueued], jobs: Sequence[NewJob], now: datetime | None
    ) -> list[NewJob]:
        """Record the holders of these jobs' keys. Returns the jobs whose key is no longer held, to be tried again."""
        keys = list({(job.tenant, job.unique.key) for job in jobs if job.unique is not None})
        columns: dict[str, list[Any]] = {
            "tenant": [tenant for tenant, _ in keys],
            "key": [key for _, key in keys],
        }
        holders = {
            (tenant, key): holder
            for tenant, key, holder in self._db.run("unique_holders", {"now": now}, columns)
        }
        again: list[NewJob] = []
        for job in jobs:
            holder = holders.get((job.tenant, job.unique.key)) if job.unique is not None else None
            if holder is None:
                again.append(job)
            else:
                outcome[job.id] = Enqueued(holder, False)
        return again

    def promote(self, limit: int, *, look: bool = False, now: datetime | None = None) -> Promoted:
        promote = QueryCall("promote", {"now": now, "limit": limit})
        queues: list[Row] = []
        if look:
            rows, queues = self._db.run_together([promote, QueryCall("queues", {})])
        else:
            rows = self._db.run(*promote)
        lanes = frozenset(LaneKey(*row[:3]) for row in rows if row[0] is not None)
        return Promoted(
            sum(row[3] for row in rows), lanes, rows[0][4], frozenset(queue for (queue,) in queues)
        )

    def lanes(self, queues: Sequence[str] | None = None) -> list[Lane]:
        if queues is not None and not queues:
            return []
        return [Lane(*row) for row in self._db.run("lanes", {"queues": queues})]

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        if not wants(request):
            return []
        if any(lane.limits for lane in request.lanes):
            return self._claim_counted(request, now)
        return self._claim_plain(request, now)

    def _claim_plain(self, request: ClaimRequest, now: datetime | None) -> list[Claim]:
        rows = self._db.run("claim", claim_takes(request, now), gated_columns(request.lanes))
        return claims_of(rows, request)

    def start(self, claims: Sequence[Claim], *, now: datetime | None = None) -> frozenset[UUID]:
        if not claims:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [claim.id for claim in claims],
            "token": [claim.token for claim in claims],
            "worker": [claim.worker for claim in claims],
        }
        return _ids(self._db.run("start", {"now": now}, columns))

    def report(self, reports: Sequence[ProgressReport], *, now: datetime | None = None) -> frozenset[UUID]:
        if not reports:
            return frozenset()
        at = self._time(now)
        columns: dict[str, list[Any]] = {
            "id": [report.id for report in reports],
            "token": [report.token for report in reports],
            "worker": [report.worker for report in reports],
            "progress": [dump_progress(report.progress, at) for report in reports],
        }
        return _ids(self._db.run("report", None, columns))

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        if not finishes:
            return frozenset()
        # A list, because a generator costs each job more than the test itself.
        if [item for item in finishes if item.then]:
            return self._finish_and_enqueue(finishes, now)
        return self._finish(finishes, now)

    def _finish(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        if [item for item in finishes if item.claim.limits is not None]:
            return self._finish_counted(finishes, now)
        return self._finish_plain(finishes, now)

    def _finish_and_enqueue(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        """Apply the finishes, and enqueue the follow-up jobs of the completed ones, in one transaction."""
        with self._db.transaction():
            lost = self._finish(finishes, now)
            accepted = completing(finishes, lost)
            following = [job for item in accepted for job in item.then]
            for at in range(0, len(following), _LOT):
                lot = following[at : at + _LOT]
                self.record(following_entries(accepted, self.enqueue(lot, now=now)), now=now)
            return lost

    def _finish_plain(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        return _ids(self._db.run(*finish_call(finishes, now)))

    def _finish_counted(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        with self._db.transaction():
            lost = self._finish_plain(finishes, now)
            self._give_back(count(item.claim.limits for item in finishes if item.claim.id not in lost), now)
            return lost

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        with self._db.transaction():
            lost = self.finish(finishes, now=now)
            if not request.handoff or not wants(request):
                return StepResult(lost, self.claim(request, now=now))
            back = count(item.claim.limits for item in finishes if item.claim.id not in lost)
            return StepResult(lost, self._claim_counted(request, now, back))


def claims_of(rows: Sequence[Row], request: ClaimRequest) -> list[Claim]:
    """Claimed rows as claims, in the order of the lanes and by number within each."""
    if len(request.lanes) > 1:
        order = {
            (lane.queue, lane.tenant, lane.priority, lane.gate): place
            for place, lane in enumerate(request.lanes)
        }
        rows = sorted(rows, key=lambda row: (order[row[2], row[3], row[4], row[_LIMITS] or ""], row[_SEQ]))
    else:
        rows = sorted(rows, key=lambda row: row[_SEQ] or 0)
    tail = (JobState.RUNNING if request.start else JobState.CLAIMED, None, request.worker)
    claims: list[Claim] = [
        _claim(row + tail)
        if row[_LIMITS] is None
        else _claim((*row[:_LIMITS], load_limits(row[_LIMITS]), *row[_LIMITS + 1 :], *tail))
        for row in rows
    ]
    if request.start and any(row[_CRASHES] for row in rows):
        claims = [claim._replace(state=JobState.CLAIMED) if claim.crashes else claim for claim in claims]
    return claims


def end_columns(finishes: Sequence[Finish]) -> dict[str, list[Any]]:
    """The columns of finished jobs."""
    return done_columns(finishes) | {
        "error": [None if item.error is None else dump_error(item.error) for item in finishes],
        **_transition_columns(finishes, _END_COLUMNS),
    }


def done_columns(finishes: Sequence[Finish]) -> dict[str, list[Any]]:
    """The columns in which successful jobs differ."""
    # ``zip`` reads the tuples at once; attribute by attribute, they cost each job several times as much.
    claims, _, results, _, started_ago, ended_ago, _, _, _ = zip(*finishes, strict=True)
    return {
        "id": [claim.id for claim in claims],
        "token": [claim.token for claim in claims],
        "result": list(results),
        "started_ago": list(started_ago),
        "ended_ago": list(ended_ago),
    }


def finish_call(finishes: Sequence[Finish], now: datetime | None, *flags: str) -> QueryCall:
    """The call that applies these finishes. Lines for jobs that do not end, and for jobs that keep less than
    everything, are present if there is one.
    """
    columns = end_columns(finishes) | _transition_columns(finishes, _RELEASE_COLUMNS)
    columns["worker"] = [item.claim.worker for item in finishes]
    # Nearly all jobs complete, and for those the test needs no hash of an enumeration's member.
    others = [item.transition for item in finishes if item.transition is not COMPLETED]
    if not all(transition.state in ENDED for transition in others):
        flags = ("releases", *flags)
    keep = [item.keep for item in finishes]
    if not are_full(keep):
        columns["keep"] = keep
        flags = ("light", *flags)
    return QueryCall("finish", {"now": now}, columns, flags)


def _transition_columns(finishes: Sequence[Finish], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Columns with these attributes of the transitions. Most batches have one transition, which is read once."""
    transitions = [item.transition for item in finishes]
    if transitions.count(transitions[0]) == len(transitions):
        first, jobs = transitions[0], len(transitions)
        return {column: [getattr(first, name)] * jobs for column, name in names.items()}
    return {column: [getattr(change, name) for change in transitions] for column, name in names.items()}


def are_full(keep: Sequence[Keep]) -> bool:
    """Whether all rows of all these jobs are kept, as nearly always."""
    # ``count`` compares identities first, so it is cheaper than a loop.
    return keep.count(_ALL) == len(keep)


def wants(request: ClaimRequest) -> bool:
    """Whether the request can return anything at all."""
    return bool(request.lanes) and request.limit > 0 and (request.tasks is None or bool(request.tasks))


def claim_takes(request: ClaimRequest, now: datetime | None) -> dict[str, Any]:
    """The single parameters of a claim."""
    return {
        "now": now,
        "worker": request.worker,
        "state": JobState.RUNNING if request.start else JobState.CLAIMED,
        "limit": request.limit,
        "tasks": request.tasks,
    }


def lane_columns(lanes: Sequence[Lane]) -> dict[str, list[Any]]:
    """The lanes of a claim, as columns."""
    return {
        "lane_queue": [lane.queue for lane in lanes],
        "lane_tenant": [lane.tenant for lane in lanes],
        "lane_priority": [lane.priority for lane in lanes],
        "lane_low": [lane.low for lane in lanes],
        "lane_quota": [lane.quota for lane in lanes],
    }


def gated_columns(lanes: Sequence[Lane]) -> dict[str, list[Any]]:
    """The lanes of a claim with their gates, as columns."""
    return lane_columns(lanes) | {"lane_gate": [lane.gate for lane in lanes]}


def _enqueued(jobs: Sequence[NewJob]) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """A batch as columns; and, if it contains waiting jobs, the flag for the lines that they need."""
    columns = _enqueue_columns(jobs)
    reasons = [job.waiting for job in jobs]
    if reasons.count(None) == len(reasons):
        return columns, ()
    columns["waiting"] = reasons
    return columns, ("parks",)


def _enqueue_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    return {
        "id": [job.id for job in jobs],
        "tenant": [job.tenant for job in jobs],
        "queue": [job.queue for job in jobs],
        "task": [job.task for job in jobs],
        "priority": [job.priority for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "timeout": [job.timeout for job in jobs],
        "run_at": [job.run_at for job in jobs],
        "delay": [job.delay for job in jobs],
        "expires_at": [job.expires_at for job in jobs],
        "unique_key": [job.unique.key if job.unique is not None else None for job in jobs],
        "until_claimed": [job.unique is not None and job.unique.until_claimed for job in jobs],
        "hold": [job.unique.window if job.unique is not None else None for job in jobs],
        "limits": [gate_of(job.limits) or None for job in jobs],
        "details": [dump_details(job.details) for job in jobs],
        "args": [job.args for job in jobs],
    }


def _ids(rows: Sequence[Row]) -> frozenset[UUID]:
    return frozenset([row[0] for row in rows])
