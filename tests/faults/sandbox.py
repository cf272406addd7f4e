"""A separate store for one fault, with its own workers and ledger."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

from tests.faults.chaos_worker import APP
from tests.faults.cluster import SETTINGS, Cluster
from tests.faults.kit import OPEN, ROOT, Worker, until
from tests.faults.ledger import WHERE, Ledger
from tests.faults.protections import WITHOUT
from tests.faults.tasks import STORE

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import JobRow
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

T = TypeVar("T")


class Sandbox:
    """The store, its folder, and every process started on it."""

    def __init__(self, cluster: Cluster, name: str, url: str | None = None) -> None:
        self.folder = cluster.folder / name.replace(" ", "-")
        self.folder.mkdir()
        self.path = self.folder / "jobs.db"
        self._without = cluster.without
        if url is not None:
            self.url = url
        elif cluster.server is None:
            self.url = f"sqlite:///{self.path}"
        else:
            self.url = cluster.server.create_database(f"faults-{self.folder.name}")
        self.ledger = Ledger(self.folder)
        self.workers: list[Worker] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        with contextlib.closing(open_store(self.url)) as store:
            store.migrate()
        self.store: Store = open_store(self.url)
        # Open the store before the fault is injected.
        self.store.check()

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of every process started here."""
        return {**os.environ, STORE: self.url, WHERE: str(self.ledger.path), WITHOUT: self._without, **more}

    def worker(
        self,
        app: str = APP,
        *,
        processes: int = 1,
        health: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Worker:
        """Start a worker of this app, with a health endpoint on this port."""
        words = [sys.executable, "-m", "tests.faults.chaos_worker", str(processes), json.dumps(SETTINGS), app]
        words += [] if health is None else [str(health)]
        place = self.folder / f"worker-{len(self.workers)}"
        self.workers.append(Worker(words, place, self.environment(**(more or {}))))
        return self.workers[-1]

    def program(self, module: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a module of this package; `close` kills it if it is still running."""
        with (self.folder / f"program-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", module, *words],
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    env=self.environment(**more),
                )
            )
        return self._processes[-1]

    def output(self, process: subprocess.Popen[bytes]) -> str:
        """Return what a program has printed."""
        number = self._processes.index(process)
        return (self.folder / f"program-{number}.log").read_text(errors="replace")

    def jobs(self, ids: list[UUID]) -> dict[UUID, JobRow]:
        """Return these jobs as they are stored."""
        return {job.id: job for job in self.store.get(ids, tenant=ALL_TENANTS)}

    def wait(self, true: Callable[[], T], what: str, seconds: float) -> T:
        """Wait for a condition; while the store is unavailable the condition counts as false."""

        def poll() -> T | None:
            try:
                return true()
            except StoreError:
                return None

        result = until(poll, what, seconds)
        assert result is not None
        return result

    def drain(self, seconds: float) -> bool:
        """Wait until every job has ended; return whether they did."""
        where = JobFilter(ALL_TENANTS, states=OPEN)
        with contextlib.suppress(AssertionError):
            return self.wait(lambda: not self.store.count(where), "every job has ended", seconds)
        return False

    def close(self) -> None:
        """Terminate every process and close the store."""
        for worker in self.workers:
            worker.end()
        for process in self._processes:
            process.kill()
            process.wait()
        with contextlib.suppress(StoreError):
            self.store.close()


@contextlib.contextmanager
def open_sandbox(cluster: Cluster, name: str, url: str | None = None) -> Iterator[Sandbox]:
    """Yield a sandbox in the database at `url`, or in a new database."""
    sandbox = Sandbox(cluster, name, url)
    try:
        yield sandbox
    finally:
        sandbox.close()
