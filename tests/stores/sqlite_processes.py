"""A stress run of several processes on one SQLite file.

Each process enqueues, claims and finishes jobs as fast as it can, and records what it did.
Run it with ``python -m tests.stores.sqlite_processes 60 8``.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tidemill.clock import SystemClock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, Finish, NewJob
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.sql.sqlite.driver import SqliteDriver
from tidemill.stores.sql.store import SqlStore
from tidemill.testing.conformance.kit import asks


def open_file(path: str, options: dict[str, str] | None = None) -> SqlStore:
    return SqlStore(SqliteDriver(path, f"sqlite:///{path}", SystemClock(), options or {}))


@dataclass
class Record:
    """The actions of one process."""

    enqueued: list[str]
    claimed: list[str]
    finished: int
    errors: list[str]
    longest: float


@dataclass
class Summary:
    """The actions of all processes, and the state of the store afterwards."""

    enqueued: int
    claimed: int
    lost: int
    twice: int
    left: int
    errors: list[str]
    shares: list[int]
    longest: float

    @property
    def sound(self) -> bool:
        return not (self.lost or self.twice or self.left or self.errors) and self.enqueued == self.claimed > 0


def run_process(path: str, seconds: float, number: int, output: str) -> None:
    """Run one of the processes."""
    rng = random.Random(number)
    record = Record([], [], 0, [], 0.0)
    store = open_file(path, {"synchronous": "normal"})
    worker, held = new_id(), list[Claim]()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        try:
            jobs = [NewJob(new_id(), "work", queue=f"q{rng.randrange(3)}") for _ in range(rng.randint(1, 10))]
            store.enqueue(jobs)
            record.enqueued += [str(job.id) for job in jobs]
            request = asks(store, worker, store.lanes(), rng.randint(1, 12))
            step = store.step([Finish(claim, COMPLETED) for claim in held], request)
            record.finished += len(held) - len(step.lost)
            held = step.claims
            record.claimed += [str(claim.id) for claim in held]
        except Exception as error:  # noqa: BLE001  (every error counts as a failure)
            record.errors.append(f"{type(error).__name__}: {error}")
        record.longest = max(record.longest, time.monotonic() - began)
    store.finish([Finish(claim, COMPLETED) for claim in held])
    store.close()
    Path(output).write_text(json.dumps(vars(record)))


def stress(path: str, seconds: float, processes: int) -> Summary:
    """Run the processes on a file, drain the remaining jobs, and compare."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        outputs = [str(Path(folder) / f"{number}.json") for number in range(processes)]
        started = [
            spawn.Process(target=run_process, args=(path, seconds, number, output))
            for number, output in enumerate(outputs)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join()
        records = [
            Record(**json.loads(Path(output).read_text())) for output in outputs if Path(output).exists()
        ]
    died = [f"a process ended with {process.exitcode}" for process in started if process.exitcode]
    store = open_file(path)
    claimed = Counter(id for record in records for id in record.claimed)
    worker = new_id()
    while claims := store.claim(asks(store, worker, store.lanes(), 500)):
        claimed.update(str(claim.id) for claim in claims)
        store.finish([Finish(claim, COMPLETED) for claim in claims])
    enqueued = {id for record in records for id in record.enqueued}
    counts = store.count(JobFilter(ALL_TENANTS))
    missing = enqueued - {str(id) for id in _completed(store, enqueued)}
    store.close()
    return Summary(
        enqueued=len(enqueued),
        claimed=sum(claimed.values()),
        lost=len(missing),
        twice=sum(times - 1 for times in claimed.values()),
        left=sum(number for state, number in counts.items() if state is not JobState.COMPLETED),
        errors=died + [error for record in records for error in record.errors],
        shares=[len(record.claimed) for record in records],
        longest=max(record.longest for record in records),
    )


def _completed(store: SqlStore, ids: set[str]) -> set[UUID]:
    wanted = [UUID(id) for id in sorted(ids)]
    return {
        job.id
        for start in range(0, len(wanted), 1000)
        for job in store.get(wanted[start : start + 1000], tenant=ALL_TENANTS)
        if job.state is JobState.COMPLETED
    }


def main(seconds: float, processes: int) -> int:
    """Run the processes on a new file and print the summary."""
    with tempfile.TemporaryDirectory() as folder:
        summary = stress(str(Path(folder) / "stress.db"), seconds, processes)
    for name, value in vars(summary).items():
        print(f"{name}: {value}")
    print("sound" if summary.sound else "NOT SOUND")
    return 0 if summary.sound else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
