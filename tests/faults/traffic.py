"""The load of a chaos run: producers that enqueue in every way, and an operator.

Confirmed calls are recorded outside the store. A call that failed may or may not have taken effect, and counts as neither.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from tests.faults.chaos_app import SIDE, ChaosApp
from tests.faults.flow_tasks import PREFIX
from tests.faults.kit import clock
from tests.faults.ledger import Ledger

from tidemill import acting
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import IllegalTransition, JobNotFound, StoreError, TidemillError

WHO = "chaos"
"""The operator's name in the audit."""

UNWANTED = "unwanted"
"""File next to the ledger with the ids of jobs whose transaction was rolled back."""

_BROKEN = (StoreError, psycopg.Error, sqlite3.Error)


class Producers:
    """Threads that enqueue jobs, each in one way and at a steady rate."""

    def __init__(self, chaos_app: ChaosApp, url: str, ledger: Ledger, random: Random) -> None:
        self._chaos_app, self._url, self._ledger = chaos_app, url, ledger
        self._unwanted = ledger.path.with_name(UNWANTED)
        self.asked: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._over = threading.Event()
        ways: list[tuple[Callable[[Random], list[UUID]], float]] = [
            (self._single, 0.12),
            (self._bulk, 2.5),
            (self._unique, 0.4),
            (self._delayed, 0.4),
            (self._transactional, 0.5),
            (self._limited, 0.2),
        ]
        self._threads = [
            threading.Thread(
                target=self._run, args=(way, every, Random(random.random())), name=f"faults{way.__name__}"
            )
            for way, every in ways
        ]

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop enqueueing."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, way: Callable[[Random], list[UUID]], every: float, random: Random) -> None:
        name = way.__name__.strip("_")
        while not self._over.wait(random.uniform(0.5, 1.5) * every):
            try:
                ids = way(random)
            except _BROKEN:
                self.failed[name] += 1
                continue
            self._ledger.accept(ids)
            self.asked[name] += len(ids)

    def _call(self, random: Random) -> tuple[str, dict[str, Any]]:
        task = random.choices(
            ["noop", "doze", "toil", "toil_alone", "flaky", "doomed"], [30, 35, 15, 8, 8, 4]
        )[0]
        match task:
            case "flaky":
                return task, {"fails": random.randint(1, 3)}
            case "noop" | "doomed":
                return task, {}
            case _:
                # Some jobs are long: a zombie can only write a job that still runs when the zombie wakes up.
                return task, {"seconds": random.choice([0.02, 0.1, 0.3, 1.0, 4.0, 4.0])}

    def _single(self, random: Random) -> list[UUID]:
        task, args = self._call(random)
        queue = random.choice(["default", SIDE])
        return [self._chaos_app.tasks[task].using(queue=queue).enqueue(**args).id]

    def _bulk(self, random: Random) -> list[UUID]:
        task, _ = self._call(random)
        calls = [self._call(Random(random.random())) for _ in range(200)]
        own = [args for name, args in calls if name == task][: random.randint(5, 25)]
        return [job.id for job in self._chaos_app.tasks[task].enqueue_many(own)] if own else []

    def _unique(self, random: Random) -> list[UUID]:
        # Enqueue may return the job that already holds the key; that job was accepted as well.
        return [
            self._chaos_app.tasks["single"]
            .enqueue(key=random.randint(1, 4), seconds=random.uniform(0.0, 0.6))
            .id
        ]

    def _delayed(self, random: Random) -> list[UUID]:
        delay = random.choice([0.3, 1.0, 2.0, 5.0])
        return [self._chaos_app.tasks["later"].using(delay=timedelta(seconds=delay)).enqueue(delay=delay).id]

    def _limited(self, random: Random) -> list[UUID]:
        task = random.choice(["one", "five", "five"])
        return [
            self._chaos_app.tasks[task]
            .enqueue(key=random.randint(1, 2), seconds=random.uniform(0.02, 0.3))
            .id
        ]

    def _transactional(self, random: Random) -> list[UUID]:
        """Enqueue in a transaction of the producer, which commits or rolls back."""
        wanted = random.random() < 0.6
        with self._connection() as connection:
            ids = [self._chaos_app.tasks["noop"].using(connection=connection).enqueue().id for _ in range(3)]
            if wanted:
                connection.commit()
                return ids
            connection.rollback()
        file = os.open(self._unwanted, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        with contextlib.closing(os.fdopen(file, "w")) as out:
            out.writelines(f"{id}\n" for id in ids)
        return []

    @contextlib.contextmanager
    def _connection(self) -> Any:
        if not self._url.startswith("sqlite"):
            with contextlib.closing(psycopg.connect(self._url, connect_timeout=3)) as connection:
                yield connection
            return
        path = self._url.removeprefix("sqlite:///").partition("?")[0]
        with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as raw:
            raw.execute("begin immediate")
            yield raw


def unwanted(folder: Path) -> list[UUID]:
    """Return the jobs whose transaction was rolled back."""
    place = folder / UNWANTED
    return [UUID(word) for word in place.read_text().split()] if place.exists() else []


class Cancelled(NamedTuple):
    """A confirmed cancel: the monotonic time and the response."""

    at: float
    ended: bool
    token: int


class Operator:
    """Pauses, resumes, cancels, retries and drains at random, and records the responses."""

    def __init__(self, chaos_app: ChaosApp, ledger: Ledger, random: Random) -> None:
        self._chaos_app, self._ledger, self._random = chaos_app, ledger, Random(random.random())
        self.acts: Counter[str] = Counter()
        self.unsure: Counter[str] = Counter()  #: actions whose response was lost
        self.cancelled: dict[UUID, Cancelled] = {}
        self.meddled: set[UUID] = set()  #: jobs with an attempted cancel, whatever the response
        self.retried: Counter[UUID] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-operator")

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop acting."""
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        ways = {"pause": 4, "cancel": 8, "retry": 6, "drain": 1, "resume": 4}
        while not self._over.wait(self._random.uniform(0.1, 0.8)):
            (name,) = self._random.choices(list(ways), list(ways.values()))
            try:
                with acting(WHO):
                    self.acts[name] += bool(getattr(self, f"_{name}")())
            except (IllegalTransition, JobNotFound):
                continue  # the job has changed state
            except _BROKEN:
                self.unsure[name] += 1
            except TidemillError:
                continue  # the worker is gone

    def _pause(self) -> bool:
        self._chaos_app.app.control.pause("queue", self._random.choice(["default", SIDE]), reason="chaos")
        return True

    def _resume(self) -> bool:
        return any(self._chaos_app.app.control.resume("queue", name) for name in ("default", SIDE))

    def resume_all(self) -> None:
        """Resume every queue after the faults."""
        for name in ("default", SIDE):
            self._chaos_app.app.control.resume("queue", name)

    def _cancel(self) -> bool:
        accepted = self._ledger.accepted()[-150:]
        if not accepted:
            return False
        job = self._chaos_app.app.jobs.get(self._random.choice(accepted))
        if job.status in ENDED:
            return False
        self.meddled.add(job.id)
        job.cancel("by the operator")
        facts = job.row
        if job.id not in self.cancelled and (facts.state is JobState.CANCELLED or facts.state in HELD):
            self.cancelled[job.id] = Cancelled(
                clock.monotonic(), facts.state is JobState.CANCELLED, facts.token
            )
        return True

    def _retry(self) -> bool:
        page = self._chaos_app.app.jobs.list(status=["failed", "cancelled", "dead_lettered"], limit=20)
        # A unique job is retried only if its key is free, so skip unique jobs here.
        # Flows have an operator of their own.
        jobs = [
            job
            for job in page.items
            if job.task not in ("single", "tick") and not job.task.startswith(PREFIX)
        ]
        if not jobs:
            return False
        job = self._random.choice(jobs)
        self.retried[job.id] += 1
        job.retry()
        return True

    def _drain(self) -> bool:
        workers = [worker for worker in self._chaos_app.app.store.workers() if worker.state == "active"]
        return bool(workers) and self._chaos_app.app.control.drain(self._random.choice(workers[:4]).id)
