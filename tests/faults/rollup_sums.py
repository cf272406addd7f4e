"""Sums of the rollups compared with the history table, after kills.

    python -m tests.faults.rollup_sums --store sqlite|postgres [--jobs 200000] [--seed 1]

Workers drain jobs of several tasks, queues and tenants. At the same time runners and whole workers are killed, waiting jobs are cancelled,
and ended jobs are retried and deleted. In the end, the rollups and the journal of ends must equal the history table and the rows
that were taken out of it: per minute, task, queue, tenant and state, with run times and waits in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from tests.faults.checks import Verdict
from tests.faults.kit import ROOT, until
from tests.faults.rollup_sums_app import STORE
from tests.servers.postgres import running_postgres

from tidemill.domain import decide
from tidemill.domain.decide import Action
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.rollups import RUN, WAIT, bucket_of, compactions, floored
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

TASKS = {"good": "default", "threaded": "mail", "flaky": "default", "light": "default"}
TENANTS = ("default", "acme", "globex")
SETTINGS = {
    "concurrency": 200,
    "threads": 4,
    "children": 1,
    "beat": 2,
    "expiry": 15,
    "lease_beat": 2,
    "lease_expiry": 15,
}
"""Leases are short, so that the jobs of a killed runner are soon reclaimed, and long enough for a busy machine."""
MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)

_WORKER = """
import json, os, sys
os.setpgrp()
from tidemill.engine.log_formats import write_logs
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
write_logs()
sys.exit(Supervisor("tests.faults.rollup_sums_app:app", read_settings(json.loads(sys.argv[1])), processes=2).run())
"""

Key = tuple[Any, ...]


class Sums:
    """Ended jobs by minute and group, and their times by bucket."""

    def __init__(self) -> None:
        self.jobs: Counter[Key] = Counter()
        self.times: Counter[Key] = Counter()  #: jobs and microseconds of every measure and bucket

    def add(self, row: JobRow) -> None:
        """Count a row of the history table, as the documentation defines the figures."""
        assert row.finished_at is not None
        group = (floored(row.finished_at, MINUTE), row.task, row.queue, row.tenant, row.state.value)
        self.jobs[group] += 1
        if row.worker is None or row.started_at is None:
            return
        spans = {RUN: row.finished_at - row.started_at, WAIT: row.started_at - row.run_at}
        for measure, span in spans.items():
            micros = max(span // _MICROSECOND, 0)
            self.times[*group, measure, bucket_of(micros), "jobs"] += 1
            self.times[*group, measure, bucket_of(micros), "time"] += micros

    def of(self, task: str | None, *, other: bool = False) -> tuple[Counter[Key], Counter[Key]]:
        """The sums of one task, or of all others."""
        jobs = Counter({key: number for key, number in self.jobs.items() if (key[1] == task) != other})
        times = Counter(
            {key: number for key, number in self.times.items() if (key[1] == task) != other and number}
        )
        return jobs, times


def fill(store: Store, jobs: int, random: Random) -> Counter[str]:
    """Enqueue mixed jobs, and return how many of each task."""
    made: Counter[str] = Counter()
    for start in range(0, jobs, 1000):
        batch = []
        for number in range(start, min(start + 1000, jobs)):
            task = random.choice(list(TASKS))
            made[task] += 1
            arguments = json.dumps({"number": number})
            attempts = 3 if task == "flaky" else 1
            batch.append(
                NewJob(
                    new_id(),
                    task,
                    arguments,
                    queue=TASKS[task],
                    tenant=random.choice(TENANTS),
                    max_attempts=attempts,
                )
            )
        store.enqueue(batch)
    return made


class Crew:
    """Two workers with two runners each, which are killed and started again."""

    def __init__(self, environment: dict[str, str], log: Path, random: Random) -> None:
        self._environment, self._log, self._random = environment, log, random
        self._workers: list[subprocess.Popen[bytes]] = []
        self.kills: Counter[str] = Counter()

    def keep(self) -> None:
        """Start the workers that are missing."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < 2:
            with self._log.open("ab") as out:
                words = [sys.executable, "-c", _WORKER, json.dumps(SETTINGS)]
                self._workers.append(
                    subprocess.Popen(words, cwd=ROOT, env=self._environment, stdout=out, stderr=out)
                )

    def kill(self) -> None:
        """Kill a whole worker, or one of its runners."""
        worker = self._random.choice(self._workers)
        children = _children(worker.pid)
        if not children or self._random.random() < 0.4:
            _end(worker)
            self.kills["workers"] += 1
        else:
            os.kill(self._random.choice(children), signal.SIGKILL)
            self.kills["runners"] += 1

    def stop(self) -> None:
        """Stop all workers in good order."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(60)
            finally:
                _end(worker)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its whole process group."""
    if worker.poll() is None and os.getpgid(worker.pid) == worker.pid:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.kill()
    worker.wait()


class Operator:
    """Cancels waiting jobs, and retries and deletes ended ones, as persons do."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store, self._random = store, random
        self.removed: list[JobRow] = []  #: rows that this operator took out of the history
        self.deleted: list[JobRow] = []  #: those of them whose jobs did not run again

    def act(self) -> None:
        pending = self._store.jobs(
            JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING})), limit=50
        ).items
        self._store.move([decide.move(job, Action.CANCEL, "not needed") for job in pending[:5]])
        ended = self._store.jobs(JobFilter(ALL_TENANTS, states=ENDED), limit=200).items
        chosen = self._random.sample(ended, min(len(ended), 40))
        again = [job for job in chosen[:20] if job.state is not JobState.COMPLETED]
        retried = self._store.move([decide.move(job, Action.RETRY, "again") for job in again])
        rest = [job for job in chosen if job.id not in {one.id for one in again}]
        deleted = self._store.delete([job.id for job in rest], tenant=ALL_TENANTS)
        self.removed += [job for job in chosen if job.id in retried | deleted]
        self.deleted += [job for job in chosen if job.id in deleted]


def run(url: str, folder: Path, jobs: int, seed: int, *, kills: int) -> Verdict:
    """Drain the jobs under kills, and compare the sums."""
    random = Random(seed)
    with closing(open_store(url, migrate=True)) as store:
        store.migrate()
        made = fill(store, jobs, random)
        crew = Crew({**os.environ, STORE: url}, folder / "worker.log", random)
        operator = Operator(store, random)
        live = JobFilter(ALL_TENANTS, states=frozenset(JobState) - ENDED)

        def left() -> int:
            return sum(store.count(live).values())

        try:
            crew.keep()
            # A kill comes after some progress: on a busy machine, a worker needs seconds to start.
            for share in range(kills, 0, -1):
                until(partial(_at_most, left, jobs * share // (kills + 1)), "jobs end", 600)
                operator.act()
                crew.kill()
                crew.keep()
            until(lambda: not left(), "all jobs have ended", 600)
        finally:
            crew.stop()
        verdict = judge(url, store, made, operator)
        verdict.facts |= {"jobs": jobs, "kills": dict(crew.kills), "removed": len(operator.removed)}
        return verdict


def _at_most(number: Callable[[], int], most: int) -> bool:
    return number() <= most


def judge(url: str, store: Store, made: Counter[str], operator: Operator) -> Verdict:
    """Compare the rollups with the history, as it is found, folded and compacted."""
    verdict = Verdict()
    expected = Sums()
    rows = light_rows = 0
    for row in history(url, store):
        rows += 1
        light_rows += row.task == "light"
        expected.add(row)
    for row in operator.removed:
        expected.add(row)
    # A job of this task that is in no table has completed last. It may have failed before, if the operator retried it.
    light = made["light"] - light_rows - sum(row.task == "light" for row in operator.deleted)
    for when in ("as found", "folded"):
        sums = rollups(url)
        verdict.expect(
            sums.of("light", other=True) == expected.of("light", other=True),
            f"rollups equal the history, {when}",
            rows,
        )
        counted = Counter(key[4] for key in sums.of("light")[0].elements())
        had = Counter(key[4] for key in expected.of("light")[0].elements())
        verdict.expect(
            counted - had == Counter(completed=light), f"jobs without a row are counted, {when}", counted
        )
        while store.fold_ends():
            pass
    total = Counter(key[4] for key in rollups(url).jobs.elements())
    for compaction in compactions(datetime.now(UTC) + timedelta(days=300)):
        while store.compact_rollups(compaction):
            pass
    verdict.expect(
        Counter(key[4] for key in rollups(url).jobs.elements()) == total, "compaction keeps all sums", total
    )
    ever: Counter[str] = Counter()
    for ended in store.ended_ever().ended:
        ever[ended.state.value] += ended.jobs
    verdict.expect(ever == total, "the totals of all time equal the rollups", ever)
    verdict.facts |= {"history": rows, "counted": dict(total), "without_row": light}
    return verdict


def history(url: str, store: Store) -> Iterator[JobRow]:
    """Yield every ended job."""
    after: str | None = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS, states=ENDED), limit=1000, after=after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def rollups(url: str) -> Sums:
    """Read the rollups and the journal with plain SQL."""
    sums = Sums()
    prefix = "tidemill_" if url.startswith("sqlite") else "tidemill."
    groups = "at, task, queue, tenant, state"
    with reading(url) as ask:
        for *group, jobs in ask(
            f"select {groups}, jobs from {prefix}rollups where scope = 'detail' "
            f"union all select {groups}, jobs from {prefix}ends where state is not null"
        ):
            sums.jobs[tuple(group)] += jobs
        for *group, jobs, micros in ask(
            f"select {groups}, measure, bucket, jobs, time from {prefix}rollup_times where scope = 'detail' "
            f"union all select {groups}, 'run', run_bucket, jobs, run_time from {prefix}ends "
            "where state is not null and run_bucket is not null "
            f"union all select {groups}, 'wait', wait_bucket, jobs, lag from {prefix}ends "
            "where state is not null and run_bucket is not null"
        ):
            sums.times[*group, "jobs"] += jobs
            sums.times[*group, "time"] += micros
    return sums


@contextmanager
def reading(url: str) -> Iterator[Any]:
    """A function that runs a query of the database; its first column is an instant."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            yield lambda query: [(epoch + row[0] * _MICROSECOND, *row[1:]) for row in file.execute(query)]
    else:
        with psycopg.connect(url) as connection:
            yield lambda query: [(row[0].astimezone(UTC), *row[1:]) for row in connection.execute(query)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20, help="processes that are killed")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder}/jobs.db"
        if options.store == "postgres":
            url = stack.enter_context(running_postgres()).url()
        verdict = run(url, folder, options.jobs, options.seed, kills=options.kills)
    print(json.dumps(verdict.facts, default=str, indent=2))
    for violation in verdict.violations:
        print(violation)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
