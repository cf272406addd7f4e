"""Upgrade a database of the first release under load, while its workers still run.

``python -m tests.faults.upgrade --store postgres --seconds 10``. The order is that of ``docs/howto/upgrade.md``: migrate,
start new workers, drain the old ones. One old worker is killed instead, because a machine may fail at that moment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.faults import first_release
from tests.faults.checks import Verdict
from tests.faults.kit import ROOT, Worker, clock, until
from tests.faults.upgrade_app import CODE, FOLDER, STORE
from tests.servers.postgres import running_postgres

APP = "tests.faults.upgrade_app:app"
OLD, NEW = "old", "new"
_OPTIONS = ("--processes", "1", "--concurrency", "40", "--threads", "2", "--children", "0")
_PATIENCE = 400.0


class Run(NamedTuple):
    """A begin or an end of a task in the ledger."""

    kind: str
    task: str
    job: UUID
    attempt: int
    at: float
    code: str


class OldWorker(Worker):
    """A worker of the first release, which does not unblock signals that its parent has blocked."""

    def __init__(self, words: Sequence[str], place: Path, environment: dict[str, str]) -> None:
        self._out = place.with_suffix(".log")
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdout=out, stderr=out, env=environment, process_group=0
            )
        self.pid = self.process.pid


@dataclass
class Upgrade:
    """The processes of both releases on one store."""

    url: str
    folder: Path
    old_source: Path
    workers: list[Worker] = field(default_factory=list)
    producers: list[subprocess.Popen[str]] = field(default_factory=list)

    def environment(self, code: str) -> dict[str, str]:
        """Return the environment of a process of the old or the new code."""
        environment = {**os.environ, STORE: self.url, FOLDER: str(self.folder), CODE: code}
        if code == OLD:
            environment["PYTHONPATH"] = str(self.old_source)
        return environment

    def program(self, verb: str, code: str) -> subprocess.Popen[str]:
        """Start a program of the app."""
        words = [sys.executable, "-m", "tests.faults.upgrade_app", verb]
        return subprocess.Popen(
            words, cwd=ROOT, env=self.environment(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def seed(self) -> dict[str, Any]:
        """Create the tables and the jobs with the old code; return what it created."""
        words = [sys.executable, "-m", "tidemill", "db", "migrate", "--store", self.url]
        subprocess.run(words, cwd=self.folder, env=self.environment(OLD), check=True, capture_output=True)
        done = self.program("seed", OLD)
        text, _ = done.communicate(timeout=_PATIENCE)
        assert done.returncode == 0, text
        facts: dict[str, Any] = json.loads((self.folder / "seeded").read_text())
        return facts

    def worker(self, code: str, *options: str) -> Worker:
        """Start a worker and wait until it is ready."""
        words = [sys.executable, "-m", "tidemill", "worker", APP, *_OPTIONS, *options]
        place = self.folder / f"worker-{len(self.workers)}"
        kind = OldWorker if code == OLD else Worker
        self.workers.append(kind(words, place, self.environment(code)))
        return self.workers[-1].ready(seconds=_PATIENCE)

    def producer(self, code: str) -> subprocess.Popen[str]:
        """Start a producer."""
        self.producers.append(self.program("produce", code))
        return self.producers[-1]

    def migrate(self) -> float:
        """Migrate with the new code while everything runs; return the seconds."""
        words = [sys.executable, "-m", "tidemill", "db", "migrate", "--store", self.url]
        began = clock.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment(NEW), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return clock.monotonic() - began

    def open(self, gate: str) -> None:
        """Let the jobs that wait at a gate end."""
        (self.folder / gate).touch()

    def runs(self) -> list[Run]:
        """Return the ledger."""
        path = self.folder / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        parts = (line.split() for line in lines)
        return [
            Run(kind, task, UUID(job), int(attempt), float(at), code)
            for kind, task, job, attempt, at, code in parts
        ]

    def accepted(self) -> dict[UUID, str]:
        """Return the jobs whose enqueue returned, with the code that enqueued them."""
        path = self.folder / "accepted"
        lines = path.read_text().splitlines() if path.exists() else []
        return {UUID(id): code for id, code in (line.split() for line in lines)}

    def wait_for_runs(self, code: str, count: int) -> None:
        """Wait until this code has started this number of further jobs."""
        begun = sum(run.code == code for run in self.runs())
        until(
            lambda: sum(run.code == code for run in self.runs()) >= begun + count,
            f"{count} more runs by the {code} code",
            _PATIENCE,
        )

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.end()
        for producer in self.producers:
            with contextlib.suppress(OSError):
                producer.kill()
            producer.wait(10)


def stop(producer: subprocess.Popen[str]) -> int:
    """Stop a producer; return how many calls the store refused."""
    text, _ = producer.communicate(timeout=_PATIENCE)
    assert producer.returncode == 0, text
    refused: int = json.loads(text.splitlines()[-1])["refused"]
    return refused


def run(upgrade: Upgrade, jobs: int = 200) -> Verdict:
    """Upgrade under load; ``jobs`` runs happen in each phase."""
    verdict = Verdict()
    seeded = upgrade.seed()
    drained = upgrade.worker(OLD, "--queues", "default")
    killed = upgrade.worker(OLD, "--queues", "doomed,default")
    producer = upgrade.producer(OLD)
    held = {UUID(id) for name in ("held", "lost") for id in seeded["jobs"][name]}
    until(lambda: held <= {run.job for run in upgrade.runs()}, "the old workers hold jobs", _PATIENCE)
    upgrade.wait_for_runs(OLD, jobs)
    took = upgrade.migrate()
    upgrade.wait_for_runs(OLD, jobs)  # old workers and old producers on the new tables
    new = upgrade.worker(NEW)
    newer_producer = upgrade.producer(NEW)
    upgrade.wait_for_runs(NEW, jobs)
    upgrade.wait_for_runs(OLD, jobs)  # both at once
    refused = stop(producer)
    killed.kill()
    upgrade.open("drained")
    upgrade.open("fires")
    verdict.expect(drained.stop() == 0, "the old worker drains", drained.log[-500:])
    upgrade.wait_for_runs(NEW, jobs)
    refused += stop(newer_producer)
    upgrade.open("killed")
    _judge(upgrade, seeded, verdict)
    verdict.expect(new.stop() == 0, "the new worker stops cleanly", new.log[-500:])
    by_code = Counter(run.code for run in upgrade.runs() if run.kind == "B")
    verdict.facts |= {
        "accepted": len(upgrade.accepted()),
        "refused calls": refused,
        "runs by code": dict(by_code),
        "migration": round(took, 2),
    }
    return verdict


def _judge(upgrade: Upgrade, seeded: Mapping[str, Any], verdict: Verdict) -> None:
    """Check with the new code that nothing was lost and everything still works."""
    from tidemill import App

    with App(upgrade.url) as app:
        _judge_seeded(app, {name: list(map(UUID, ids)) for name, ids in seeded["jobs"].items()}, verdict)
        identity = app.keys.identify(seeded["key"])
        verdict.expect(identity is not None, "the key of the old code signs in", seeded["key_id"])
        verdict.expect(app.audit.verify().ok, "the audit log is intact", "")
        notes = [setting.value for setting in app.control.settings() if setting.key == "worker_note"]
        verdict.expect(notes == ["kept"], "the setting is kept", notes)
        verdict.expect(app.definitions.get("report").enabled, "the definition is kept", "report")
        app.schedules.pause("each-second")
        app.schedules.pause("queued")
        accepted = upgrade.accepted()
        until(lambda: not _open_jobs(app), "every job has ended", _PATIENCE)
        _judge_accepted(app, upgrade, accepted, verdict)
        _judge_fires(app, verdict)


def _open_jobs(app: Any) -> int:
    counts = app.stats.by_status().rows
    waiting = ("pending", "claimed", "running", "waiting", "scheduled")
    return sum(row.jobs for row in counts if row.status.value in waiting)


def _judge_seeded(app: Any, seeded: Mapping[str, list[UUID]], verdict: Verdict) -> None:
    """Check each job that existed before the migration, and act on it."""
    for name in ("completed", "failed", "dead_lettered", "timed_out", "review_needed", "cancelled"):
        states = [app.jobs.get(id, tenant="*").status for id in seeded[name]]
        verdict.expect(states == [name] * len(states), f"jobs stay {name}", states)
    archived = [app.jobs.get(id, tenant="*") for id in seeded["archived"]]
    verdict.expect(
        [job.status for job in archived] == ["completed", "failed"] and archived[0].value == 2,
        "archived jobs are read", archived,
    )  # fmt: skip
    rich = app.jobs.get(seeded["completed"][1], tenant="*")
    kept = (rich.tenant, rich.priority, list(rich.tags), rich.reference, rich.metadata, rich.value)
    expected = ("acme", 5, ["a", "ü"], ("user", "42"), {"k": {"n": 1}}, 6)
    verdict.expect(kept == expected, "a job keeps its attributes", kept)
    attempts = [execution.attempt for execution in app.jobs.get(seeded["completed"][2]).executions()]
    verdict.expect(attempts == [2, 1], "executions are kept", attempts)
    verdict.expect(len(list(rich.logs())) == 1, "log lines are kept", rich.id)
    first, second = (app.jobs.get(id, tenant="*") for id in seeded["review_needed"])
    first.approve()
    second.rerun()
    verdict.expect(first.refresh().status == "completed", "an old review is approved", first.status)
    until(lambda: second.refresh().status == "review_needed", "an old review runs again", _PATIENCE)
    second.reject("no")
    app.jobs.get(seeded["dead_lettered"][0]).retry()
    for id in seeded["scheduled"]:
        job = app.jobs.get(id, tenant="*")
        verdict.expect(job.status == "scheduled", "a future job stays scheduled", job.status)
        job.run_now()
    pending = Counter(app.jobs.get(id, tenant="*").status for id in (*seeded["pending"], *seeded["unique"]))
    verdict.expect(pending == {"pending": 51}, "a paused queue stays paused", pending)
    app.control.resume("queue", "later")
    names = ("pending", "unique", "scheduled", "due", "held", "lost")
    ids = [id for name in names for id in seeded[name]]

    def done() -> bool:
        return all(app.jobs.get(id, tenant="*").status == "completed" for id in ids)

    until(done, "the jobs of the old code complete", _PATIENCE)


def _judge_accepted(app: Any, upgrade: Upgrade, accepted: Mapping[UUID, str], verdict: Verdict) -> None:
    """Check that every accepted job is completed, and that limits held across both releases."""
    jobs = {job.id: job for job in app.jobs.stream(status="completed", tenant="*")}
    lost = [str(id) for id in accepted if id not in jobs]
    verdict.expect(not lost, "every accepted job is completed", lost[:5])
    runs = upgrade.runs()
    ends = Counter(run.job for run in runs if run.kind == "E")
    missing = [str(id) for id in accepted if not ends[id]]
    verdict.expect(not missing, "every accepted job ran to its end", missing[:5])
    twice = [id for id in accepted if ends[id] > 1]
    both = {run.code for run in runs}
    verdict.expect(both == {OLD, NEW}, "both releases ran jobs", both)
    inside = 0
    for line in sorted((run for run in runs if run.task == "alone"), key=lambda run: run.at):
        inside += 1 if line.kind == "B" else -1
        if inside > 1:
            verdict.expect(False, "a limit of one holds across both releases", line)
            break
    verdict.facts |= {"ran twice, after the kill": len(twice)}


def _judge_fires(app: Any, verdict: Verdict) -> None:
    """Check that each second fired once while the schedules changed hands."""
    fires = app.schedules.fires("each-second", limit=1000)
    made = [fire for fire in fires if fire.job_id is not None]
    instants = [fire.fire_at for fire in fires]
    verdict.expect(len(instants) == len(set(instants)), "no instant fired twice", len(instants))
    jobs = {fire.job_id for fire in made}
    verdict.expect(len(jobs) == len(made), "each fire has a job of its own", len(made))
    gaps = [
        str(later - earlier)
        for earlier, later in pairwise(sorted(instants))
        if later - earlier > timedelta(seconds=60)
    ]
    verdict.expect(not gaps, "the schedule never stopped for a minute", gaps)
    verdict.facts |= {"fires": len(fires)}


@contextlib.contextmanager
def opened(url: str, folder: Path) -> Iterator[Upgrade]:
    """Yield the processes on an empty store."""
    upgrade = Upgrade(url, folder, first_release.unpack(folder / "first"))
    try:
        yield upgrade
    finally:
        upgrade.close()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.upgrade")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=200, help="runs in each phase")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrade-")))
        url = f"sqlite:///{folder}/jobs.db"
        if given.store == "postgres":
            url = stack.enter_context(running_postgres()).create_database("upgrade")
        verdict = run(stack.enter_context(opened(url, folder)), given.jobs)
    for violation in verdict.violations:
        print(violation)
    print(
        json.dumps({"run": "upgrade", "store": given.store, "kept": not verdict.violations} | verdict.facts)
    )
    sys.exit(bool(verdict.violations))


if __name__ == "__main__":
    _main()
