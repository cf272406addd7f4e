"""Invariants I1 to I10 of a chaos run, each a function of the evidence.

Each function reports how much it checked and what it found broken. None of them reads a store, so each is tested with
handmade evidence.

| #   | invariant                                                   | checked by               |
|-----|------------------------------------------------------------|--------------------------|
| I1  | no accepted job is lost, no rolled-back job exists           | ``none_lost``            |
| I2  | every job ended, once, in one table, in a legal state        | ``one_end``              |
| I3  | an ended job stays ended, except for an audited retry        | ``ended_for_good``       |
| I4  | each claim raises the token by one                           | ``tokens_without_gaps``  |
| I5  | a job has one holder at a time, and none at the end          | ``one_holder``           |
| I6  | only the holder of the token wrote the end                   | ``holder_wrote_the_end`` |
| I7  | attempts and crashes are bounded                             | ``bounded``              |
| I8  | every attempt is accounted for                               | ``accounted_for``        |
| I9  | every repeated run is explained by a fault                   | ``explained``            |
| I10 | a zombie overlaps the next execution for seconds at most     | ``zombies_stop``         |
| I11 | no limit is exceeded at any instant                          | ``within_limits``        |
| I12 | no fire happens twice                                        | ``no_fire_twice``        |
| I13 | no fire is missing, except by its misfire policy             | ``no_fire_left_out``     |
| I14 | nothing starts early                                         | ``nothing_early``        |
| I15 | a lease term has one holder, and terms only increase         | ``one_leader``           |
| I16 | a unique key has one live job                                | ``one_of_a_key``         |
| I19 | the audit is intact and has every action once                | ``audit_whole``          |
| I20 | a cancelled job does not begin again                         | ``cancel_holds``         |
| I24 | a healthy job is dead-lettered only after three kills        | ``none_given_up``        |
| I25 | a runner without a lease begins nothing                      | ``lease_needed``         |

I11 and later are in ``invariants_more``. I17 (archive), I18 (tenants), I21 (children), I22 (secrets) and I23 (references) have
tests elsewhere: no archive, second tenant or secret takes part here. I26 and later belong to the faults of ``phases``, which
use a separate store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from tests.faults.chaos_app import FAILING, STOPPED
from tests.faults.checks import was_free
from tests.faults.cluster import EXPIRY, Span
from tests.faults.evidence import Evidence, runs
from tests.faults.ledger import BEGIN, END, Line
from tests.faults.stepping import Timeline

from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED, ExecutionState, JobState

_E, _S = ExecutionState, JobState

ZOMBIE = 10.0
"""Seconds for which a handler may overlap the next execution, after it woke up or its lease expired."""

AFTERMATH = timedelta(seconds=EXPIRY + 12)
"""How long after an outage a lease may still expire because of it."""


class Finding(NamedTuple):
    """How many items were checked, and which were broken."""

    checked: int
    broken: list[str]


def none_lost(evidence: Evidence) -> Finding:
    broken = [
        f"job {id} was accepted and does not exist"
        for id in dict.fromkeys(evidence.accepted)
        if id not in evidence.jobs
    ]
    broken += [f"job {id} was rolled back and exists" for id in evidence.unwanted if id in evidence.jobs]
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
            broken.append(
                f"job {job.id} is {job.state} with token {job.token}, and these executions succeeded: {succeeded}"
            )
        if not _is_legal_end(evidence, job):
            broken.append(f"job {job.id} ({job.task}) became {job.state} without a cause: {job.reason}")
    return Finding(len(evidence.jobs), broken)


def _is_legal_end(evidence: Evidence, job: JobRow) -> bool:
    match job.state:
        case _S.COMPLETED:
            return job.task != "doomed"
        case _S.CANCELLED:
            return job.id in evidence.meddled
        case _S.FAILED:
            return job.task == "doomed"
        case _S.DEAD_LETTERED:
            # Crashes in company alone never dead-letter a job.
            own = evidence.executions[job.id]
            alone = sum(one.state is _E.CRASHED and not was_free(one) for one in own)
            return alone == DEFAULT_CRASH_CAP or (alone > 0 and job.attempt == job.max_attempts)
        case _:
            return False


def ended_for_good(evidence: Evidence) -> Finding:
    broken = []
    for id, (state, token) in evidence.seen.ended.items():
        job = evidence.jobs.get(id)
        if job is None:
            broken.append(f"job {id} was seen {state} and no longer exists")
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
                f"job {job.id} continued after {ends} ends, with {evidence.audit.retried[job.id]} retries"
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
        # A claim carries the start time of its transaction, which may have been halted before it committed.
        broken += [
            f"job {one.job_id}: execution {one.number} had not ended when {two.number} was claimed"
            for one, two in pairwise(several)
            if one.finished_at
            and two.claimed_at
            and min(evidence.timeline.readings(one.finished_at))
            - max(evidence.timeline.readings(two.claimed_at))
            > AFTERMATH.total_seconds()
        ]
    return Finding(evidence.seen.looks, broken)


def holder_wrote_the_end(evidence: Evidence) -> Finding:
    checked, broken = 0, []
    for job in evidence.jobs.values():
        if job.state is not _S.COMPLETED or not evidence.executions[job.id]:
            continue
        checked += 1
        last = evidence.executions[job.id][-1]
        if job.result != str(job.token):
            broken.append(f"job {job.id} has token {job.token} and the result of token {job.result}")
        pid = evidence.pids.get(last.worker) if last.worker is not None else None
        ends = [line for line in evidence.by_run[job.id, last.number] if line.kind == END]
        if not [line for line in ends if pid in (line.pid, line.parent)]:
            broken.append(f"job {job.id}: {last.worker} (pid {pid}) ended it but did not run it: {ends}")
    return Finding(checked, broken)


def bounded(evidence: Evidence) -> Finding:
    broken = [
        f"job {job.id}: attempt {job.attempt} of {job.max_attempts}, {job.crashes} crashes"
        for job in evidence.jobs.values()
        if job.attempt > job.max_attempts or job.crashes > DEFAULT_CRASH_CAP + 1
    ]
    return Finding(len(evidence.jobs), broken)


def accounted_for(evidence: Evidence) -> Finding:
    broken = []
    for job in evidence.jobs.values():
        wrong = _miscounted(job, evidence.executions[job.id], evidence.audit.retried[job.id])
        if wrong is not None:
            broken.append(f"job {job.id} ({job.task}): {wrong}")
    return Finding(sum(map(len, evidence.executions.values())), broken)


def _miscounted(job: JobRow, own: Sequence[Execution], retries: int) -> str | None:
    """Return what is wrong: each attempt follows from the previous execution, and a manual retry starts at 1 again."""
    expected = 1
    for one in own:
        if one.attempt != expected:
            if one.attempt != 1 or not retries:
                return f"execution {one.number} is attempt {one.attempt}, and {expected} was next"
            retries -= 1
        expected = one.attempt if was_free(one) else one.attempt + 1
    allowed = {expected - 1}
    if own and was_free(own[-1]):
        # A job that ends gets no refund.
        allowed.add(own[-1].attempt)
    if retries:
        allowed.add(0)
    return (
        None
        if job.attempt in allowed
        else f"it has {job.attempt} attempts, expected one of {sorted(allowed)}"
    )


def explained(evidence: Evidence) -> Finding:
    """Check that each run began once and was claimed, and that each failed execution has an external cause."""
    checked, broken = 0, []
    for id, job in evidence.jobs.items():
        claimed = {one.number for one in evidence.executions[id]}
        begun = Counter(line.token for line in evidence.by_job[id] if line.kind == BEGIN)
        broken += [
            f"job {id}: execution {token} began {count} times" for token, count in begun.items() if count > 1
        ]
        broken += [
            f"job {id} ran with token {token}, which was never claimed"
            for token in begun
            if token not in claimed
        ]
        for one in evidence.executions[id]:
            checked += 1
            if not _has_a_cause(evidence, job, one):
                pid = evidence.pids.get(one.worker) if one.worker else None
                broken.append(
                    f"job {id} ({job.task}): execution {one.number} {one.state} (pid {pid}): {one.reason}"
                )
    return Finding(checked, broken)


def _has_a_cause(evidence: Evidence, job: JobRow, one: Execution) -> bool:
    match one.state:
        case _E.SUCCEEDED | _E.RELEASED:
            return True
        case _E.FAILED:
            return job.task in FAILING
        case _E.CANCELLED:
            return job.id in evidence.meddled
        case _E.CRASHED:
            pid = evidence.pids.get(one.worker) if one.worker is not None else None
            fault_log = evidence.fault_log
            if pid in fault_log.killed or any(
                pid in span.pids for span in (*fault_log.halted, *fault_log.headless)
            ):
                return True
            return any(
                _touches(evidence.timeline, span, one) for span in (*fault_log.outages, *evidence.seen.gaps)
            )
        case _:
            return False


def _touches(timeline: Timeline, span: Span, one: Execution) -> bool:
    """Return whether an outage overlaps an execution, or ended shortly before it was reclaimed."""
    if one.claimed_at is None or one.finished_at is None:
        return False
    claimed, finished = min(timeline.readings(one.claimed_at)), max(timeline.readings(one.finished_at))
    return span.began <= finished and claimed <= span.ended + AFTERMATH.total_seconds()


def zombies_stop(evidence: Evidence) -> Finding:
    checked, broken = 0, []
    for id in evidence.jobs:
        for (token, lines), (_, later) in pairwise(runs(evidence, id)):
            checked += 1
            begins = min(line.at for line in later)
            after = [line for line in lines if line.at > begins]
            if after and not _soon_over(evidence, begins, after):
                seconds = max(line.at for line in after) - begins
                broken.append(f"job {id}: execution {token} overlapped the next one by {seconds:.1f} s")
    return Finding(checked, broken)


def _soon_over(evidence: Evidence, begins: float, after: Sequence[Line]) -> bool:
    """Return whether a process wrote these lines just after it woke up or its lease expired."""
    pids = {pid for line in after for pid in (line.pid, line.parent)}
    last = max(line.at for line in after)
    woken = [
        span.ended
        for span in evidence.fault_log.halted
        if not pids.isdisjoint(span.pids) and span.ended <= last
    ]
    headless = [span for span in evidence.fault_log.headless if not pids.isdisjoint(span.pids)]
    cut_off = any(
        span.began <= begins <= span.ended + AFTERMATH.total_seconds()
        for span in (*evidence.fault_log.outages, *evidence.seen.gaps, *headless)
    )
    return (bool(woken) or cut_off) and last <= max([begins, *woken]) + ZOMBIE


def last_sign(lines: Sequence[Line]) -> float:
    """Return the last time at which a run is known to have been active."""
    over = [line.at for line in lines if line.kind in (END, STOPPED)]
    return min(over) if over else max(line.at for line in lines)
