"""Helpers for the worker tests: an app, its workers, and a thread leak check."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.faulty import Faulty
from tests.grounds import new_database, new_file
from tests.servers.postgres import TestPostgres

from tidemill import App
from tidemill.client.jobs.handle import Job as Handle
from tidemill.clock import SystemClock
from tidemill.domain.cluster import CancelRequest, Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.embedded_worker import EmbeddedWorker
from tidemill.engine.listener import WakeupListener
from tidemill.engine.runner.runner import Runner
from tidemill.engine.worker_settings import read_settings
from tidemill.ids import new_id
from tidemill.stores.open import open_store

STORES = ("memory", "sqlite", "postgres")
PATIENCE = 40.0
"""An upper bound in seconds, never waited for in full."""

QUICK = {"patience": 0.3, "children": 0}


class Harness:
    """An app on a store that can be made to fail."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.line = Faulty(open_store(url))
        self.line.real.migrate()
        self.app = App(self.line.store)
        self.clock = SystemClock()
        self._others: list[App] = []
        self._workers: list[EmbeddedWorker] = []

    def another_app(self) -> App:
        """A second app on the same database, like one in another process."""
        real = self.line.real if self.url == "memory://" else open_store(self.url)
        app = App(Faulty(real).store)
        self._others.append(app)
        return app

    def worker(self, **settings: Any) -> EmbeddedWorker:
        worker = self.app.worker(**(QUICK | settings))
        self._workers.append(worker)
        return worker

    def runners(self) -> list[Runner]:
        """The runners of all workers that were created here."""
        return [worker._runner for worker in self._workers if worker._runner is not None]

    @contextmanager
    def runner(self, **settings: Any) -> Iterator[Runner]:
        """A runner with a listener, without heartbeat and duties, whose lease outlasts the test."""
        me = Worker(new_id(), "a runner")
        on_stuck = settings.pop("on_stuck", None)
        fence = settings.pop("fence", None)
        chosen = read_settings(QUICK | {"pumps": 1} | settings)
        self.line.real.register(me, lease=chosen.expiry * 100)
        listener = WakeupListener(self.line.real, self.clock)
        runner = Runner(
            self.line.store,
            self.app.registry,
            me.id,
            chosen,
            self.clock,
            listener=listener,
            events=self.app.events,
            on_stuck=on_stuck,
            fence=fence,
        )
        runner.start()
        listener.start()
        try:
            yield runner
        finally:
            self.line.mend()
            runner.stop(0)
            listener.close()

    def cancel(self, runner: Runner, job: Handle[Any], reason: str = "stop it") -> None:
        """Send the cancel request as the heartbeat thread would."""
        row = self.row(job)
        runner.cancel([CancelRequest(row.id, row.token, runner.worker, reason)])

    # Reads from the real store -------------------------------------------------------------------------------------------

    def row(self, job: Handle[Any] | UUID) -> JobRow:
        id = job if isinstance(job, UUID) else job.id
        (found,) = self.line.real.get([id], tenant=ALL_TENANTS)
        return found

    def state(self, job: Handle[Any] | UUID) -> JobState:
        return self.row(job).state

    def executions(self, job: Handle[Any]) -> list[Execution]:
        return self.line.real.executions([job.id], tenant=ALL_TENANTS)

    def lines(self, job: Handle[Any]) -> list[str]:
        found: list[str] = []
        after = 0
        while page := self.line.real.logs(job.id, tenant=ALL_TENANTS, after=after):
            found += [entry.message for _, entry in page]
            after = page[-1][0]
        return found

    def becomes(self, job: Handle[Any] | UUID, *states: JobState, within: float = PATIENCE) -> JobRow:
        eventually(lambda: self.state(job) in states, within)
        return self.row(job)

    def ends(self, *jobs: Handle[Any], within: float = PATIENCE) -> list[JobRow]:
        """Wait until all these jobs have ended."""
        ids = [job.id for job in jobs]
        eventually(lambda: _ended(self.line.real.get(ids, tenant=ALL_TENANTS)) == len(ids), within)
        return [self.row(id) for id in ids]

    # Operators -----------------------------------------------------------------------------------------------------------

    def pause(self, kind: PauseKind, name: str = "") -> None:
        self.line.real.pause([Pause(kind, name)])
        self.line.real.notify(["change"])

    def resume(self, kind: PauseKind, name: str = "") -> None:
        self.line.real.resume([(kind, name)])
        self.line.real.notify(["change"])

    def close(self) -> None:
        self.line.mend()
        for app in (*self._others, self.app):
            app.close()


def _ended(jobs: Collection[JobRow]) -> int:
    return sum(job.state in ENDED for job in jobs)


Place = Callable[[Path], AbstractContextManager[str]]
"""Creates an empty store for a folder, yields its URL, and removes the store when the block ends."""


def a_place(request: pytest.FixtureRequest) -> Place:
    """The place for the store that a module fixture's parameter names, so that one server start is enough."""
    match request.param:
        case "memory":
            return lambda folder: nullcontext("memory://")
        case "sqlite":
            return lambda folder: nullcontext(new_file(folder))
        case _:
            server: TestPostgres = request.getfixturevalue("postgres")
            return lambda folder: new_database(server)


@contextmanager
def opened(url: str = "memory://") -> Iterator[Harness]:
    """A harness on the store at this URL. Afterwards, none of its threads may be left."""
    before = set(threading.enumerate())
    harness = Harness(url)
    try:
        yield harness
    finally:
        harness.close()
    with suppress(AssertionError):
        eventually(lambda: not _left(before), 15.0)
    assert _left(before) == []


def _left(before: set[threading.Thread]) -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and thread.name.startswith("tidemill")
    ]


async def open_gate(gate: threading.Event) -> None:
    """Wait for an event of another thread without blocking the event loop."""
    while not gate.is_set():  # noqa: ASYNC110  (the event is set outside this loop)
        await asyncio.sleep(0.005)
