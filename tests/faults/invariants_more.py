"""Invariants I11 to I25 of a chaos run; see ``invariants``."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from datetime import timedelta
from itertools import pairwise

from tests.faults.chaos_app import FAILING, LIMITS
from tests.faults.checks import Verdict
from tests.faults.cluster import EXPIRY
from tests.faults.evidence import Evidence, Timetable, runs
from tests.faults.invariants import (
    Finding,
    accounted_for,
    bounded,
    ended_for_good,
    explained,
    holder_wrote_the_end,
    last_sign,
    none_lost,
    one_end,
    one_holder,
    tokens_without_gaps,
    zombies_stop,
)
from tests.faults.ledger import BEGIN, Line
from tests.faults.limits import highest
from tests.faults.schedulers import check_each_second

from tidemill.domain.schedule_rules import All
from tidemill.domain.states import ExecutionState, JobState

_BACK = frozenset({ExecutionState.FAILED, ExecutionState.CRASHED, ExecutionState.RELEASED})

_GIVEN_UP = frozenset({JobState.DEAD_LETTERED, JobState.FAILED, JobState.TIMED_OUT})

LEASE_MARGIN = 2.0
"""Seconds after a lease expired in which a runner may still begin a job that it claimed before."""

EARLY = timedelta(milliseconds=20)
"""Tolerated difference between two readings of one clock."""

Spans = dict[tuple[str, int], list[tuple[float, float]]]


def within_limits(evidence: Evidence) -> Finding:
    """Check samples of the store, and the times at which handlers ran."""
    broken = [*evidence.seen.over_limit]
    spans = _spans(evidence, LIMITS)
    for (task, key), several in spans.items():
        if (most := highest(several)) > LIMITS[task]:
            broken.append(f"{most} handlers of {task}/{key} ran at once")
    return Finding(evidence.seen.limited + sum(map(len, spans.values())), broken)


def _spans(evidence: Evidence, tasks: Collection[str]) -> Spans:
    """Return when handlers of these tasks ran, by task and key."""
    spans: Spans = defaultdict(list)
    for id, job in evidence.jobs.items():
        if job.task not in tasks:
            continue
        key = json.loads(job.args)["key"]
        # When the next execution began: from then on this one is a zombie, which I10 checks.
        taken = float("inf")
        for _, lines in reversed(runs(evidence, id)):
            begin, end = min(line.at for line in lines), last_sign(lines)
            if begin < taken:
                end = _until_halted(evidence, lines, begin, min(end, taken))
                spans[job.task, key].append((begin, end))
            taken = min(taken, begin)
    return spans


def _until_halted(evidence: Evidence, lines: list[Line], begin: float, end: float) -> float:
    """Return the end of a run, or the halt before it: I10 checks what a zombie does later."""
    pids = {pid for line in lines for pid in (line.pid, line.parent)}
    halts = [span.began for span in evidence.fault_log.halted if not pids.isdisjoint(span.pids)]
    return min([end, *(at for at in halts if begin <= at <= end)])


def no_fire_twice(evidence: Evidence) -> Finding:
    """Check that each fire has one row, one job and one effect; a failed execution excuses another effect."""
    checked, broken = 0, []
    made = Counter(
        (job.details.schedule_id, job.details.fire_at)
        for job in evidence.jobs.values()
        if job.details.fire_at
    )
    broken += [
        f"{count} jobs were made for the fire at {at} of {schedule}"
        for (schedule, at), count in made.items()
        if count > 1
    ]
    checked += sum(made.values())
    for table in evidence.timetables:
        checked += len(table.fires)
        rows = Counter((fire.fire_at, fire.scope_key) for fire in table.fires)
        broken += [f"{table.plan.key}: {count} rows for {at}" for (at, _), count in rows.items() if count > 1]
        by_fire = defaultdict(list)
        for effect in table.effects:
            by_fire[effect.fire_at].append(effect)
        for at, effects in by_fire.items():
            jobs = {effect.job for effect in effects}
            if len(jobs) > 1:
                broken.append(f"{table.plan.key}: the fire at {at} has effects of {len(jobs)} jobs")
            own = [one for job in jobs for one in evidence.executions[job]]
            excused = 1 + sum(one.state is not ExecutionState.SUCCEEDED for one in own)
            if len(effects) > excused:
                broken.append(f"{table.plan.key}: the fire at {at} has {len(effects)} effects")
    return Finding(checked, broken)


def no_fire_left_out(evidence: Evidence) -> Finding:
    """Compare the fires with every instant of the window, which is computed here independently."""
    checked, broken = 0, []
    for table in evidence.timetables:
        verdict = Verdict()
        fires = [
            fire for fire in table.fires if fire.fire_at > table.since_at or not _went_before(evidence, table)
        ]
        check_each_second(
            verdict, table.plan, fires, table.since_at, table.until_at, stepped=bool(evidence.steps)
        )
        ignored = ("S1", "S6") if _jumped_over(evidence, table) else ("S1",)
        broken += [
            re.sub(r"^S\d+ ", "", words) for words in verdict.violations if not words.startswith(ignored)
        ]
        checked += int((table.until_at - table.since_at) / table.plan.step)
        broken += _without_effect(evidence, table)
    return Finding(checked, broken)


def _went_before(evidence: Evidence, table: Timetable) -> bool:
    """Return whether the clock was stepped back to before the schedule was declared, where it may fire again."""
    return any(evidence.timeline.wall(step.at) < table.since_at for step in evidence.steps)


def _jumped_over(evidence: Evidence, table: Timetable) -> bool:
    """Return whether a step passed more fires than the misfire policy catches up on; a row must then record the rest."""
    misfire = table.plan.misfire
    offsets = [0.0, *(step.offset for step in evidence.steps)]
    furthest = max((after - before for before, after in pairwise(offsets)), default=0.0)
    return isinstance(misfire, All) and furthest > misfire.limit * table.plan.step.total_seconds()


def _without_effect(evidence: Evidence, table: Timetable) -> list[str]:
    had = {effect.fire_at for effect in table.effects}
    broken = []
    for fire in table.fires:
        job = evidence.jobs.get(fire.job_id) if fire.job_id is not None else None
        if fire.job_id is None:
            if not fire.reason:
                broken.append(f"{table.plan.key}: the fire at {fire.fire_at} was skipped without a reason")
        elif job is None:
            broken.append(f"{table.plan.key}: the fire at {fire.fire_at} has no job")
        elif fire.fire_at not in had and not job.crashes:
            broken.append(
                f"{table.plan.key}: the fire at {fire.fire_at} had no effect; its job is {job.state}"
            )
    return broken


def nothing_early(evidence: Evidence) -> Finding:
    checked, broken = 0, []
    for id, job in evidence.jobs.items():
        begins = {line.token: evidence.at(line) for line in evidence.by_job[id] if line.kind == BEGIN}
        if not begins:
            continue
        checked += len(begins)
        first = min(begins.values())
        if job.task == "later":
            due_at = job.created_at + timedelta(seconds=json.loads(job.args)["delay"])
            if first < due_at - EARLY and not evidence.audit.retried[id]:
                broken.append(f"job {id} began at {first}, and was due at {due_at}")
        if job.details.fire_at is not None and first < job.details.fire_at - EARLY:
            broken.append(f"job {id} began at {first}, before its fire at {job.details.fire_at}")
        put_off = job.state is JobState.CANCELLED and evidence.executions[id][-1].state in _BACK
        # A job cancelled while it waited for a retry keeps the time of that retry.
        if job.token in begins and begins[job.token] < job.run_at - EARLY and not put_off:
            broken.append(
                f"job {id}: execution {job.token} began at {begins[job.token]}, before {job.run_at}"
            )
    return Finding(checked, broken)


def one_leader(evidence: Evidence) -> Finding:
    broken = []
    holders: dict[tuple[str, int], set[object]] = defaultdict(set)
    last: dict[str, int] = {}
    for lease_term in evidence.seen.lease_terms:
        holders[lease_term.name, lease_term.term].add(lease_term.holder)
        if lease_term.term < last.get(lease_term.name, 0):
            broken.append(
                f"lease {lease_term.name}: term {lease_term.term} was seen after {last[lease_term.name]}"
            )
        last[lease_term.name] = max(lease_term.term, last.get(lease_term.name, 0))
    broken += [
        f"lease {name}: term {term} had {len(several)} holders"
        for (name, term), several in holders.items()
        if len(several) > 1
    ]
    return Finding(len(holders), broken)


def one_of_a_key(evidence: Evidence) -> Finding:
    """Check samples of the store, and the times at which handlers ran."""
    broken = [*evidence.seen.shared_keys]
    spans = _spans(evidence, ["single"])
    for (_, key), several in spans.items():
        if (most := highest(several)) > 1:
            broken.append(f"{most} jobs of key {key} ran at once")
    return Finding(evidence.seen.keys + sum(map(len, spans.values())), broken)


_WORDS = {
    "pause": ("queue.paused",),
    "resume": ("queue.resumed",),
    "cancel": ("job.cancelled", "job.cancel_requested"),
    "retry": ("job.retried",),
    "drain": ("worker.drained",),
}


def audit_whole(evidence: Evidence) -> Finding:
    """Check that the chain verifies, and that actions with exactly one entry each have exactly one."""
    audit = evidence.audit
    broken = [] if audit.sound else [f"the chain does not verify: {audit.words}"]
    for act in ("retry", "drain"):
        entries = sum(audit.own[word] for word in _WORDS[act])
        done, unsure = evidence.acts[act], evidence.unsure[act]
        if not done <= entries <= done + unsure:
            broken.append(f"{act}: {done} were confirmed and {unsure} were not, but the audit has {entries}")
    return Finding(audit.entries, broken)


def cancel_holds(evidence: Evidence) -> Finding:
    broken = []
    for id, cancelled in evidence.cancelled.items():
        if evidence.audit.retried[id]:
            continue
        later = [
            line
            for line in evidence.by_job[id]
            if line.kind == BEGIN
            and line.at > cancelled.at
            and (cancelled.ended or line.token > cancelled.token)
        ]
        if later:
            words = (
                "had been cancelled" if cancelled.ended else f"was asked to stop with token {cancelled.token}"
            )
            broken.append(
                f"job {id} {words}, and began with token {later[0].token} {later[0].at - cancelled.at:.2f} s later"
            )
    return Finding(len(evidence.cancelled), broken)


def none_given_up(evidence: Evidence) -> Finding:
    """Check that healthy jobs complete, unless three of their runners were killed."""
    broken = []
    for id, job in evidence.jobs.items():
        if job.task in FAILING or job.state not in _GIVEN_UP:
            continue
        crashed = [one for one in evidence.executions[id] if one.state is ExecutionState.CRASHED]
        pids = {evidence.pids.get(one.worker) for one in crashed if one.worker is not None}
        if (
            job.state is not JobState.DEAD_LETTERED
            or not pids
            or not pids <= evidence.fault_log.killed.keys()
        ):
            broken.append(f"job {id} ({job.task}) is {job.state}: {job.reason}; runners that crashed: {pids}")
    return Finding(len(evidence.jobs), broken)


def lease_needed(evidence: Evidence) -> Finding:
    """Check that runners of a halted supervisor begin nothing once their lease has expired."""
    checked, broken = 0, []
    for span in evidence.fault_log.headless:
        since = span.began + EXPIRY + LEASE_MARGIN
        begun = [
            line for line in evidence.lines if line.kind == BEGIN and span.began <= line.at <= span.ended
        ]
        checked += len(begun)
        broken += [
            f"job {line.job}: pid {line.pid} began execution {line.token} {line.at - since + LEASE_MARGIN:.1f} s after its lease"
            for line in begun
            if line.at > since and not span.pids.isdisjoint({line.pid, line.parent})
        ]
    return Finding(checked, broken)


INVARIANTS: dict[str, tuple[str, Callable[[Evidence], Finding]]] = {
    "I1": ("no accepted job is lost, no rolled-back job exists", none_lost),
    "I2": ("every job ended, once, in one table, in a legal state", one_end),
    "I3": ("an ended job stays ended, except for an audited retry", ended_for_good),
    "I4": ("each claim raises the token by one", tokens_without_gaps),
    "I5": ("a job has one holder at a time, and none at the end", one_holder),
    "I6": ("only the holder of the token wrote the end", holder_wrote_the_end),
    "I7": ("attempts and crashes are bounded", bounded),
    "I8": ("every attempt is accounted for", accounted_for),
    "I9": ("every repeated run is explained by a fault", explained),
    "I10": ("a zombie overlaps the next execution for seconds at most", zombies_stop),
    "I11": ("no limit is exceeded at any instant", within_limits),
    "I12": ("no fire happens twice", no_fire_twice),
    "I13": ("no fire is missing, except by its misfire policy", no_fire_left_out),
    "I14": ("nothing starts early", nothing_early),
    "I15": ("a lease term has one holder, and terms only increase", one_leader),
    "I16": ("a unique key has one live job", one_of_a_key),
    "I19": ("the audit is intact and has every action once", audit_whole),
    "I20": ("a cancelled job does not begin again", cancel_holds),
    "I24": ("a healthy job is dead-lettered only after three kills", none_given_up),
    "I25": ("a runner without a lease begins nothing", lease_needed),
}
"""Every invariant: its statement and its check."""


def judge(evidence: Evidence) -> dict[str, Finding]:
    """Return every finding by invariant."""
    return {name: look(evidence) for name, (_, look) in INVARIANTS.items()}
