"""The life cycle of a job in the SQL store, from enqueue to finish."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.domain.deals import DealRequest, dealt
from tidemill.domain.decide import COMPLETED
from tidemill.domain.failures import Failure, failure_of
from tidemill.domain.graph import Additions, outcome_of
from tidemill.domain.job import Claim, Enqueued, ErrorInfo, Finish, NewJob, ProgressReport, Transition
from tidemill.domain.join_counts import Ended
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
from tidemill.domain.limits import count, gate_of
from tidemill.domain.record import Keep
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.stats import FAILURES
from tidemill.domain.subscriptions import ENQUEUED, TOPIC, enqueued_event, wants_any, watched_finishes
from tidemill.errors import JobExists, StoreBusy
from tidemill.stores.access import AuditStore
from tidemill.stores.base import LifecycleStore, Promoted, StepResult
from tidemill.stores.deals import DealStore
from tidemill.stores.follow_ups import completing, following_entries
from tidemill.stores.graph_checks import added as added_by
from tidemill.stores.graph_checks import refuse_bad_graph
from tidemill.stores.sql.driver import QueryCall, Row
from tidemill.stores.sql.failures import failure_columns, failure_flags
from tidemill.stores.sql.graph_writes import GraphWrites
from tidemill.stores.sql.job_events import SqlJobEvents
from tidemill.stores.sql.job_rows import dump_details, dump_error, dump_progress, load_limits
from tidemill.stores.sql.join_counts import RELEASED
from tidemill.stores.sql.limit_counts import LimitCounts
from tidemill.stores.sql.occurrences import TOPIC as OCCURRENCES
from tidemill.stores.sql.occurrences import note_ends
from tidemill.stores.sql.steps import write_records
from tidemill.stores.sql.waits import write_waits

_LOT = 1_000  # jobs of one finish that one statement inserts
_ALL = Keep.ALL
_NO_DELAY = timedelta(0)
_PLAIN = ("plain",)  # the flag of a finish that leaves tied jobs alone
_ROUNDS = 20  # maximum tries of a job whose key is released between two reads
_CRASHES, _LIMITS, _SEQ = 7, 15, 17  # columns of a claimed row
# Columns of a finish and the attributes of its transition.
_END_COLUMNS = {"to_state": "state", "execution": "execution", "reason": "reason", "crashed": "crashed"}
_RELEASE_COLUMNS = {"delay": "delay", "refund": "refund", "on_cancel": "on_cancel"}
_claim = partial(tuple.__new__, Claim)  # Claim._make without its length check


class SqlLifecycle(SqlJobEvents, LimitCounts, GraphWrites, LifecycleStore, DealStore, AuditStore):
    """enqueue → promote → claim → start → report → finish."""

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        if self.subscriptions and wants_any(self.subscriptions, ENQUEUED):
            return self._enqueue_watched(jobs, now)
        jobs = jobs if isinstance(jobs, Sequence) else list(jobs)
        if len(jobs) > 1 and any(job.unique is not None for job in jobs):
            with self._db.transaction():  # a held key needs a second round, within the same transaction
                return self._enqueue(jobs, now)
        return self._enqueue(jobs, now)

    def _enqueue_watched(self, jobs: Iterable[NewJob], now: datetime | None) -> list[Enqueued]:
        """Insert jobs together with their events."""
        jobs = jobs if isinstance(jobs, Sequence) else list(jobs)
        with self._db.transaction():
            answers = self._enqueue(jobs, now)
            made = [job for job, answer in zip(jobs, answers, strict=True) if answer.created]
            at = self._time(now) if any(job.run_at is not None for job in made) else now
            if self.append_events([enqueued_event(job, first_state(job, at)) for job in made], now=now):
                self.notify([TOPIC])
            return answers

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

    def start(
        self, claims: Sequence[Claim], ages: Sequence[float] | None = None, *, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not claims:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [claim.id for claim in claims],
            "token": [claim.token for claim in claims],
            "worker": [claim.worker for claim in claims],
            "started_ago": list(ages) if ages is not None else [0.0] * len(claims),
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
        if not self.subscriptions or not (watched := watched_finishes(self.subscriptions, finishes)):
            return self._finish_any(finishes, now)
        with self._db.transaction():
            lost = self._finish_any(finishes, now)
            self._append_finishes(watched, lost, now)
        self.notify([TOPIC])
        return lost

    def _finish_any(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        batch = FinishColumns.of(finishes)
        if any(batch.tied) or any(batch.additions):
            return self._finish_tied(finishes, now)
        if any(batch.following):
            with self._db.transaction():
                lost = self._finish(finishes, now)
                self._follow(finishes, lost, now)
        else:
            lost = self._finish(finishes, now)
        # A plain finish leaves tied jobs alone; what else it leaves is lost.
        return self._finish_again(finishes, lost, now) if lost else lost

    def _finish_again(
        self, finishes: Sequence[Finish], lost: frozenset[UUID], now: datetime | None
    ) -> frozenset[UUID]:
        """Finish the tied jobs among those that a plain finish left. Returns the ids that are really lost."""
        with self._db.transaction():
            tied = self._tied_of(lost)
            again = [item for item in finishes if item.claim.id in tied]
            return lost - tied | self._finish_tied(again, now) if again else lost

    def _finish(self, finishes: Sequence[Finish], now: datetime | None, *flags: str) -> frozenset[UUID]:
        if [item for item in finishes if item.claim.limits is not None]:
            return self._finish_counted(finishes, now, *(flags or _PLAIN))
        return self._finish_plain(finishes, now, *(flags or _PLAIN))

    def _finish_tied(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        """Apply the finishes, write what they add, and count the ends, in one transaction."""
        with self._db.transaction():
            # Jobs that others need are tied first, in the same order as everywhere: jobs before counter rows.
            added = [additions for item in finishes if (additions := added_by(item)) is not None]
            for item in finishes:
                if (additions := added_by(item)) is not None and additions.edges:
                    self._lock_needs(item.claim, additions)
            locked = self._db.run("lock_ties", {"ids": sorted(item.claim.id for item in finishes)})
            tied = {id for id, tied, _ in locked if tied}
            defined = {id for id, _, defined in locked if defined}
            # Before the finish, because only the holder of a job writes its records.
            write_records(self._db, [record for additions in added for record in additions.records], now)
            kept = [
                item._replace(keep=Keep.LAST) if item.keep is Keep.NOTHING and item.claim.id in tied else item
                for item in finishes
            ]
            lost = self._finish(kept, now, "tied")
            accepted = [item for item in kept if item.claim.id not in lost]
            states = (
                self._db.run("job_states", {"ids": [item.claim.id for item in accepted]}) if accepted else []
            )
            after = {id: JobState(state) for id, state, _ in states}
            # A late request to cancel changes the state, and such a job adds nothing.
            adding = [item for item in accepted if after.get(item.claim.id) is item.transition.state]
            write_waits(self._db, [item for item in adding if added_by(item) is not None])
            for item in adding:
                if (additions := added_by(item)) is not None:
                    self._add(item.claim, additions, now)
            ends = [
                Ended(id, outcome_of(JobState(state)))
                for id, state, tied in states
                if tied and state in ENDED
            ]
            if ends:
                self._count_ends(ends, now)
                self._note_ends([end for end in ends if end.id in defined], now)
            self._follow(kept, lost, now)
            return lost

    def _tied_of(self, ids: Collection[UUID]) -> set[UUID]:
        """Lock held jobs, and the counter rows of their ends. Returns those whose end is counted."""
        return {id for id, tied, _ in self._db.run("lock_ties", {"ids": sorted(ids)}) if tied}

    def _note_ends(self, ends: Sequence[Ended], now: datetime | None) -> None:
        """Write the ends of jobs of definitions for the schedules that run after these."""
        if ends and note_ends(self._db, ends, now):
            self.notify([OCCURRENCES])

    def _lock_needs(self, claim: Claim, additions: Additions) -> None:
        made = {job.id for job in additions.jobs} | {group.id for group in additions.groups}
        self._tie({edge.needs_id for edge in additions.edges} - made, claim.tenant)

    def _add(self, claim: Claim, additions: Additions, now: datetime | None) -> None:
        """Write the jobs, edges, joins and groups that a finish adds."""
        refuse_bad_graph(claim.tenant, additions.groups, additions.jobs, additions.edges)
        own = {join.id for join in additions.joins if join.id == claim.id}
        self._write_graph(additions, claim.tenant, now, replaced=own)
        self.notify(sorted({f"ready:{job.queue}" for job in additions.jobs if job.waiting is None}))

    def _follow(self, finishes: Sequence[Finish], lost: frozenset[UUID], now: datetime | None) -> None:
        """Enqueue the follow-up jobs of the finishes that completed their jobs."""
        accepted = completing(finishes, lost)
        following = [job for item in accepted for job in item.then]
        for at in range(0, len(following), _LOT):
            lot = following[at : at + _LOT]
            self.record(following_entries(accepted, self.enqueue(lot, now=now)), now=now)

    def _finish_plain(self, finishes: Sequence[Finish], now: datetime | None, *flags: str) -> frozenset[UUID]:
        return _ids(self._db.run(*finish_call(finishes, now, *flags, tell_alike=True)))

    def _finish_counted(
        self, finishes: Sequence[Finish], now: datetime | None, *flags: str
    ) -> frozenset[UUID]:
        with self._db.transaction():
            lost = self._finish_plain(finishes, now, *flags)
            self._give_back(count(item.claim.limits for item in finishes if item.claim.id not in lost), now)
            return lost

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        def claim(lost: frozenset[UUID]) -> list[Claim]:
            if not request.handoff or not wants(request):
                return self.claim(request, now=now)
            back = count(item.claim.limits for item in finishes if item.claim.id not in lost)
            return self._claim_counted(request, now, back)

        return self._finish_and_claim(finishes, claim, now)

    def deal(
        self, finishes: Sequence[Finish], request: DealRequest, *, now: datetime | None = None
    ) -> StepResult:
        return self._finish_and_claim(finishes, lambda _lost: self._deal(request, now), now)

    def _deal(self, request: DealRequest, now: datetime | None) -> list[Claim]:
        """Claim for the first of several workers, and pass the jobs on to the others, in the open transaction."""
        asked = {ask.worker for ask in request.asks}
        able = request.among(_ids(self._db.run("living_workers", {"now": now, "ids": sorted(asked)})))
        if not able.asks:
            return []
        claims = dealt(self.claim(able.claim(), now=now), able.asks)
        others = [claim for claim in claims if claim.worker != able.asks[0].worker]
        if others:
            columns: dict[str, list[Any]] = {
                "id": [claim.id for claim in others],
                "worker": [claim.worker for claim in others],
            }
            self._db.run("reassign", None, columns)
        return claims

    def _finish_and_claim(
        self,
        finishes: Sequence[Finish],
        claim_after: Callable[[frozenset[UUID]], list[Claim]],
        now: datetime | None,
    ) -> StepResult:
        """Finish and claim in one transaction. Waiting jobs that this releases and claims at once need no wake-up."""
        with self._db.transaction():
            released: dict[UUID, str] = {}
            outer = RELEASED.set(released)
            try:
                lost = self.finish(finishes, now=now)
            finally:
                RELEASED.reset(outer)
            claims = claim_after(lost)
            for claim in claims if released else ():
                released.pop(claim.id, None)
            if released:
                self.notify(sorted({f"ready:{queue}" for queue in released.values()}))
            return StepResult(lost, claims)


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


class FinishColumns(NamedTuple):
    """A batch of finishes by column. Reading attributes of each item would cost a job several times as much."""

    claims: tuple[Claim, ...]
    transitions: tuple[Transition, ...]
    results: tuple[str | None, ...]
    errors: tuple[ErrorInfo | None, ...]
    started_ago: tuple[float | None, ...]
    ended_ago: tuple[float, ...]
    following: tuple[tuple[NewJob, ...], ...]
    audits: tuple[tuple[tuple[UUID, AuditEntry], ...], ...]
    keep: tuple[Keep, ...]
    additions: tuple[Additions | None, ...]
    tied: tuple[bool, ...]

    @classmethod
    def of(cls, finishes: Sequence[Finish]) -> FinishColumns:
        return cls(*zip(*finishes, strict=True))

    @property
    def others(self) -> list[Transition]:
        """The transitions other than a plain completion, which nearly all jobs have."""
        # ``count`` compares identities first.
        if self.transitions.count(COMPLETED) == len(self.transitions):
            return []
        return [transition for transition in self.transitions if transition is not COMPLETED]

    @property
    def failures(self) -> list[Failure | None]:
        """The failures among these ends; None for every other job."""
        rows = zip(self.claims, self.transitions, self.errors, strict=True)
        return [
            failure_of(claim.task, change.state, error, change.reason) if change.state in FAILURES else None
            for claim, change, error in rows
        ]


def end_columns(batch: FinishColumns) -> dict[str, list[Any]]:
    """The columns of finished jobs."""
    columns = done_columns(batch) | {
        "error": [None if error is None else dump_error(error) for error in batch.errors],
        **_transition_columns(batch.transitions, _END_COLUMNS),
    }
    return columns | failure_columns(batch.failures) if batch.others else columns


def done_columns(batch: FinishColumns) -> dict[str, list[Any]]:
    """The columns in which successful jobs differ."""
    return {
        "id": [claim.id for claim in batch.claims],
        "token": [claim.token for claim in batch.claims],
        "result": list(batch.results),
        "started_ago": list(batch.started_ago),
        "ended_ago": list(batch.ended_ago),
    }


def finish_call(
    finishes: Sequence[Finish], now: datetime | None, *flags: str, tell_alike: bool = False
) -> QueryCall:
    """The call that applies these finishes. Lines for jobs that do not end, and for jobs that keep less than
    everything, are present if there is one.

    With ``tell_alike``, it says whether the jobs are alike: SQLite has a shorter way of counting those.
    """
    batch = FinishColumns.of(finishes)
    columns = end_columns(batch) | _transition_columns(batch.transitions, _RELEASE_COLUMNS)
    columns["worker"] = [claim.worker for claim in batch.claims]
    if not all(transition.state in ENDED for transition in batch.others):
        flags = ("releases", *flags)
    if not are_full(batch.keep):
        columns["keep"] = list(batch.keep)
        flags = ("light", *flags)
    flags = failure_flags(columns, *(flag for flag in flags if flag != "tied"))
    if tell_alike:
        flags = ("alike" if _are_alike(batch) else "mixed", *flags)
    return QueryCall("finish", {"now": now}, columns, flags)


def _are_alike(batch: FinishColumns) -> bool:
    """Whether all these jobs have completed, are kept whole, and are of one task, queue, tenant and worker."""
    if batch.others or not are_full(batch.keep):
        return False
    # Slices, because attributes of each claim would cost several times as much.
    kinds = [claim[1:4] for claim in batch.claims]
    workers = [claim.worker for claim in batch.claims]
    return kinds.count(kinds[0]) == workers.count(workers[0]) == len(kinds)


def _transition_columns(transitions: Sequence[Transition], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Columns with these attributes of the transitions. Most batches have one transition, which is read once."""
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
        "tied": [job.tied for job in jobs],
    }


def first_state(job: NewJob, now: datetime | None) -> JobState:
    """The state of a new job, for its event. ``now`` is needed for a job with ``run_at``."""
    if job.waiting is not None:
        return JobState.WAITING
    later = job.delay is not None and job.delay > _NO_DELAY
    if job.run_at is not None and now is not None:
        later = job.run_at > now
    return JobState.SCHEDULED if later else JobState.PENDING


def _ids(rows: Sequence[Row]) -> frozenset[UUID]:
    return frozenset([row[0] for row in rows])
