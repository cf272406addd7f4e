"""A fault: the SQLite file is replaced by a backup, or deleted, under load.

No enqueue that begins after the fault may return a job that is not in the file at the path.
``python -m tests.faults.replaced REPORT`` is one of the enqueueing processes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from tests.faults.chaos_app import ChaosApp
from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import clock, pause
from tests.faults.phases import PhaseResult
from tests.faults.protections import switch_off
from tests.faults.sandbox import Sandbox, open_sandbox
from tests.faults.tasks import STORE

from tidemill.errors import TidemillError

INVARIANT = "I28"
_KINDS = ("replaced", "deleted")
_PLACES = ("ready", "scheduled", "parked", "running", "history")


class Attempt(NamedTuple):
    """One enqueue: when the call began, and the job that it returned."""

    began: float
    job: UUID | None


def run(cluster: Cluster, random: Random) -> PhaseResult:
    """Inject each kind once, on a separate file."""
    result, checked, broken = PhaseResult(), 0, list[str]()
    for kind in _KINDS:
        with open_sandbox(cluster, f"{kind} file") as sandbox:
            attempts = _inject(sandbox, kind, random)
            stored = _stored(sandbox.path)
            accepted = [one.job for one in attempts if one.job is not None]
            lost = [job for job in accepted if job not in stored]
            broken += [
                f"{kind}: job {job} was accepted after the fault and is not at the path" for job in lost
            ]
            checked += len(attempts)
            result.facts[kind] = {"asked": len(attempts), "accepted": len(accepted), "lost": len(lost)}
        result.count += 1
    result.findings[INVARIANT] = Finding(checked, broken)
    return result


def _inject(sandbox: Sandbox, kind: str, random: Random) -> list[Attempt]:
    """Inject the fault under load; return the enqueues that began after it."""
    sandbox.worker().ready()
    reports = [sandbox.folder / f"report-{number}" for number in range(2)]
    for report in reports:
        sandbox.program("tests.faults.replaced", str(report))
    sandbox.wait(lambda: all(len(_read(report)) >= 40 for report in reports), "processes enqueue", 60)
    pause(random.uniform(0.0, 0.3))
    if kind == "replaced":
        _replace(sandbox.path)
    else:
        sandbox.path.unlink()
    at = clock.monotonic()
    # Workers check the file once a second.
    pause(4.0)
    sandbox.close()
    return [one for report in reports for one in _read(report) if one.began > at]


def _replace(path: Path) -> None:
    """Restore a fresh backup the way most tools do: under another name, then renamed.

    The old log is removed first, as documented; otherwise SQLite would apply it to the restored file.
    """
    fresh = path.with_suffix(".restored")
    with (
        contextlib.closing(sqlite3.connect(path, timeout=30)) as raw,
        contextlib.closing(sqlite3.connect(fresh)) as copy,
    ):
        raw.backup(copy)
    for log in ("-wal", "-shm"):
        path.with_name(path.name + log).unlink(missing_ok=True)
    fresh.replace(path)


def _read(report: Path) -> list[Attempt]:
    if not report.exists():
        return []
    lines = report.read_text().rpartition("\n")[0].splitlines()
    return [
        Attempt(float(began), None if job == "-" else UUID(job))
        for began, job in (line.split() for line in lines)
    ]


def _stored(path: Path) -> set[UUID]:
    """Return the ids of all jobs in the file at the path."""
    if not path.exists():
        return set()
    question = " union all ".join(f"select id from tidemill_{place}" for place in _PLACES)
    with (
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as raw,
        contextlib.suppress(sqlite3.OperationalError),
    ):
        return {UUID(bytes=id) for (id,) in raw.execute(question)}
    return set()


def main(report: Path) -> None:
    """Enqueue as fast as possible, and record the result of each call."""
    switch_off()
    noop = ChaosApp(os.environ[STORE]).tasks["noop"]
    with report.open("w", buffering=1) as out:
        while True:
            began = time.monotonic()
            try:
                answer = str(noop.enqueue().id)
            except TidemillError:
                answer = "-"
                time.sleep(0.01)
            print(began, answer, file=out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
