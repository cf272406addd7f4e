"""Invariant checks of a fault run: the ledger compared with the store.

I1 no job lost, I2 one end and one table per job, I4 tokens without gaps, I5 no job still held, I6 only the token holder wrote,
I7 attempts and crashes bounded, I8 attempts accounted for, I9 every repeated run explained.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
from tests.faults.kit import Harness
from tests.faults.ledger import BEGIN, END, Line

from tidemill.domain.decide import DEFAULT_CRASH_CAP, IN_COMPANY
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED, ExecutionState, JobState

_PLACES = ("ready", "scheduled", "parked", "running", "history")
_FREE = {ExecutionState.RELEASED, ExecutionState.SUSPENDED}


@dataclass
class Verdict:
    """Violations found, and figures to report."""

    violations: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def expect(self, true: bool, law: str, about: object) -> None:
        """Record a violation unless the condition holds."""
        if not true:
            self.violations.append(f"{law}: {about}")


def judge(
    harness: Harness, *, culprits: Collection[int] = (), releases: bool = False, crash_loops: bool = False
) -> Verdict:
    """Check every invariant after all jobs have ended.

    ``culprits`` are the runner processes that were killed or halted: only their jobs may have run twice. ``releases``: workers were
    stopped, so jobs may have been released. ``crash_loops``: there were enough kills for a job to be hit three times. Such a job
    cannot be distinguished from one that kills its runner, but a job that had not started at two of three deaths can.
    """
    verdict = Verdict()
    accepted = harness.ledger.accepted()
    jobs = harness.jobs(accepted)
    lost = [id for id in accepted if id not in jobs]
    verdict.expect(not lost, "I1 no accepted job is lost", lost[:5])
    executions: dict[UUID, list[Execution]] = defaultdict(list)
    for start in range(0, len(accepted), 500):
        for execution in harness.store.executions(accepted[start : start + 500], tenant=ALL_TENANTS):
            executions[execution.job_id].append(execution)
    pids = {worker.id: worker.pid for worker in harness.store.workers()}
    begins, ends = _by_job(harness.ledger.of(BEGIN)), _by_job(harness.ledger.of(END))
    states: Counter[str] = Counter()
    innocent: list[UUID] = []
    unbegun: list[Execution] = []
    for job in jobs.values():
        states[job.state] += 1
        own = sorted(executions[job.id], key=lambda one: one.number)
        _one_end(verdict, job, own, crash_loops=crash_loops)
        _tokens(verdict, job, own)
        _explained(verdict, own, begins[job.id], pids, culprits, releases=releases)
        _fenced(verdict, job, own, ends[job.id], pids)
        ran = {line.token for line in begins[job.id]}
        idle = [one for one in own if one.state is ExecutionState.CRASHED and one.number not in ran]
        unbegun += idle
        innocent += [job.id] if len(idle) > 1 and job.state is JobState.DEAD_LETTERED else []
    verdict.expect(
        not innocent,
        "I7 a job that had not started is charged for at most one crash",
        f"{len(innocent)} jobs were dead-lettered for crashes before they had started: {innocent[:3]}",
    )
    doubled = _doubled(harness)
    verdict.expect(not doubled, "I2 a job is in one table", doubled[:5])
    strangers = {id for id, lines in begins.items() if lines} - set(accepted)
    everything = [one for several in executions.values() for one in several]
    verdict.facts |= {
        "accepted": len(accepted),
        "ends": dict(sorted(states.items())),
        "executions": len(everything),
        "crashed": sum(one.state is ExecutionState.CRASHED for one in everything),
        "released": sum(one.state is ExecutionState.RELEASED for one in everything),
        "crashed_while_waiting": len(unbegun),
        "crashed_while_waiting_as_suspects": sum(one.number > 1 for one in unbegun),
        "given_up_innocent": len(innocent),
        "begun": sum(map(len, begins.values())),
        "run_twice": sum(len(lines) > 1 for lines in begins.values()),
        "enqueued_without_answer": len(strangers),
    }
    return verdict


def _by_job(lines: Sequence[Line]) -> dict[UUID, list[Line]]:
    lines_by_job: dict[UUID, list[Line]] = defaultdict(list)
    for line in lines:
        lines_by_job[line.job].append(line)
    return lines_by_job


def _one_end(verdict: Verdict, job: JobRow, own: Sequence[Execution], *, crash_loops: bool) -> None:
    verdict.expect(job.state in ENDED, "I2 every job has ended", (job.id, job.state))
    alone = sum(one.state is ExecutionState.CRASHED and not was_free(one) for one in own)
    looped = job.state is JobState.DEAD_LETTERED and alone == DEFAULT_CRASH_CAP and crash_loops
    verdict.expect(
        job.state is JobState.COMPLETED or looped,
        "I2 the final state is a legal one",
        (job.id, job.state, job.reason, job.crashes),
    )
    succeeded = [one.number for one in own if one.state is ExecutionState.SUCCEEDED]
    wanted = [job.token] if job.state is JobState.COMPLETED else []
    verdict.expect(
        succeeded == wanted, "I2 only the last execution succeeded", (job.id, succeeded, job.token)
    )


def was_free(one: Execution) -> bool:
    """Return whether an execution's attempt was refunded."""
    in_company = one.state is ExecutionState.CRASHED and (one.reason or "").endswith(IN_COMPANY)
    return one.state in _FREE or in_company


def crashes_of(own: Sequence[Execution]) -> int:
    """Count crashes: each one alone, and the first one in company if it made the job a suspect."""
    crashed = [one for one in own if one.state is ExecutionState.CRASHED]
    return sum(not was_free(one) or one is crashed[0] for one in crashed)


def _tokens(verdict: Verdict, job: JobRow, own: Sequence[Execution]) -> None:
    numbers = [one.number for one in own]
    verdict.expect(
        numbers == list(range(1, job.token + 1)),
        "I4 each claim raises the token by one",
        (job.id, numbers, job.token),
    )
    held = [one.number for one in own if one.state is ExecutionState.RUNNING or one.finished_at is None]
    verdict.expect(not held, "I5 no job is still held", (job.id, held))
    verdict.expect(job.attempt <= job.max_attempts, "I7 attempts are bounded", (job.id, job.attempt))
    verdict.expect(job.crashes <= DEFAULT_CRASH_CAP + 1, "I7 crashes are bounded", (job.id, job.crashes))
    crashed = crashes_of(own)
    verdict.expect(job.crashes == crashed, "I8 crashes are accounted for", (job.id, job.crashes, crashed))
    charged = sum(not was_free(one) for one in own)
    verdict.expect(job.attempt == charged, "I8 attempts are accounted for", (job.id, job.attempt, charged))


def _explained(
    verdict: Verdict,
    own: Sequence[Execution],
    begins: Sequence[Line],
    pids: dict[UUID, int],
    culprits: Collection[int],
    *,
    releases: bool,
) -> None:
    """Check that every failed execution was caused by a fault, and that none began twice."""
    numbers = {one.number for one in own}
    count = Counter(line.token for line in begins)
    for line in begins:
        verdict.expect(count[line.token] == 1, "I9 an execution begins once", line)
        verdict.expect(line.token in numbers, "I9 every run was claimed", line)
    for one in own:
        match one.state:
            case ExecutionState.SUCCEEDED:
                pass
            case ExecutionState.CRASHED:
                pid = pids.get(one.worker) if one.worker is not None else None
                verdict.expect(
                    pid in culprits, "I9 only executions in flight at a kill crashed", (one, f"pid {pid}")
                )
            case ExecutionState.RELEASED:
                # A suspect that had not started when its worker was killed is released without a charge.
                pid = pids.get(one.worker) if one.worker is not None else None
                waited = pid in culprits and one.started_at is None and one.number > 1
                # A suspect that was postponed.
                apart = (one.reason or "").startswith("waiting for a free process")
                verdict.expect(releases or waited or apart, "I9 no job was released without a stop", one)
            case _:
                verdict.expect(False, "I9 no execution failed on its own", one)


def _fenced(
    verdict: Verdict, job: JobRow, own: Sequence[Execution], ends: Sequence[Line], pids: dict[UUID, int]
) -> None:
    """Check that the accepted end was reached by the holder of the last token."""
    if job.state is not JobState.COMPLETED or not own:
        return
    last = own[-1]
    verdict.expect(
        job.result == str(job.token), "I6 the result comes from the last holder", (job.id, job.result)
    )
    pid = pids.get(last.worker) if last.worker is not None else None
    own_end = [line for line in ends if line.token == last.number and pid in (line.pid, line.parent)]
    verdict.expect(
        len(own_end) == 1, "I6 the process that ended the job held it", (job.id, last.worker, pid, list(ends))
    )


def _doubled(harness: Harness) -> list[str]:
    """Return ids that have more than one row in the job tables."""
    dot = "_" if harness.url.startswith("sqlite") else "."
    places = " union all ".join(f"select id from tidemill{dot}{place}" for place in _PLACES)
    question = f"select id from ({places}) as places group by id having count(*) > 1"
    if harness.url.startswith("sqlite"):
        with closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as raw:
            return [str(row[0]) for row in raw.execute(question)]
    with psycopg.connect(harness.url) as connection:
        return [str(row[0]) for row in connection.execute(question.encode())]
