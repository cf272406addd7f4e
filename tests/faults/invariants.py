"""The verdict over a chaos run, invariant by invariant: each is one function over the evidence that says how much it looked at and
what it found broken. Nothing here asks a store, so each can be tried with evidence made by hand.

| #   | promise                                                    | looked at by             |
|-----|------------------------------------------------------------|--------------------------|
| I1  | no accepted job is lost, none that was rolled back is there | ``none_lost``            |
| I2  | every job ended, once, in one place, and as it had to        | ``one_end``              |
| I3  | what has ended stays so, but for an audited retry            | ``ended_for_good``       |
| I4  | the token rises by one with each claim                       | ``tokens_without_gaps``  |
| I5  | a job has one holder at a time, and in the end none          | ``one_holder``           |
| I6  | only the holder of the token wrote the end                   | ``holder_wrote_the_end`` |
| I7  | attempts and crashes are bounded                             | ``bounded``              |
| I8  | every attempt is accounted for                               | ``accounted_for``        |
| I9  | every second run is explained by what was done to the first  | ``explained``            |
| I10 | a zombie's run overlaps the next one for seconds at most     | ``zombies_stop``         |
| I11 | no limit is passed at any instant                            | ``within_limits``        |
| I12 | no fire happens twice                                        | ``no_fire_twice``        |
| I13 | no fire is left out but by its rule                          | ``no_fire_left_out``     |
| I14 | nothing starts early                                         | ``nothing_early``        |
| I15 | a lease's term has one holder, and terms rise                | ``one_leader``           |
| I16 | a unique key has one living job                              | ``one_of_a_key``         |
| I19 | the audit is whole and has every act once                    | ``audit_whole``          |
| I20 | what was cancelled does not begin again                      | ``cancel_holds``         |

I1 to I10 are in this room, the others in ``invariants_more``. I17 (archive), I18 (tenants), I21 (children), I22 (secrets) and I23
(references) have tests of their own elsewhere: no archive, second tenant or secret takes part here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from tests.faults.chaos_app import FAILING, STOPPED
from tests.faults.evidence import Evidence, runs
from tests.faults.ledger import BEGIN, END, Line
from tests.faults.stage import EXPIRY, Span

from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.job import Execution, Job
from tidemill.domain.states import ENDED, ExecutionState, JobState

_E, _S = ExecutionState, JobState
_FREE = frozenset({_E.RELEASED, _E.SUSPENDED})

ZOMBIE = 10.0
"""Seconds that a handler may go on after another execution of its job began: from waking up, or from the end of its lease."""

AFTERMATH = timedelta(seconds=EXPIRY + 12)
"""How long after an outage a lease may still be found to have run out because of it."""


class Finding(NamedTuple):
    """How many things were looked at, and what was broken about them."""

    looked_at: int
    broken: list[str]


def none_lost(evidence: Evidence) -> Finding:
    broken = [
        f"job {id} was accepted and is nowhere"
        for id in dict.fromkeys(evidence.accepted)
        if id not in evidence.jobs
    ]
    broken += [f"job {id} was rolled back and is there" for id in evidence.unwanted if id in evidence.jobs]
    return Finding(len(evidence.accepted) + len(evidence.unwanted), broken)


def one_end(evidence: Evidence) -> Finding:
    broken = [*evidence.seen.doubled]
    for job in evidence.jobs.values():
        own = evidence.executions[job.id]
        if job.state not in ENDED:
            broken.append(f"job {job.id} ({job.task}) has not ended: {job.state}, {job.reason}")
            continue
        succeeded = [one.number for one in own if one.state is _E.SUCCEEDED]
        if succeeded != ([job.token] if job.state is _S.COMPLETED else []):
            broken.append(f"job {job.id} is {job.state} with token {job.token}, and succeeded as {succeeded}")
        if not _had_to_end_so(evidence, job):
            broken.append(f"job {job.id} ({job.task}) became {job.state} without a cause: {job.reason}")
    return Finding(len(evidence.jobs), broken)


def _had_to_end_so(evidence: Evidence, job: Job) -> bool:
    match job.state:
        case _S.COMPLETED:
            return job.task != "doomed"
        case _S.CANCELLED:
            return job.id in evidence.meddled
        case _S.FAILED:
            return job.task == "doomed"
        case _S.DEAD_LETTERED:
            return job.crashes == DEFAULT_CRASH_CAP or (job.crashes > 0 and job.attempt == job.max_attempts)
        case _:
            return False


def ended_for_good(evidence: Evidence) -> Finding:
    broken = []
    for id, (state, token) in evidence.seen.ended.items():
        job = evidence.jobs.get(id)
        if job is None:
            broken.append(f"job {id} was seen {state} and is nowhere")
        elif (job.state, job.token) != (state, token) and not evidence.audit.retried[id]:
            broken.append(
                f"job {id} was seen {state} with token {token}, and is {job.state} with {job.token}"
            )
    for job in evidence.jobs.values():
        ends = sum(
            one.state in (_E.SUCCEEDED, _E.CANCELLED)
            for one in evidence.executions[job.id]
            if one.number < job.token
        )
        if ends > evidence.audit.retried[job.id]:
            broken.append(
                f"job {job.id} went on after {ends} ends, with {evidence.audit.retried[job.id]} retries"
            )
    return Finding(len(evidence.seen.ended), broken)


def tokens_without_gaps(evidence: Evidence) -> Finding:
    broken = []
    for job in evidence.jobs.values():
        numbers = [one.number for one in evidence.executions[job.id]]
        if numbers != list(range(1, job.token + 1)):
            broken.append(f"job {job.id} has token {job.token} and executions {numbers}")
    return Finding(sum(map(len, evidence.executions.values())), broken)


def one_holder(evidence: Evidence) -> Finding:
    broken = [*evidence.seen.doubled]
    for several in evidence.executions.values():
        broken += [
            f"job {one.job_id} is still held as execution {one.number}"
            for one in several
            if one.state is _E.RUNNING or one.finished_at is None
        ]
        # A claim is dated when its transaction began, which may then have been halted for as long as anybody is.
        broken += [
            f"job {one.job_id}: execution {one.number} had not ended when {two.number} was claimed"
            for one, two in pairwise(several)
            if one.finished_at and two.claimed_at and one.finished_at - two.claimed_at > AFTERMATH
        ]
    return Finding(evidence.seen.looks, broken)


def holder_wrote_the_end(evidence: Evidence) -> Finding:
    looked_at, broken = 0, []
    for job in evidence.jobs.values():
        if job.state is not _S.COMPLETED or not evidence.executions[job.id]:
            continue
        looked_at += 1
        last = evidence.executions[job.id][-1]
        if job.result != str(job.token):
            broken.append(f"job {job.id} has token {job.token} and the result of {job.result}")
        pid = evidence.pids.get(last.worker) if last.worker is not None else None
        ends = [line for line in evidence.by_run[job.id, last.number] if line.kind == END]
        if not [line for line in ends if pid in (line.pid, line.parent)]:
            broken.append(f"job {job.id}: {last.worker} (pid {pid}) ended it without having run it: {ends}")
    return Finding(looked_at, broken)


def bounded(evidence: Evidence) -> Finding:
    broken = [
        f"job {job.id}: attempt {job.attempt} of {job.max_attempts}, {job.crashes} crashes"
        for job in evidence.jobs.values()
        if job.attempt > job.max_attempts or job.crashes > DEFAULT_CRASH_CAP
    ]
    return Finding(len(evidence.jobs), broken)


def accounted_for(evidence: Evidence) -> Finding:
    broken = []
    for job in evidence.jobs.values():
        wrong = _miscounted(job, evidence.executions[job.id], evidence.audit.retried[job.id])
        if wrong is not None:
            broken.append(f"job {job.id} ({job.task}): {wrong}")
    return Finding(sum(map(len, evidence.executions.values())), broken)


def _miscounted(job: Job, own: Sequence[Execution], retries: int) -> str | None:
    """Each execution's attempt follows from the one before, and the job's own from the last; retries begin anew."""
    expected = 1
    for one in own:
        if one.attempt != expected:
            if one.attempt != 1 or not retries:
                return f"execution {one.number} is attempt {one.attempt}, and {expected} was next"
            retries -= 1
        expected = one.attempt if one.state in _FREE else one.attempt + 1
    allowed = {expected - 1}
    if own and own[-1].state in _FREE:
        allowed.add(own[-1].attempt)  # nothing is given back to a job that ends
    if retries:
        allowed.add(0)
    return (
        None if job.attempt in allowed else f"it has {job.attempt} attempts, and {sorted(allowed)} are right"
    )


def explained(evidence: Evidence) -> Finding:
    """A run has one beginning and was claimed; an execution that did not end well has a cause outside of the product."""
    looked_at, broken = 0, []
    for id, job in evidence.jobs.items():
        claimed = {one.number for one in evidence.executions[id]}
        begun = Counter(line.token for line in evidence.by_job[id] if line.kind == BEGIN)
        broken += [
            f"job {id}: execution {token} began {count} times" for token, count in begun.items() if count > 1
        ]
        broken += [
            f"job {id} ran as {token}, which nobody claimed" for token in begun if token not in claimed
        ]
        for one in evidence.executions[id]:
            looked_at += 1
            if not _has_a_cause(evidence, job, one):
                pid = evidence.pids.get(one.worker) if one.worker else None
                broken.append(
                    f"job {id} ({job.task}): execution {one.number} {one.state} (pid {pid}): {one.reason}"
                )
    return Finding(looked_at, broken)


def _has_a_cause(evidence: Evidence, job: Job, one: Execution) -> bool:
    match one.state:
        case _E.SUCCEEDED | _E.RELEASED:
            return True
        case _E.FAILED:
            return job.task in FAILING
        case _E.CANCELLED:
            return job.id in evidence.meddled
        case _E.CRASHED:
            pid = evidence.pids.get(one.worker) if one.worker is not None else None
            hurt = evidence.hurt
            if pid in hurt.killed or any(pid in span.pids for span in hurt.halted):
                return True
            return any(_touches(span, one) for span in (*hurt.outages, *evidence.seen.gaps))
        case _:
            return False


def _touches(span: Span, one: Execution) -> bool:
    """Whether an outage falls into the life of an execution, or ended shortly before it was given up."""
    if one.claimed_at is None or one.finished_at is None:
        return False
    ended_at = span.ended_at or one.finished_at
    return span.began_at <= one.finished_at and one.claimed_at <= ended_at + AFTERMATH


def zombies_stop(evidence: Evidence) -> Finding:
    looked_at, broken = 0, []
    for id in evidence.jobs:
        for (token, lines), (_, later) in pairwise(runs(evidence, id)):
            looked_at += 1
            begins = min(line.at for line in later)
            after = [line for line in lines if line.at > begins]
            if after and not _soon_over(evidence, begins, after):
                seconds = max(line.at for line in after) - begins
                broken.append(f"job {id}: execution {token} went on for {seconds:.1f} s beside the next one")
    return Finding(looked_at, broken)


def _soon_over(evidence: Evidence, begins: float, after: Sequence[Line]) -> bool:
    """Whether these signs of life are those of one who just woke up, or whose lease has just run out."""
    pids = {pid for line in after for pid in (line.pid, line.parent)}
    last = max(line.at for line in after)
    woken = [
        span.ended for span in evidence.hurt.halted if not pids.isdisjoint(span.pids) and span.ended <= last
    ]
    cut_off = any(
        span.began <= begins <= span.ended + AFTERMATH.total_seconds()
        for span in (*evidence.hurt.outages, *evidence.seen.gaps)
    )
    return (bool(woken) or cut_off) and last <= max([begins, *woken]) + ZOMBIE


def last_sign(lines: Sequence[Line]) -> float:
    """Until when a run is known to have gone on."""
    over = [line.at for line in lines if line.kind in (END, STOPPED)]
    return min(over) if over else max(line.at for line in lines)
