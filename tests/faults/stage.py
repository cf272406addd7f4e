"""Where a chaos run happens: a store of its own, ways to it that can be bad, and workers that can be hurt and are replaced.

Everybody but the checker comes through a proxy, where there is a server to come to. Nothing is left of it at the end, unless the
folder is to be kept.
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

from tests.faults.chaos_app import Works
from tests.faults.disk import Disk
from tests.faults.kit import Stuck, Worker, clock
from tests.faults.ledger import WHERE, Ledger
from tests.faults.proxy import Proxy
from tests.faults.tasks import STORE
from tests.faults.twist import SKEW, WRONG

from tidemill.stores.open import open_store
from tidemill.testing.postgres import PrivatePostgres, running_postgres

EXPIRY = 8.0
SETTINGS: dict[str, object] = {
    "beat": 1, "expiry": EXPIRY, "lease_beat": 1, "lease_expiry": 4, "pumps": 1,
    "concurrency": 20, "threads": 4, "children": 2, "grace": 5,
}  # fmt: skip
"""Of every worker: leases that run out soon, so that many of them do."""

SEATS: tuple[tuple[int, str], ...] = ((2, "lease"), (1, "lease"), (1, "everyone"))
"""Workers: their runners, and who does the duties. Two want to lead; a third does what it likes, so that two fire at once."""

SKEWS = (0.0, 0.0, -6 * 3600.0, -40.0, 7.0, 90.0, 6 * 3600.0)
"""Seconds by which a worker's clock is wrong. Only with a server: who shares a file shares a machine, and so a clock."""


class Span:
    """From one instant to another, by both clocks; open until it is closed."""

    def __init__(self, kind: str, pids: frozenset[int] = frozenset()) -> None:
        self.kind, self.pids = kind, pids
        self.began, self.began_at = clock.monotonic(), clock.now()
        self.ended = float("inf")
        self.ended_at: datetime | None = None

    def close(self) -> Span:
        self.ended, self.ended_at = clock.monotonic(), clock.now()
        return self


@dataclass
class Hurt:
    """What was done to whom, and when; by it a second run of a job is explained."""

    killed: dict[int, float] = field(default_factory=dict)  #: runners, and when by the monotonic clock
    halted: list[Span] = field(default_factory=list)  #: whole families of processes
    outages: list[Span] = field(default_factory=list)  #: when the store or the way to it was bad, for anybody


@dataclass
class Seat:
    """A worker's place: who sits there, and by which way it comes to the store."""

    number: int
    processes: int
    coordination: str
    url: str
    proxy: Proxy | None
    worker: Worker | None = None
    skew: float = 0.0

    @property
    def who(self) -> Worker:
        assert self.worker is not None
        return self.worker


class Stage:
    """The store, the seats and the ways."""

    def __init__(
        self,
        store: str,
        folder: Path,
        *,
        wrong: str,
        random: Random,
        server: PrivatePostgres | None,
        disk: Disk | None,
    ) -> None:
        self.store, self.folder, self.wrong, self.server, self.disk = store, folder, wrong, server, disk
        self._random = random
        self.ledger = Ledger(folder)
        self.hurt = Hurt()
        self.ended_by_themselves: list[str] = []
        self.skewed = 0
        self._started: list[Worker] = []
        if server is None:
            self.url = f"sqlite:///{disk.folder if disk is not None else folder}/jobs.db"
        else:
            self.url = server.create_database("faults")
        with contextlib.closing(open_store(self.url)) as opened:
            opened.migrate()
        self.proxies = [self._proxy() for _ in range(len(SEATS) + 1)] if server is not None else []
        self.producers_url = self._through(self.proxies[-1] if self.proxies else None)
        self.works = Works(self.url)
        self.seats = [
            Seat(number, processes, coordination, self._through(proxy), proxy)
            for number, (processes, coordination) in enumerate(SEATS)
            for proxy in [self.proxies[number] if self.proxies else None]
        ]

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

    def start(self, seat: Seat) -> Worker:
        """Put a new worker there, as often as not with a clock that is wrong."""
        seat.skew = self._random.choice(SKEWS) if self.server is not None else 0.0
        self.skewed += seat.skew != 0.0
        environment = {
            **os.environ,
            STORE: seat.url,
            WHERE: str(self.ledger.path),
            SKEW: str(seat.skew),
            WRONG: self.wrong,
        }
        settings = json.dumps({**SETTINGS, "coordination": seat.coordination})
        words = [sys.executable, "-m", "tests.faults.chaos_worker", str(seat.processes), settings]
        seat.worker = Worker(words, self.folder / f"worker-{len(self._started)}", environment)
        self._started.append(seat.worker)
        return seat.worker

    def refill(self) -> None:
        """Replace workers that have ended. Only one that was drained may do that unhurt, and with 0."""
        for seat in self.seats:
            worker = seat.who
            if worker.alive:
                continue
            if worker.process.returncode != 0:
                self.ended_by_themselves.append(
                    f"worker {worker.pid} ended with {worker.process.returncode}: {worker.log[-600:]}"
                )
            self.start(seat)

    def stop(self, seat: Seat) -> None:
        """SIGTERM; that it did not end within a minute, or not with 0, is written down."""
        worker = seat.who
        runners = worker.runners()
        try:
            code = worker.stop()
        except Stuck as stuck:
            self.ended_by_themselves.append(str(stuck))
            self.hurt.killed |= dict.fromkeys(runners, clock.monotonic())
            worker.end()
        else:
            if code:
                self.ended_by_themselves.append(
                    f"worker {worker.pid}, told to stop, ended with {code}: {worker.log[-600:]}"
                )

    def stop_all(self) -> None:
        """SIGTERM to everybody, and wait for them."""
        for seat in self.seats:
            if seat.who.alive:
                seat.who.process.send_signal(signal.SIGTERM)
        for seat in self.seats:
            if seat.who.alive:
                seat.who.process.wait(120)
            if code := seat.who.process.returncode:
                self.ended_by_themselves.append(f"worker {seat.who.pid}, told to stop, ended with {code}")

    @property
    def started(self) -> int:
        """How many workers there were."""
        return len(self._started)

    @property
    def logs(self) -> str:
        """What all workers wrote."""
        return "".join(worker.log for worker in self._started)

    def close(self) -> None:
        """End everybody, and let go of everything."""
        for worker in self._started:
            worker.end()
        self.works.app.close()
        for proxy in self.proxies:
            proxy.close()


@contextlib.contextmanager
def a_stage(store: str, folder: Path, *, wrong: str, random: Random, mounts: bool) -> Iterator[Stage]:
    """A stage with a store of its own: a file, on a disk that can be full if ``mounts`` can be made, or a private server."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_postgres()) if store == "postgres" else None
        disk = None
        if store == "sqlite" and mounts:
            (folder / "disk").mkdir()
            disk = Disk(folder / "disk")
            stack.callback(disk.close)
        stage = Stage(store, folder, wrong=wrong, random=random, server=server, disk=disk)
        stack.callback(stage.close)
        yield stage
