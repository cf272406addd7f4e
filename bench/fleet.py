"""Server CPU and connections of an idle fleet: every process listens and answers, or supervisors listen and few are called.

    python3 dev.py bench fleet [--workers 500] [--runners 4] [--seconds 30] [--json]
    python3 dev.py bench fleet --connections [--supervisors 20] [--runners 4]

The first form simulates the workers in this process, on real connections. One job is enqueued and taken each second. The first way is
that of the versions before calls: each supervisor and each of its runners listens, and each runner answers each wake-up. In the second,
only supervisors listen, and few runners are called. Both ways have the same supervisors, which send one heartbeat for all their
runners, and a runner that answers does the same: a claim, and then lanes. Each connection has run each statement before the
measurement begins, because planning a statement costs more than running it many times. ``of listeners`` is the part of the CPU that the
server's processes for listening connections use, which PostgreSQL wakes at each NOTIFY.
The second form starts real ``tidemill worker`` processes, and counts their connections in ``pg_stat_activity`` when they are idle.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import psycopg
from bench.drain import RESULT, new_jobs
from bench.engine_proc import family
from tests.servers.postgres import running_postgres

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.engine.duties import Promote, TickDuty
from tidemill.engine.duties.promote import Repeat
from tidemill.engine.summons import Summons
from tidemill.errors import StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Listener, Store
from tidemill.stores.open import open_store

BAR = 0.1
LARGEST = 130
"""Connections of 20 supervisors with 4 runners each."""

BEAT = 5.0
TICK = 5.0
_LEASE = timedelta(days=1)
_POOL = 20  # connections that the simulated workers share for their calls
_LANE = Lane("default", "default", 0)
_HERD = 32  # threads for the calls of one wake-up
_WARM = 10  # times that each connection runs each statement before the measurement
_LATE = 10.0  # seconds after which a job that no worker took is missing

Reached = Callable[[frozenset[str]], Sequence[UUID]]


class Cost(NamedTuple):
    """The cost of one way."""

    way: str
    listeners: int
    seconds: float
    server_ms: float  #: CPU of the server for each second
    listening_ms: float  #: the part of its processes that serve listening connections
    looks: float  #: claims for each job
    latest: float  #: seconds from an enqueue to its claim, at most


class IdleFleet:
    """Idle workers, which look for jobs when a wake-up concerns them."""

    def __init__(self, store: Store, workers: int, runners: int, *, shared: bool) -> None:
        self.store, self.shared = store, shared
        self.ids = [store.register(Worker(new_id(), f"worker-{n}"), lease=_LEASE).id for n in range(workers)]
        self._groups = [self.ids[at : at + runners] for at in range(0, workers, runners)]
        self._clock, self._over = SystemClock(), threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[UUID] = []
        self._work = threading.Condition(self._lock)
        self.looks = 0
        self.taken: dict[UUID, float] = {}
        self._threads: list[threading.Thread] = []
        self._listeners: list[Listener] = []

    @property
    def listening(self) -> int:
        """The number of connections that listen."""
        return len(self._listeners)

    def start(self) -> None:
        """Listen, beat and look."""
        self._warm_up()
        summoned = {id: Summons(id, None, "node", self._clock) for id in self.ids} if self.shared else {}
        # In the first way a supervisor listens as well, and leaves wake-ups for jobs to its runners.
        alone = [*([id] for id in self.ids), *([] for _ in self._groups)]
        for ids in self._groups if self.shared else alone:
            listener = self.store.listen()
            self._listeners.append(listener)
            self._run(partial(self._listen, listener, ids, summoned))
        for _ in range(_HERD):
            self._run(self._look)
        self._run(self._beat)
        self._run(self._lead)

    def _warm_up(self) -> None:
        """Run every statement on every connection of the pool."""
        together = threading.Barrier(_POOL)

        def work() -> None:
            for _ in range(_WARM):
                together.wait()  # so that each thread takes a connection of its own
                self.store.beat(self._groups[0], lease=_LEASE)
                self.store.enqueue(new_jobs(1))
                claims = self.store.claim(ClaimRequest(self.ids[0], [_LANE], 1))
                self.store.finish([_end(claim) for claim in claims])
                self.store.lanes()
                self.store.promote(0, look=True)

        with ThreadPoolExecutor(_POOL) as threads:
            for done in [threads.submit(work) for _ in range(_POOL)]:
                done.result()

    def _run(self, act: Callable[[], None]) -> None:
        def guarded() -> None:
            with suppress(StoreError):
                act()

        thread = threading.Thread(target=guarded)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: Listener, ids: Sequence[UUID], summoned: dict[UUID, Summons]) -> None:
        while not self._over.is_set():
            topics = listener.wait(5.0)
            if not topics:
                continue
            if summoned:
                reached = [id for id in ids if summoned[id].answers(topics)]
            else:
                reached = list(ids) if any(topic.startswith("ready:") for topic in topics) else []
            with self._work:
                self._waiting += reached
                self._work.notify_all()

    def _look(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting or self._over.is_set())
                if self._over.is_set():
                    return
                worker = self._waiting.pop()
                self.looks += 1
            # As a worker does: first the lanes that had jobs before, then the list of lanes.
            claims = self.store.claim(ClaimRequest(worker, [_LANE], 1))
            if not claims:
                self.store.lanes()
            at = time.monotonic()
            self.taken |= {claim.id: at for claim in claims}
            if claims:
                self.store.finish([_end(claim) for claim in claims])

    def _beat(self) -> None:
        """Send the heartbeats of all supervisors in each interval, evenly."""
        groups = self._groups
        began, number = time.monotonic(), 0
        while not self._over.is_set():
            self.store.beat(groups[number % len(groups)], lease=_LEASE)
            number += 1
            self._over.wait(max(0.0, began + number * BEAT / len(groups) - time.monotonic()))

    def _lead(self) -> None:
        """Send the ticks of a leader, and repeat calls whose jobs still wait."""
        tick = TickDuty(self._clock, workers_of=self.store.workers if self.shared else None)
        promote = Promote(self.store, tick=tick, random=Random(1))
        repeat = Repeat(self.store, self._clock, tick)
        listener = self.store.listen()
        self._listeners.append(listener)
        due = ticks = time.monotonic()
        repeats: float | None = None
        while not self._over.is_set():
            now = time.monotonic()
            if now >= ticks:
                promote()
                ticks = now + TICK
            if repeats is not None and now >= repeats:
                repeat()
                repeats = None
            due = min(ticks, repeats or ticks)
            topics = listener.wait(max(0.0, due - time.monotonic()))
            repeats = repeats or repeat.due(topics)

    def close(self) -> None:
        """Stop every thread and close the connections."""
        self._over.set()
        with self._work:
            self._work.notify_all()
        for listener in self._listeners:
            listener.close()
        for thread in self._threads:
            thread.join(30)


def _listeners(url: str) -> list[int]:
    """The server's processes for connections that listen."""
    with psycopg.connect(url) as connection:
        question = (
            "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %'"
        )
        return [int(pid) for (pid,) in connection.execute(question)]


def _cpu_seconds(pids: Iterable[int]) -> float:
    """The processor time of processes, to the nanosecond: hundreds of them each use less than a clock tick."""
    used = 0
    for member in pids:
        with suppress(OSError):
            used += int(Path(f"/proc/{member}/schedstat").read_text().split()[0])
    return used / 1e9


def _end(claim: Claim) -> Finish:
    return Finish(claim, COMPLETED, RESULT)


def cost_of(url: str, pid: int, workers: int, runners: int, seconds: float, *, shared: bool) -> Cost:
    """Measure one way."""
    store = open_store(f"{url}?pool={_POOL}", migrate=True)
    fleet = IdleFleet(store, workers, runners, shared=shared)
    try:
        fleet.start()
        # The first tick tells the workers how many they are.
        time.sleep(2 * TICK)
        listeners = _listeners(url)
        fleet.looks, enqueued = 0, {}
        before, began = _cpu_seconds(family(pid)), time.monotonic()
        listened = _cpu_seconds(listeners)
        while (now := time.monotonic()) < began + seconds:
            (job,) = new_jobs(1)
            store.enqueue_and_wake([job])
            enqueued[job.id] = now
            time.sleep(max(0.0, now + 1 - time.monotonic()))
        used, lasted = _cpu_seconds(family(pid)) - before, time.monotonic() - began
        listened = _cpu_seconds(listeners) - listened
        while (missing := set(enqueued) - set(fleet.taken)) and time.monotonic() < now + _LATE:
            time.sleep(0.1)
        if missing:
            raise AssertionError(
                f"{len(missing)} of {len(enqueued)} jobs were not taken within {_LATE:g} seconds"
            )
        latest = max(fleet.taken[id] - at for id, at in enqueued.items())
        return Cost(
            "shared listeners, calls" if shared else "a listener for each process",
            fleet.listening,
            lasted,
            used * 1000 / lasted,
            listened * 1000 / lasted,
            fleet.looks / len(enqueued),
            latest,
        )
    finally:
        fleet.close()
        store.close()


def compare(workers: int, runners: int, seconds: float) -> list[Cost]:
    """Measure both ways on one server."""
    settings = {"max_connections": str(2 * workers + 100)}
    with running_postgres(settings=settings) as server:
        return [
            cost_of(
                server.create_database(f"fleet_{shared}".lower()),
                server.pids[0],
                workers,
                runners,
                seconds,
                shared=shared,
            )
            for shared in (False, True)
        ]


# Connections of real workers ---------------------------------------------------------------------------------------------


@contextmanager
def real_workers(url: str, supervisors: int, runners: int, folder: Path) -> Iterator[list[Path]]:
    """Start supervisors; yield their logs."""
    environment = {**os.environ, "FAULTS_STORE": url, "FAULTS_LEDGER": str(folder / "effects")}
    words = [sys.executable, "-m", "tidemill", "worker", "tests.faults.app:app", "--processes", str(runners)]
    with ExitStack() as stack:
        logs = []
        for number in range(supervisors):
            logs.append(folder / f"worker-{number}.log")
            output = stack.enter_context(logs[-1].open("wb"))
            process = subprocess.Popen(words, env=environment, stdout=output, stderr=output)
            stack.callback(_end_process, process)
        yield logs


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def connections_of(supervisors: int, runners: int, seconds: float) -> dict[str, object]:
    """Count the connections of real idle workers, after they have closed those that they do not use."""
    with (
        running_postgres(settings={"max_connections": "600"}) as server,
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
    ):
        url = server.create_database("fleet")
        with closing(open_store(url)) as store:
            store.migrate()
        with real_workers(url, supervisors, runners, Path(folder)) as logs:
            wanted = supervisors * runners
            until = time.monotonic() + 60 + 10 * wanted
            while (ready := sum(log.read_text().count(") is ready") for log in logs)) < wanted:
                if time.monotonic() > until:
                    raise AssertionError(
                        f"{ready} of {wanted} runners are ready: {logs[0].read_text()[-1000:]}"
                    )
                time.sleep(0.5)
            counts = []
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                time.sleep(2)
                counts.append(_count(url))
        return {"supervisors": supervisors, "runners": wanted, "most": max(counts), "last": counts[-1]}


def _count(url: str) -> int:
    question = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    with psycopg.connect(url) as connection:
        row = connection.execute(question).fetchone()
    assert row is not None
    return int(row[0])


def main() -> int:
    """Print the comparison, or the connections of real workers."""
    parser = argparse.ArgumentParser(prog="dev.py bench fleet", description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--runners", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--connections", action="store_true")
    parser.add_argument("--supervisors", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.connections:
        counted = connections_of(given.supervisors, given.runners, given.seconds or 75.0)
        print(json.dumps(counted))
        return 0
    costs = compare(given.workers, given.runners, given.seconds or 30.0)
    ratio = costs[1].server_ms / costs[0].server_ms
    if given.json:
        print(json.dumps({"ratio": ratio, "ways": [cost._asdict() for cost in costs]}))
    else:
        print(
            f"{'':28} {'listeners':>9} {'CPU ms/s':>9} {'of listeners':>12} {'claims/job':>10} {'latest claim':>12}"
        )
        for cost in costs:
            print(
                f"{cost.way:28} {cost.listeners:9} {cost.server_ms:9.1f} {cost.listening_ms:12.1f} {cost.looks:10.1f}"
                f" {cost.latest:11.3f}s"
            )
        print(f"ratio {ratio:.3f}, aim {BAR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
