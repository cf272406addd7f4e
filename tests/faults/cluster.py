"""The cluster of a chaos run: a store, its proxies, and replaceable workers.

Every process but the checker connects through a proxy if there is a server. At the end, everything is removed except a folder to keep.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from urllib.parse import urlsplit, urlunsplit

from tests.faults.chaos_app import ChaosApp
from tests.faults.disk import Disk
from tests.faults.kit import Stuck, Worker, clock
from tests.faults.ledger import WHERE, Ledger
from tests.faults.mutations import SKEW, WRONG
from tests.faults.protections import WITHOUT
from tests.faults.proxy import Proxy
from tests.faults.stepping import OFFSET, ClockControl, SteppedClock
from tests.faults.tasks import STORE
from tests.servers.postgres import PrivatePostgres, running_postgres

from tidemill.stores.open import open_store

EXPIRY = 8.0
LOOK = 2.0
"""Seconds between two looks for statements that wait for a lock."""
SETTINGS: dict[str, object] = {
    "beat": 1, "expiry": EXPIRY, "lease_beat": 1, "lease_expiry": 4, "pumps": 1,
    "concurrency": 20, "threads": 4, "children": 2, "grace": 5,
}  # fmt: skip
"""Settings of every worker: short leases, so that many of them expire."""

SLOTS: tuple[tuple[int, str], ...] = ((2, "lease"), (1, "lease"), (1, "everyone"))
"""Workers: number of runners and coordination. Two compete for leadership; a third does all duties, so that two fire at once."""

SKEWS = (0.0, 0.0, -6 * 3600.0, -40.0, 7.0, 90.0, 6 * 3600.0)
"""Seconds by which a worker's clock is wrong. Only with a server: processes on one file share a machine and its clock."""


class Span:
    """A time span by both clocks, open until it is closed."""

    def __init__(self, kind: str, pids: frozenset[int] = frozenset()) -> None:
        self.kind, self.pids = kind, pids
        self.began, self.began_at = clock.monotonic(), clock.now()
        self.ended = float("inf")
        self.ended_at: datetime | None = None

    def close(self) -> Span:
        self.ended, self.ended_at = clock.monotonic(), clock.now()
        return self


@dataclass
class FaultLog:
    """The injected faults and their times; they explain repeated runs of a job."""

    killed: dict[int, float] = field(default_factory=dict)  #: runner pids and the monotonic time of the kill
    halted: list[Span] = field(default_factory=list)  #: workers with all their processes
    headless: list[Span] = field(default_factory=list)  #: runners whose supervisor was halted
    outages: list[Span] = field(
        default_factory=list
    )  #: times at which the store or a connection was disturbed


@dataclass
class WorkerSlot:
    """A worker's slot: the current worker and its route to the store."""

    number: int
    processes: int
    coordination: str
    url: str
    proxy: Proxy | None
    worker: Worker | None = None
    skew: float = 0.0

    @property
    def current(self) -> Worker:
        assert self.worker is not None
        return self.worker


class Cluster:
    """The store, the worker slots and the proxies."""

    def __init__(
        self,
        store: str,
        folder: Path,
        *,
        wrong: str,
        random: Random,
        server: PrivatePostgres | None,
        disk: Disk | None,
        clock_control: ClockControl,
        without: str = "",
    ) -> None:
        self.store, self.folder, self.wrong, self.server, self.disk = store, folder, wrong, server, disk
        self.clock_control, self.without = clock_control, without
        self._looked_at = clock.monotonic()
        self._random = random
        self.ledger = Ledger(folder)
        self.fault_log = FaultLog()
        self.unexpected_exits: list[str] = []
        self.skewed = 0
        self._started: list[Worker] = []
        if server is None:
            self.url = f"sqlite:///{disk.folder if disk is not None else folder}/jobs.db"
        else:
            self.url = server.create_database("faults")
        with contextlib.closing(open_store(self.url)) as opened:
            opened.migrate()
        self.proxies = [self._proxy() for _ in range(len(SLOTS) + 1)] if server is not None else []
        self.producers_url = self._through(self.proxies[-1] if self.proxies else None)
        self.chaos_app = self.open_chaos_app(self.url)
        self.slots = [
            WorkerSlot(number, processes, coordination, self._through(proxy), proxy)
            for number, (processes, coordination) in enumerate(SLOTS)
            for proxy in [self.proxies[number] if self.proxies else None]
        ]

    def open_chaos_app(self, url: str) -> ChaosApp:
        """Open the chaos app in this process, on the same wall clock as the workers."""
        return ChaosApp(url, SteppedClock(self.clock_control.path) if self.server is None else None)

    def _proxy(self) -> Proxy:
        assert self.server is not None
        return Proxy(("127.0.0.1", self.server.port)).__enter__()

    def _through(self, proxy: Proxy | None) -> str:
        if proxy is None:
            return self.url
        parts = urlsplit(self.url)
        address = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"
        return urlunsplit(parts._replace(netloc=address, query="connect_timeout=2"))

    # Workers -------------------------------------------------------------------------------------------------------------

    def start(self, slot: WorkerSlot) -> Worker:
        """Start a new worker in this slot, often with a wrong clock."""
        slot.skew = self._random.choice(SKEWS) if self.server is not None else 0.0
        self.skewed += slot.skew != 0.0
        environment = {
            **os.environ,
            STORE: slot.url,
            WHERE: str(self.ledger.path),
            SKEW: str(slot.skew),
            WRONG: self.wrong,
            WITHOUT: self.without,
        }
        if self.server is None:
            environment[OFFSET] = str(self.clock_control.path)
        settings = json.dumps({**SETTINGS, "coordination": slot.coordination})
        words = [sys.executable, "-m", "tests.faults.chaos_worker", str(slot.processes), settings]
        slot.worker = Worker(words, self.folder / f"worker-{len(self._started)}", environment)
        self._started.append(slot.worker)
        return slot.worker

    def refill(self) -> None:
        """Replace workers that have exited. Only a drained worker may exit without a fault, and with 0."""
        for slot in self.slots:
            worker = slot.current
            if worker.alive:
                continue
            if worker.process.returncode != 0:
                self.unexpected_exits.append(
                    f"worker {worker.pid} exited with {worker.process.returncode}: {worker.log[-600:]}"
                )
            self.start(slot)

    def cancel_lock_waits(self) -> None:
        """Cancel statements that wait for a lock, as ``lock_timeout`` and the detection of deadlocks do.

        While libfaketime sets the clock of a PostgreSQL server forward, these timers never end: it shows the real time to the
        handler of the timer's signal, and the handler concludes that the timer is not due yet.
        """
        if self.server is None or not self.clock_control.is_on_server or self.clock_control.offset <= 0:
            return
        if clock.monotonic() - self._looked_at > LOOK:
            self._looked_at = clock.monotonic()
            self.server.ask(
                "select count(pg_cancel_backend(pid)) from pg_stat_activity "
                "where wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '5 seconds'"
            )

    def stop(self, slot: WorkerSlot) -> None:
        """Send SIGTERM; record a worker that does not exit within a minute, or not with 0."""
        worker = slot.current
        runners = worker.runners()
        try:
            code = worker.stop()
        except Stuck as stuck:
            self.unexpected_exits.append(str(stuck))
            self.fault_log.killed |= dict.fromkeys(runners, clock.monotonic())
            worker.end()
        else:
            if code:
                self.unexpected_exits.append(
                    f"worker {worker.pid} exited with {code} on SIGTERM: {worker.log[-600:]}"
                )

    def stop_all(self) -> None:
        """Send SIGTERM to every worker, and wait for them."""
        for slot in self.slots:
            if slot.current.alive:
                slot.current.process.send_signal(signal.SIGTERM)
        for slot in self.slots:
            if slot.current.alive:
                slot.current.process.wait(120)
            if code := slot.current.process.returncode:
                self.unexpected_exits.append(f"worker {slot.current.pid} exited with {code} on SIGTERM")

    @property
    def started(self) -> int:
        """Count the workers started so far."""
        return len(self._started)

    @property
    def logs(self) -> str:
        """Return the logs of all workers."""
        return "".join(worker.log for worker in self._started)

    def close(self) -> None:
        """Kill every worker and close everything."""
        for worker in self._started:
            worker.end()
        self.chaos_app.app.close()
        for proxy in self.proxies:
            proxy.close()


@contextlib.contextmanager
def open_cluster(
    store: str,
    folder: Path,
    *,
    wrong: str,
    random: Random,
    mounts: bool,
    without: str = "",
    faketime: bool = True,
) -> Iterator[Cluster]:
    """Yield a cluster with a new store: a file, on a small disk if ``mounts`` are possible, or a private server.

    ``faketime`` starts the server with libfaketime, so that its clock can be stepped.
    """
    # The server may run as another user, and reads its offset there.
    folder.chmod(0o755)
    clock_control = ClockControl(folder)
    with contextlib.ExitStack() as stack:
        server = None
        if store == "postgres":
            environment = clock_control.server_environment() if faketime else {}
            server = stack.enter_context(running_postgres(environment=environment))
        disk = None
        if store == "sqlite" and mounts:
            (folder / "disk").mkdir()
            disk = Disk(folder / "disk")
            stack.callback(disk.close)
        cluster = Cluster(
            store,
            folder,
            wrong=wrong,
            random=random,
            server=server,
            disk=disk,
            clock_control=clock_control,
            without=without,
        )
        stack.callback(cluster.close)
        yield cluster
