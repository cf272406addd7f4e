"""A fault: the next release migrates the schema while this release runs.

``python -m tests.faults.schemas enqueue`` is a new process of this release.
"""

from __future__ import annotations

import os
from contextlib import closing
from random import Random
from unittest.mock import patch
from uuid import UUID

from tests.faults.chaos_app import ChaosApp
from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import Stuck, Worker
from tests.faults.ledger import BEGIN
from tests.faults.phases import PhaseResult
from tests.faults.protections import switch_off
from tests.faults.sandbox import Sandbox, open_sandbox
from tests.faults.tasks import STORE

from tidemill.domain.states import JobState
from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations

INVARIANT = "I29"
_CALLS = 10


def run(cluster: Cluster, random: Random) -> PhaseResult:
    """Migrate the schema while this release runs; then this release continues, restarts and starts new workers."""
    broken: list[str] = []
    with open_sandbox(cluster, "newer schema") as sandbox:
        worker = sandbox.worker().ready()
        before = _enqueue(sandbox, broken, "before the migration")
        label = migrate_ahead(sandbox.url)
        after = _enqueue(sandbox, broken, "in a new process, after the migration")
        (runner,) = worker.runners()
        worker.kill_runner(runner)
        restarted = _enqueue(sandbox, broken, "after a runner was killed")
        _expect_work(sandbox, worker, broken, "a runner that restarts", other_than=runner)
        worker.kill()
        fresh = sandbox.worker()
        started = _enqueue(sandbox, broken, "next to a new worker")
        _expect_work(sandbox, fresh, broken, "a new worker", other_than=runner)
        ids = [*before, *after, *restarted, *started]
        sandbox.drain(30)
        broken += [
            f"job {id} is {job.state}: {job.reason}"
            for id, job in sandbox.jobs(ids).items()
            if job.state is not JobState.COMPLETED
        ]
    facts = {"migration": label, "jobs": len(ids)}
    return PhaseResult(1, {INVARIANT: Finding(len(ids) + 2, broken)}, facts)


def migrate_ahead(url: str) -> str:
    """Apply one more migration, as the next release would; return its label."""
    dialect = "postgres" if url.startswith("postgres") else "sqlite"
    released = migrations.load(dialect)
    table = "tidemill.next_release" if dialect == "postgres" else "tidemill_next_release"
    sql = f"-- expand: a table for the next release\n-- serves: {len(released)}\n\ncreate table {table}(id integer primary key);\n"
    step = migrations.Migration(len(released) + 1, "next_release", sql)
    with patch.object(migrations, "load", lambda _: (*released, step)), closing(open_store(url)) as store:
        store.migrate()
    return step.label


def _enqueue(sandbox: Sandbox, broken: list[str], when: str) -> list[UUID]:
    """Enqueue from a new process of this release."""
    process = sandbox.program("tests.faults.schemas")
    process.wait(60)
    output = sandbox.output(process)
    if process.returncode:
        broken.append(f"enqueue {when}: {output.strip().splitlines()[-1]}")
        return []
    return [UUID(line) for line in output.split()]


def _expect_work(sandbox: Sandbox, worker: Worker, broken: list[str], who: str, *, other_than: int) -> None:
    try:
        sandbox.wait(
            lambda: any(
                line.pid != other_than and line.pid in worker.runners() for line in sandbox.ledger.of(BEGIN)
            ),
            f"{who} runs jobs",
            30,
        )
    except Stuck as stuck:
        broken.append(f"{stuck}; {worker.log[-300:]}")


def main() -> None:
    """Enqueue some jobs and print their ids."""
    switch_off()
    chaos_app = ChaosApp(os.environ[STORE])
    for job in chaos_app.tasks["noop"].enqueue_many([{} for _ in range(_CALLS)]):
        print(job.id)
    chaos_app.app.close()


if __name__ == "__main__":
    main()
