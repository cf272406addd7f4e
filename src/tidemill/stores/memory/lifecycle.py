"""The life cycle of a job in memory, from enqueue to finish.

Every verb computes all its writes before it writes, so a verb that raises has changed nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from tidemill.domain.job import Claim, Enqueued, Execution, Finish, JobRow, NewJob, ProgressReport
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import count
from tidemill.domain.record import Keep
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import JobExists
from tidemill.stores.access import AuditStore
from tidemill.stores.base import LifecycleStore, Promoted, StepResult
from tidemill.stores.follow_ups import following_entries
from tidemill.stores.memory import limit_counts, unique_keys
from tidemill.stores.memory.cluster import may_claim
from tidemill.stores.memory.copies import kept_details
from tidemill.stores.memory.core import MemoryPart, refuse_repeats
from tidemill.stores.memory.state import State, claim_of, lane_key

_ZERO = timedelta(0)


class MemoryLifecycle(MemoryPart, LifecycleStore, AuditStore):
    """The verbs of producers and workers."""

    def enqueue(self, jobs: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
        jobs = list(jobs)
        with self._open() as state:
            moment = self._at(now)
            return _inserted(state, jobs, _all_made(state, jobs, moment), moment)

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

    def start(self, claims: Sequence[Claim], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            lost = set()
            for claim in claims:
                job = state.find_held(claim.id, claim.token, claim.worker)
                if job is None:
                    lost.add(claim.id)
                elif job.state is JobState.CLAIMED:
                    state.rewrite(replace(job, state=JobState.RUNNING, started_at=moment))
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
            made = _all_made(state, following, moment)
            for finish, after, execution in planned:
                limit_counts.free(state, after.limits, moment)
                if finish.keep is not Keep.ALL:
                    state.executions.pop(after.id, None)
                state.executions.setdefault(after.id, []).append(execution)
                state.place(after, wakes=finish.transition.delay > _ZERO)
                if after.state in ENDED:
                    unique_keys.release(state, after, moment)
                if finish.keep is Keep.NOTHING:
                    state.remove(after.id)
            if following:
                answers = _inserted(state, following, made, moment)
                self.record(following_entries(accepted, answers), now=moment)
            return frozenset(lost)

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        with self._open():
            moment = self._at(now)
            lost = self.finish(finishes, now=moment)
            back = count(item.claim.limits for item in finishes if item.claim.id not in lost)
            return StepResult(lost, self._claim_within(request, moment, back if request.handoff else None))


def _all_made(state: State, jobs: Sequence[NewJob], moment: datetime) -> list[JobRow]:
    """The rows to insert; raises before anything is written."""
    _refuse_known(state, jobs)
    return [_made(new, moment) for new in jobs]


def _inserted(
    state: State, jobs: Sequence[NewJob], made: Sequence[JobRow], moment: datetime
) -> list[Enqueued]:
    answers = []
    for new, job in zip(jobs, made, strict=True):
        rule = new.unique
        holder = None if rule is None else unique_keys.holder(state, job.tenant, rule.key, moment)
        if holder is None:
            state.place(job)
            if rule is not None:
                unique_keys.take(state, job, rule)
        answers.append(Enqueued(job.id, True) if holder is None else Enqueued(holder, False))
    return answers


def _refuse_known(state: State, jobs: Sequence[NewJob]) -> None:
    seen: set[UUID] = set()
    stored: list[UUID] = []
    for new in jobs:
        if new.id in state.jobs or new.id in seen:
            stored.append(new.id)
        seen.add(new.id)
    if stored:
        raise JobExists(f"job {stored[0]} is already stored; nothing was enqueued", ids=tuple(stored))


def _made(new: NewJob, now: datetime) -> JobRow:
    run_at = now
    if new.waiting is not None:
        pass  # it waits for an event, not for a time
    elif new.run_at is not None:
        run_at = new.run_at
    elif new.delay is not None:
        run_at = now + max(new.delay, _ZERO)
    job = JobRow(
        id=new.id,
        task=new.task,
        state=_first_state(new, run_at, now),
        tenant=new.tenant,
        queue=new.queue,
        priority=new.priority,
        args=new.args,
        attempt=0,
        max_attempts=new.max_attempts,
        crashes=0,
        token=0,
        run_at=run_at,
        created_at=now,
        expires_at=new.expires_at,
        timeout=new.timeout,
        reason=new.waiting,
        unique_key=None if new.unique is None else new.unique.key,
        limits=tuple(new.limits),
        details=kept_details(new.details),
    )
    if new.unique is not None:
        # Called for its check: a window that ends beyond the calendar is refused before anything is written.
        unique_keys.hold_of(job, new.unique)
    return job


def _first_state(new: NewJob, run_at: datetime, now: datetime) -> JobState:
    if new.waiting is not None:
        return JobState.WAITING
    return JobState.SCHEDULED if run_at > now else JobState.PENDING


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
            attempt=job.attempt - 1 if change.refund else job.attempt,
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
