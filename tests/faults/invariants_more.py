"""The other half of the verdict over a chaos run: limits, fires, times, leaders, keys, the audit and cancelling. See ``invariants``."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from datetime import timedelta

from tests.faults.chaos_app import LIMITS
from tests.faults.checks import Verdict
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
from tests.faults.schedulers import each_second_once

from tidemill.domain.states import ExecutionState, JobState

_BACK = frozenset({ExecutionState.FAILED, ExecutionState.CRASHED, ExecutionState.RELEASED})

EARLY = timedelta(milliseconds=20)
"""What two readings of one clock may differ by."""

Spans = dict[tuple[str, int], list[tuple[float, float]]]


def within_limits(evidence: Evidence) -> Finding:
    """By what was seen of the store at single instants, and by when handlers really ran."""
    broken = [*evidence.seen.over_limit]
    spans = _spans(evidence, LIMITS)
    for (task, key), several in spans.items():
        if (most := highest(several)) > LIMITS[task]:
            broken.append(f"{most} handlers of {task}/{key} ran at once")
    return Finding(evidence.seen.limited + sum(map(len, spans.values())), broken)


def _spans(evidence: Evidence, tasks: Collection[str]) -> Spans:
    """When handlers of these tasks ran, by task and key."""
    spans: Spans = defaultdict(list)
    for id, job in evidence.jobs.items():
        if job.task not in tasks:
            continue
        key = json.loads(job.args)["key"]
        taken = float(
            "inf"
        )  # when the execution after this one began: from then on this one is a zombie, judged by itself
        for _, lines in reversed(runs(evidence, id)):
            begin, end = min(line.at for line in lines), last_sign(lines)
            if begin < taken:
                end = _until_halted(evidence, lines, begin, min(end, taken))
                spans[job.task, key].append((begin, end))
            taken = min(taken, begin)
    return spans


def _until_halted(evidence: Evidence, lines: list[Line], begin: float, end: float) -> float:
    """A zombie's second life is not the limit's doing: it is judged by itself."""
    pids = {pid for line in lines for pid in (line.pid, line.parent)}
    halts = [span.began for span in evidence.hurt.halted if not pids.isdisjoint(span.pids)]
    return min([end, *(at for at in halts if begin <= at <= end)])


def no_fire_twice(evidence: Evidence) -> Finding:
    """One row for each fire, one job for each row, one effect for each job; a second one only of an execution that did not end well."""
    looked_at, broken = 0, []
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
    looked_at += sum(made.values())
    for table in evidence.timetables:
        looked_at += len(table.fires)
        rows = Counter((fire.fire_at, fire.scope_key) for fire in table.fires)
        broken += [f"{table.plan.key}: {count} rows for {at}" for (at, _), count in rows.items() if count > 1]
        by_fire = defaultdict(list)
        for effect in table.effects:
            by_fire[effect.fire_at].append(effect)
        for at, effects in by_fire.items():
            jobs = {effect.job for effect in effects}
            if len(jobs) > 1:
                broken.append(f"{table.plan.key}: the fire at {at} had the effects of {len(jobs)} jobs")
            own = [one for job in jobs for one in evidence.executions[job]]
            excused = 1 + sum(one.state is not ExecutionState.SUCCEEDED for one in own)
            if len(effects) > excused:
                broken.append(f"{table.plan.key}: the fire at {at} had its effect {len(effects)} times")
    return Finding(looked_at, broken)


def no_fire_left_out(evidence: Evidence) -> Finding:
    """Against every instant of the window, which is counted out here and by nobody else."""
    looked_at, broken = 0, []
    for table in evidence.timetables:
        verdict = Verdict()
        each_second_once(verdict, table.plan, table.fires, table.since_at, table.until_at)
        broken += [re.sub(r"^S\d+ ", "", words) for words in verdict.violations if not words.startswith("S1")]
        looked_at += int((table.until_at - table.since_at) / table.plan.step)
        broken += _without_effect(evidence, table)
    return Finding(looked_at, broken)


def _without_effect(evidence: Evidence, table: Timetable) -> list[str]:
    had = {effect.fire_at for effect in table.effects}
    broken = []
    for fire in table.fires:
        job = evidence.jobs.get(fire.job_id) if fire.job_id is not None else None
        if fire.job_id is None:
            if not fire.reason:
                broken.append(
                    f"{table.plan.key}: the fire at {fire.fire_at} was skipped, and nobody says why"
                )
        elif job is None:
            broken.append(f"{table.plan.key}: the fire at {fire.fire_at} has no job")
        elif fire.fire_at not in had and not job.crashes:
            broken.append(
                f"{table.plan.key}: the fire at {fire.fire_at} had no effect; its job is {job.state}"
            )
    return broken


def nothing_early(evidence: Evidence) -> Finding:
    looked_at, broken = 0, []
    for id, job in evidence.jobs.items():
        begins = {line.token: evidence.at(line) for line in evidence.by_job[id] if line.kind == BEGIN}
        if not begins:
            continue
        looked_at += len(begins)
        first = min(begins.values())
        if job.task == "later":
            due_at = job.created_at + timedelta(seconds=json.loads(job.args)["delay"])
            if first < due_at - EARLY and not evidence.audit.retried[id]:
                broken.append(f"job {id} began at {first}, and was due at {due_at}")
        if job.details.fire_at is not None and first < job.details.fire_at - EARLY:
            broken.append(f"job {id} began at {first}, before its fire at {job.details.fire_at}")
        put_off = job.state is JobState.CANCELLED and evidence.executions[id][-1].state in _BACK
        # One that was cancelled while it waited to be tried again is dated for that time, which never came.
        if job.token in begins and begins[job.token] < job.run_at - EARLY and not put_off:
            broken.append(
                f"job {id}: execution {job.token} began at {begins[job.token]}, before {job.run_at}"
            )
    return Finding(looked_at, broken)


def one_leader(evidence: Evidence) -> Finding:
    broken = []
    holders: dict[tuple[str, int], set[object]] = defaultdict(set)
    last: dict[str, int] = {}
    for reign in evidence.seen.reigns:
        holders[reign.name, reign.term].add(reign.holder)
        if reign.term < last.get(reign.name, 0):
            broken.append(f"lease {reign.name}: term {reign.term} was seen after {last[reign.name]}")
        last[reign.name] = max(reign.term, last.get(reign.name, 0))
    broken += [
        f"lease {name}: term {term} had {len(several)} holders"
        for (name, term), several in holders.items()
        if len(several) > 1
    ]
    return Finding(len(holders), broken)


def one_of_a_key(evidence: Evidence) -> Finding:
    """By what was seen of the store at single instants, and by when handlers really ran."""
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
    """The chain verifies, and of acts that leave exactly one entry there is one for each, and for no other."""
    audit = evidence.audit
    broken = [] if audit.sound else [f"the chain does not verify: {audit.words}"]
    for act in ("retry", "drain"):
        entries = sum(audit.own[word] for word in _WORDS[act])
        done, unsure = evidence.acts[act], evidence.unsure[act]
        if not done <= entries <= done + unsure:
            broken.append(f"{act}: {done} were answered and {unsure} not, and the audit has {entries}")
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
            words = "had been cancelled" if cancelled.ended else f"was asked to stop as {cancelled.token}"
            broken.append(
                f"job {id} {words}, and began as {later[0].token} {later[0].at - cancelled.at:.2f} s later"
            )
    return Finding(len(evidence.cancelled), broken)


INVARIANTS: dict[str, tuple[str, Callable[[Evidence], Finding]]] = {
    "I1": ("no accepted job is lost, none rolled back is there", none_lost),
    "I2": ("every job ended, once, in one place, as it had to", one_end),
    "I3": ("what has ended stays so, but for an audited retry", ended_for_good),
    "I4": ("the token rises by one with each claim", tokens_without_gaps),
    "I5": ("a job has one holder at a time, and in the end none", one_holder),
    "I6": ("only the holder of the token wrote the end", holder_wrote_the_end),
    "I7": ("attempts and crashes are bounded", bounded),
    "I8": ("every attempt is accounted for", accounted_for),
    "I9": ("every second run is explained", explained),
    "I10": ("a zombie's run overlaps the next for seconds at most", zombies_stop),
    "I11": ("no limit is passed at any instant", within_limits),
    "I12": ("no fire happens twice", no_fire_twice),
    "I13": ("no fire is left out but by its rule", no_fire_left_out),
    "I14": ("nothing starts early", nothing_early),
    "I15": ("a lease's term has one holder, and terms rise", one_leader),
    "I16": ("a unique key has one living job", one_of_a_key),
    "I19": ("the audit is whole and has every act once", audit_whole),
    "I20": ("what was cancelled does not begin again", cancel_holds),
}
"""All of them in order: what is promised, and who looks."""


def judge(evidence: Evidence) -> dict[str, Finding]:
    """Every finding by invariant."""
    return {name: look(evidence) for name, (_, look) in INVARIANTS.items()}
