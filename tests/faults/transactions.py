"""Job transactions held across awaits under load, half of them rolled back.

``python -m tests.faults.transactions --store memory|sqlite|postgres``. On SQLite and PostgreSQL, runners are killed while the jobs
run; in memory a worker in this process runs them. Afterwards the run compares the store with the handlers' ledger: every
accepted job ran once per execution; no job of a rolled-back transaction exists; and a job of a committed one exists exactly if
the enclosing job completed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID

from tests.faults import transactions_app
from tests.faults.checks import Verdict
from tests.faults.kit import Worker, child_environment, clock, pause, supervise, until
from tests.faults.ledger import BEGIN, WHERE, Ledger, Line
from tests.faults.transactions_app import HOLDERS, STORE, Tasks
from tests.servers.postgres import running_postgres

from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4, "children": 1}
_APP = "tests.faults.transactions_app:app"


def run(url: str, folder: Path, *, jobs: int, kills: int, seed: int) -> Verdict:
    """Enqueue this many jobs, run them while runners are killed, and check the result."""
    ledger = Ledger(folder)
    os.environ[WHERE] = str(ledger.path)
    tasks = Tasks(url)
    try:
        tasks.app.store.migrate()
        held = tasks.hold.enqueue_many([{"n": n, "seed": seed} for n in range(HOLDERS)])
        plain = tasks.work.enqueue_many([{"n": n} for n in range(jobs - HOLDERS)])
        ledger.accept([job.id for job in (*held, *plain)])
        began, killed = clock.monotonic(), 0
        with _workers(url, folder, tasks) as worker:
            if worker is not None:
                killed = _kill(worker, tasks.app.store, ledger, kills, Random(seed))
            until(lambda: _ended(tasks.app.store), "every job has ended", 400)
        verdict = judge(tasks.app.store, ledger)
        verdict.facts |= {"killed": killed, "ran_for": round(clock.monotonic() - began, 1)}
        verdict.expect(worker is None or killed == kills, "runners were killed", killed)
        return verdict
    finally:
        tasks.app.close()


@contextlib.contextmanager
def _workers(url: str, folder: Path, tasks: Tasks) -> Iterator[Worker | None]:
    if url.startswith("memory"):
        with tasks.app.worker(children=0):
            yield None
        return
    environment = child_environment(folder) | {STORE: url, WHERE: os.environ[WHERE]}
    worker = supervise(_APP, 2, _SETTINGS, folder / "worker", environment)
    try:
        yield worker.ready(2)
        worker.stop()
    finally:
        worker.end()


def _kill(worker: Worker, store: Store, ledger: Ledger, kills: int, random: Random) -> int:
    """Kill a runner again and again, each time after more jobs have begun."""
    killed = 0
    for number in range(kills):
        begun = len(ledger.of(BEGIN)) + 150
        until(lambda begun=begun: len(ledger.of(BEGIN)) >= begun or _ended(store), "jobs begin", 120)  # type: ignore[misc]
        pause(random.uniform(0.0, 0.1))
        until(worker.runners, "a runner is alive", 60)
        killed += worker.kill_runner(random.choice(worker.runners()))
        worker.ready(3 + number)
    return killed


def _ended(store: Store) -> bool:
    try:
        return not sum(store.count(JobFilter(ALL_TENANTS, states=frozenset(JobState) - ENDED)).values())
    except StoreError:
        return False


# The verdict ---------------------------------------------------------------------------------------------------------------


def judge(store: Store, ledger: Ledger) -> Verdict:
    """Compare the store with the ledger."""
    verdict = Verdict()
    jobs = {job.id: job for job in _all(store)}
    executions: dict[UUID, list[Execution]] = defaultdict(list)
    for at in range(0, len(jobs), 500):
        for execution in store.executions(list(jobs)[at : at + 500], tenant=ALL_TENANTS):
            executions[execution.job_id].append(execution)
    lost = [id for id in ledger.accepted() if id not in jobs]
    verdict.expect(not lost, "every accepted job is stored", (len(lost), lost[:3]))
    _ran_as_recorded(verdict, jobs, executions, ledger.of(BEGIN))
    children = [job for job in jobs.values() if job.task == "child"]
    rolled_back = [job.id for job in children if '"kept":false' in job.args]
    verdict.expect(not rolled_back, "jobs of a transaction that raised do not exist", rolled_back[:3])
    holders = [job for job in jobs.values() if job.task == "hold"]
    for holder in holders:
        _followed(verdict, holder, [job for job in children if job.details.parent_id == holder.id])
    everything = [one for some in executions.values() for one in some]
    verdict.facts |= {
        "jobs": len(jobs),
        "accepted": len(ledger.accepted()),
        "ends": dict(sorted(Counter(str(job.state) for job in jobs.values()).items())),
        "executions": len(everything),
        "crashed": sum(one.state is ExecutionState.CRASHED for one in everything),
        "failed": sum(one.state is ExecutionState.FAILED for one in everything),
        "holders": len(holders),
        "holders_completed": sum(job.state is JobState.COMPLETED for job in holders),
        "children_of_blocks": len(children),
        "enqueued_by_jobs": sum(job.task == "noop" for job in jobs.values()),
    }
    return verdict


def _all(store: Store) -> Iterator[JobRow]:
    after: str | None = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS), limit=1000, after=after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def _ran_as_recorded(
    verdict: Verdict, jobs: dict[UUID, JobRow], executions: dict[UUID, list[Execution]], begins: list[Line]
) -> None:
    """Check that each job ended, succeeded at most once, and began once per execution."""
    begun: dict[UUID, Counter[int]] = defaultdict(Counter)
    for line in begins:
        begun[line.job][line.token] += 1
    for job in jobs.values():
        own = sorted(executions[job.id], key=lambda one: one.number)
        looped = job.state is JobState.DEAD_LETTERED and job.crashes >= DEFAULT_CRASH_CAP
        verdict.expect(
            job.state is JobState.COMPLETED or looped, "the final state is a legal one", (job.id, job.state)
        )
        succeeded = [one.number for one in own if one.state is ExecutionState.SUCCEEDED]
        wanted = [job.token] if job.state is JobState.COMPLETED else []
        verdict.expect(
            succeeded == wanted, "only the last execution succeeded", (job.id, succeeded, job.token)
        )
        verdict.expect(
            [one.number for one in own] == list(range(1, job.token + 1)), "no execution is missing", job.id
        )
        # A kill may end an execution that was claimed and never begun; any other execution began exactly once.
        for one in own:
            least = 0 if one.state in (ExecutionState.CRASHED, ExecutionState.RELEASED) else 1
            runs = begun[job.id][one.number]
            verdict.expect(least <= runs <= 1, "it began once per execution", (job.id, one.number, runs))
    strangers = [id for id in begun if id not in jobs]
    verdict.expect(not strangers, "every job that ran is stored", strangers[:3])


def _followed(verdict: Verdict, holder: JobRow, children: list[JobRow]) -> None:
    """Check the children of a holder: those of its last execution if it completed, otherwise none."""
    wanted = (
        transactions_app.expected(holder.args, holder.token) if holder.state is JobState.COMPLETED else []
    )
    stored = sorted(job.args for job in children)
    verdict.expect(
        stored == sorted(wanted),
        "jobs of a transaction exist exactly if the enclosing job completed",
        (holder.id, stored, wanted),
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.transactions")
    parser.add_argument("--store", choices=["memory", "sqlite", "postgres"], default="memory")
    parser.add_argument("--jobs", type=int, default=6_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="transactions-")))
        match given.store:
            case "memory":
                url = "memory://"
            case "sqlite":
                url = f"sqlite:///{folder}/jobs.db"
            case _:
                url = stack.enter_context(running_postgres()).create_database("transactions")
        verdict = run(url, folder, jobs=given.jobs, kills=given.kills, seed=given.seed)
    kept = not verdict.violations
    print(
        f"transactions on {given.store}, seed {given.seed}: {'every promise kept' if kept else 'VIOLATIONS'}"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    print(json.dumps({"store": given.store, "kept": kept} | verdict.facts))
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
