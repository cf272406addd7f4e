"""Many processes on one SQLite file: each enqueues, claims and finishes as fast as it can, and writes down what it did.

Run by hand: ``python -m tests.stores.sqlite_crowd 60 8``.
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
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.sql.sqlite.driver import SqliteDriver
from tidemill.stores.sql.store import SqlStore


def open_file(path: str, options: dict[str, str] | None = None) -> SqlStore:
    return SqlStore(SqliteDriver(path, f"sqlite:///{path}", SystemClock(), options or {}))


@dataclass
class Diary:
    """What one process did."""

    enqueued: list[str]
    claimed: list[str]
    finished: int
    errors: list[str]
    longest: float


@dataclass
class Summary:
    """What all of them did, and what was found afterwards."""

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


def member(path: str, seconds: float, number: int, notes: str) -> None:
    """One process of the crowd."""
    dice = random.Random(number)
    diary = Diary([], [], 0, [], 0.0)
    store = open_file(path, {"synchronous": "normal"})
    worker, held = new_id(), list[Claim]()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        try:
            jobs = [
                NewJob(new_id(), "work", queue=f"q{dice.randrange(3)}") for _ in range(dice.randint(1, 10))
            ]
            store.enqueue(jobs)
            diary.enqueued += [str(job.id) for job in jobs]
            request = ClaimRequest(worker, store.lanes(), dice.randint(1, 12))
            step = store.step([Finish(claim, COMPLETED) for claim in held], request)
            diary.finished += len(held) - len(step.lost)
            held = step.claims
            diary.claimed += [str(claim.id) for claim in held]
        except Exception as error:  # noqa: BLE001  (whatever it is, nobody should have seen it)
            diary.errors.append(f"{type(error).__name__}: {error}")
        diary.longest = max(diary.longest, time.monotonic() - began)
    store.finish([Finish(claim, COMPLETED) for claim in held])
    store.close()
    Path(notes).write_text(json.dumps(vars(diary)))


def gather(path: str, seconds: float, processes: int) -> Summary:
    """Let a crowd loose on a file, drain what it leaves, and compare."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        notes = [str(Path(folder) / f"{number}.json") for number in range(processes)]
        crowd = [
            spawn.Process(target=member, args=(path, seconds, number, note))
            for number, note in enumerate(notes)
        ]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
        diaries = [Diary(**json.loads(Path(note).read_text())) for note in notes if Path(note).exists()]
    died = [f"a process ended with {each.exitcode}" for each in crowd if each.exitcode]
    store = open_file(path)
    claimed = Counter(id for diary in diaries for id in diary.claimed)
    worker = new_id()
    while claims := store.claim(ClaimRequest(worker, store.lanes(), 500)):
        claimed.update(str(claim.id) for claim in claims)
        store.finish([Finish(claim, COMPLETED) for claim in claims])
    enqueued = {id for diary in diaries for id in diary.enqueued}
    counts = store.count(JobFilter(ALL_TENANTS))
    missing = enqueued - {str(id) for id in _completed(store, enqueued)}
    store.close()
    return Summary(
        enqueued=len(enqueued),
        claimed=sum(claimed.values()),
        lost=len(missing),
        twice=sum(times - 1 for times in claimed.values()),
        left=sum(number for state, number in counts.items() if state is not JobState.COMPLETED),
        errors=died + [error for diary in diaries for error in diary.errors],
        shares=[len(diary.claimed) for diary in diaries],
        longest=max(diary.longest for diary in diaries),
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
    """Run a crowd on a new file and print what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        summary = gather(str(Path(folder) / "crowd.db"), seconds, processes)
    for name, value in vars(summary).items():
        print(f"{name}: {value}")
    print("sound" if summary.sound else "NOT SOUND")
    return 0 if summary.sound else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
