"""The life cycle of a job in memory, from enqueue to finish.

Every verb computes all its writes before it writes, so a verb that raises has changed nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, repeat
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.deals import DealRequest, dealt
from tidemill.domain.graph import Additions, outcome_of, tied_jobs
from tidemill.domain.job import Claim, Enqueued, Execution, Finish, JobRow, NewJob, ProgressReport
from tidemill.domain.join_counts import Ended
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import count
from tidemill.domain.record import Keep
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.domain.subscriptions import ENQUEUED, finish_events, row_event, wants_any
from tidemill.stores.access import AuditStore
from tidemill.stores.base import LifecycleStore, Promoted, StepResult
from tidemill.stores.deals import DealStore
from tidemill.stores.follow_ups import following_entries
from tidemill.stores.graph_checks import added
from tidemill.stores.memory import limit_counts, unique_keys
from tidemill.stores.memory.cluster import may_claim
from tidemill.stores.memory.core import refuse_repeats
from tidemill.stores.memory.failures import record_failure
from tidemill.stores.memory.flows import check_graph, put_graph
from tidemill.stores.memory.inserts import inserted, prepared
from tidemill.stores.memory.job_events import MemoryJobEvents
from tidemill.stores.memory.join_counts import count_ends
from tidemill.stores.memory.occurrences import TOPIC, note_ends
from tidemill.stores.memory.signals import write_waits
from tidemill.stores.memory.state import State, claim_of, lane_key
from tidemill.stores.steps import StepStore

_ZERO = timedelta(0)


class MemoryLifecycle(MemoryJobEvents, LifecycleStore, DealStore, AuditStore, StepStore):
    """The verbs of producers and workers."""

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        jobs = list(jobs)
        with self._open() as state:
            moment = self._at(now)
            made = prepared(state, jobs, moment)
            answers = inserted(state, jobs, made, moment)
            if self.subscriptions:
                self._append_enqueued(made, moment)
            return answers

    def _append_enqueued(self, made: Iterable[JobRow], now: datetime) -> None:
        if wants_any(self.subscriptions, ENQUEUED):
            self.append_events([row_event(ENQUEUED, job, {}) for job in made], now=now)

    def promote(self, limit: int, *, look: bool = False, now: datetime | None = None) -> Promoted:
        with self._open() as state:
            moment = self._at(now)
            due = [id for run_at, id in islice(state.alarms, max(limit, 0)) if run_at <= moment]
            for id in due:
                state.place(replace(state.jobs[id], state=JobState.PENDING))
            lanes = frozenset(lane_key(state.jobs[id])._replace(gate="") for id in due)
            queues = frozenset(key.queue for key in state.lanes) if look else frozenset()
            return Promoted(len(due), lanes, state.alarms[0][0] if state.alarms else None, queues)

    def lanes(self, queues: Sequence[str] | None = None) -> list[Lane]:
        with self._open() as state:
            keys = [key for key in state.lanes if not key.gate and (queues is None or key.queue in queues)]
            keys.sort(key=lambda key: (-key.priority, key.queue, key.tenant))
            return [Lane(*key[:3], low=next(iter(state.lanes[key]))) for key in keys]

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        return self._claim_within(request, now, {} if request.handoff else None)

    def _claim_within(
        self, request: ClaimRequest, now: datetime | None, back: Mapping[str, int] | None
    ) -> list[Claim]:
        """Claim; with ``back``, of each limit no more than that."""
        with self._open() as state:
            if request.dating is not None:
                request.dating()
            moment = self._at(now)
            claims: list[Claim] = []
            if not may_claim(state, request.worker, moment):
                return claims
            names = {name for lane in request.lanes for name in lane.limits}
            rooms = limit_counts.rooms(state, names, request.rules, moment)
            if back is not None:
                rooms = {name: min(room, back.get(name, 0)) for name, room in rooms.items()}
            taken: Counter[str] = Counter()
            for lane in request.lanes:
                left = (rooms[name] - taken[name] for name in lane.limits)
                room = max(min(lane.quota, request.limit - len(claims), *left), 0)
                # Listed before the first is claimed: the iterated container must not change.
                found = list(islice(_candidates(state, lane, request.tasks), room))
                claims += [_claim(state, id, seq, request, moment, lane.limits) for seq, id in found]
                taken.update(dict.fromkeys(lane.limits, len(found)))
            limit_counts.add(state, +taken, request.rules, moment)
            return claims

    def start(
        self, claims: Sequence[Claim], ages: Sequence[float] | None = None, *, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            lost = set()
            for claim, age in zip(claims, ages or repeat(0.0), strict=False):
                job = state.find_held(claim.id, claim.token, claim.worker)
                if job is None:
                    lost.add(claim.id)
                elif job.state is JobState.CLAIMED:
                    started_at = moment - timedelta(seconds=age)
                    state.rewrite(replace(job, state=JobState.RUNNING, started_at=started_at))
            return frozenset(lost)

    def report(self, reports: Sequence[ProgressReport], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            lost = set()
            for report in reports:
                job = state.find_held(report.id, report.token, report.worker)
                if job is None:
                    lost.add(report.id)
                else:
                    state.rewrite(replace(job, progress=replace(report.progress, at=moment)))
            return frozenset(lost)

    def finish(self, finishes: Sequence[Finish], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            refuse_repeats(finish.claim.id for finish in finishes)
            lost, planned = set(), []
            for finish in finishes:
                job = state.find_held(finish.claim.id, finish.claim.token, finish.claim.worker)
                if job is None:
                    lost.add(finish.claim.id)
                else:
                    planned.append((finish, *_finished(job, finish, moment)))
            accepted = [finish for finish, after, _ in planned if after.state is JobState.COMPLETED]
            following = [job for finish in accepted for job in finish.then]
            made = prepared(state, following, moment)
            additions = _checked(state, planned, moment)
            for finish, after, execution in planned:
                self._write_steps(state, finish, after)
                limit_counts.free(state, after.limits, moment)
                if finish.keep is not Keep.ALL:
                    state.executions.pop(after.id, None)
                state.executions.setdefault(after.id, []).append(execution)
                state.place(after, wakes=finish.transition.delay > _ZERO)
                state.ends.append((after, after.state if after.state in ENDED else None, execution))
                if after.state in ENDED:
                    unique_keys.release(state, after, moment)
                record_failure(state, after)
            if following:
                answers = inserted(state, following, made, moment)
                self.record(following_entries(accepted, answers), now=moment)
                self._append_enqueued(made, moment)
            topics: set[str] = set()
            for one in additions:
                topics |= self._add(state, one, moment)
            ends = _ends(state, planned)
            topics |= count_ends(state, ends, moment)
            rings = bool(ends) and note_ends(state, ends, moment)
            self._append_finished(planned, moment)
            for finish, after, _ in planned:
                if finish.keep is Keep.NOTHING and after.id not in state.tied:
                    state.remove(after.id)
            if topics:
                self._ring(topics)
            if rings:
                self._bell.ring([TOPIC])
            return frozenset(lost)

    def _append_finished(self, planned: Sequence[tuple[Finish, JobRow, Execution]], now: datetime) -> None:
        if self.subscriptions:
            ended = [event for finish, after, _ in planned for event in finish_events(finish, after.state)]
            self.append_events(ended, now=now)

    def _write_steps(self, state: State, finish: Finish, after: JobRow) -> None:
        """Write the records of a finish; and its waits, unless a late request to cancel changed the state."""
        additions = added(finish)
        if additions is not None:
            self.record_steps(additions.records)
            if after.state is finish.transition.state:
                write_waits(state, finish)

    @staticmethod
    def _add(state: State, addition: _Addition, now: datetime) -> set[str]:
        """Write what a finish adds. Returns wake-up topics."""
        id, additions, jobs, made = addition
        inserted(state, jobs, made, now)
        topics = {f"ready:{job.queue}" for job in made if job.state is JobState.PENDING}
        own = {join.id for join in additions.joins if join.id == id}
        return topics | put_graph(state, additions.groups, additions.edges, additions.joins, own, now)

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        with self._open():
            moment = self._at(now)
            lost = self.finish(finishes, now=moment)
            back = count(item.claim.limits for item in finishes if item.claim.id not in lost)
            return StepResult(lost, self._claim_within(request, moment, back if request.handoff else None))

    def deal(
        self, finishes: Sequence[Finish], request: DealRequest, *, now: datetime | None = None
    ) -> StepResult:
        with self._open() as state:
            moment = self._at(now)
            lost = self.finish(finishes, now=moment)
            living = [ask.worker for ask in request.asks if may_claim(state, ask.worker, moment)]
            able = request.among(living)
            if not able.asks:
                return StepResult(lost, [])
            claims = dealt(self._claim_within(able.claim(), moment, None), able.asks)
            for claim in claims:
                state.place(replace(state.jobs[claim.id], worker=claim.worker))
            return StepResult(lost, claims)


class _Addition(NamedTuple):
    """The additions of one finish, with the rows of their jobs."""

    id: UUID
    additions: Additions
    jobs: list[NewJob]
    made: list[JobRow]


def _checked(
    state: State, planned: Iterable[tuple[Finish, JobRow, Execution]], now: datetime
) -> list[_Addition]:
    """What accepted finishes add; raises before anything is written."""
    checked: list[_Addition] = []
    for finish, job, _ in planned:
        additions = added(finish)
        if additions is None or job.state is not finish.transition.state:
            continue
        earlier = [edge for one in checked for edge in one.additions.edges]
        jobs = tied_jobs(additions.jobs, additions.edges)
        made = check_graph(state, job.tenant, additions.groups, jobs, additions.edges, now, earlier)
        checked.append(_Addition(job.id, additions, jobs, made))
    return checked


def _ends(state: State, planned: Iterable[tuple[Finish, JobRow, Execution]]) -> list[Ended]:
    return [
        Ended(after.id, outcome_of(after.state))
        for _, after, _ in planned
        if after.state in ENDED and after.id in state.tied
    ]


def _candidates(state: State, lane: Lane, tasks: Sequence[str] | None) -> Iterator[tuple[int, UUID]]:
    wanted = None if tasks is None else frozenset(tasks)
    for seq, id in state.lanes.get(lane.key, OrderedDict()).items():
        if seq >= lane.low and (wanted is None or state.jobs[id].task in wanted):
            yield seq, id


def _claim(
    state: State, id: UUID, seq: int, request: ClaimRequest, now: datetime, limits: tuple[str, ...]
) -> Claim:
    job = state.jobs[id]
    rule = state.rules.get(id)
    key = job.unique_key
    if rule is not None and rule.until_claimed:
        unique_keys.release(state, job, now)
        del state.rules[id]
        key = None
    start = request.start and not job.crashes
    job = replace(
        job,
        state=JobState.RUNNING if start else JobState.CLAIMED,
        attempt=job.attempt + 1,
        token=job.token + 1,
        worker=request.worker,
        claimed_at=now,
        started_at=now if start else None,
        reason=None,
        unique_key=key,
        limits=limits or job.limits,
    )
    state.place(job)
    return claim_of(job, seq)


def _finished(job: JobRow, finish: Finish, now: datetime) -> tuple[JobRow, Execution]:
    """The job and its execution after a transition."""
    change = finish.transition
    if job.cancel_reason is not None and change.on_cancel is not None:
        change = replace(change, state=change.on_cancel, reason=job.cancel_reason)
    started_at = job.started_at
    if finish.started_ago is not None:
        started_at = now - timedelta(seconds=finish.started_ago)
    finished_at = now - timedelta(seconds=finish.ended_ago)
    execution = Execution(
        job_id=job.id,
        number=job.token,
        attempt=job.attempt,
        state=change.execution,
        worker=job.worker,
        claimed_at=job.claimed_at,
        started_at=started_at,
        finished_at=finished_at,
        error=finish.error,
        reason=change.reason,
    )
    crashes = job.crashes + 1 if change.crashed else job.crashes
    attempt = job.attempt - 1 if change.refund else job.attempt
    if change.execution is ExecutionState.SUSPENDED and change.state not in ENDED:
        attempt = crashes = 0
    if change.state in ENDED:
        after = replace(
            job,
            state=change.state,
            crashes=crashes,
            started_at=started_at,
            finished_at=finished_at,
            result=finish.result,
            error=finish.error,
            reason=change.reason,
        )
    else:
        after = replace(
            job,
            state=change.state,
            attempt=attempt,
            crashes=crashes,
            run_at=now + change.delay,
            worker=None,
            claimed_at=None,
            started_at=None,
            result=finish.result if change.state is JobState.REVIEW_NEEDED else None,
            error=None,
            reason=change.reason,
            progress=None,
            cancel_reason=None,
        )
    return after, execution
