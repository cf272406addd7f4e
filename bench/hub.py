"""Benchmark of a hub: CPU of PostgreSQL per job with many one-slot hands, compared with as many direct workers.

    python3 dev.py bench hub [--hands 1000] [--jobs 6000] [--seconds 0.5] [--wire nats|rabbitmq|URL] [--json]

Hands and workers are threads of this process: each finishes a job and asks for the next one, then waits as long as its job takes.
The benchmark reports CPU time of the server and not rates, because both sides share the machine with the simulated workers.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import NamedTuple, cast
from uuid import UUID

from bench.drain import RESULT, TASK, fill
from bench.engine_proc import cpu_seconds
from tests.engine.hub_kit import a_key
from tests.servers.postgres import TestPostgres, running_postgres
from tests.servers.rabbitmq import running_rabbitmq
from tests.servers.restartable import running_nats_server

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.engine.hub.server import Hub
from tidemill.errors import StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.hub.store import ANY_LANE, HubStore
from tidemill.stores.open import open_store
from tidemill.stores.wire.open import open_wire

_STACK = 256 * 1024  # bytes of the stack of a thread
_PLAIN = Lane("default", "default", 0)


class HubFigures(NamedTuple):
    """The cost of one side."""

    jobs: int
    seconds: float
    server_us: float  #: CPU of the server per job, in microseconds
    connections: int
    joined: float  #: asks that one deal answered, on average


class Fleet:
    """Simulated one-slot workers on one store."""

    def __init__(self, store: Store, lane: Lane, workers: list[UUID], jobs: int, seconds: float) -> None:
        self._store, self._lane, self._seconds = store, lane, seconds
        self._workers, self._left = workers, jobs
        self._lock = threading.Lock()
        self.done = 0

    def run(self) -> None:
        """Work until all jobs are finished."""
        threads = [threading.Thread(target=self._work, args=(worker,)) for worker in self._workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, worker: UUID) -> None:
        job: Claim | None = None
        while self._left > 0 or job is not None:
            finishes = [] if job is None else [Finish(job, COMPLETED, RESULT, started_ago=self._seconds)]
            try:
                if self._left > 0:
                    step = self._store.step(finishes, ClaimRequest(worker, [self._lane], 1, [TASK]))
                    lost, claims = step
                else:
                    lost, claims = self._store.finish(finishes), []
            except StoreError:
                time.sleep(0.05)
                continue
            with self._lock:
                self.done += len(finishes) - len(lost)
                self._left -= len(claims)
            job = claims[0] if claims else None
            time.sleep(self._seconds if claims else 0.05)


def measured(
    server: TestPostgres, store: Store, lane: Lane, workers: list[UUID], options: argparse.Namespace
) -> tuple[int, float, float, int]:
    """Run a fleet; return its jobs, the seconds, the CPU per job and the connections."""
    fleet = Fleet(store, lane, workers, options.jobs, options.seconds)
    before, begun = cpu_seconds(server.pids, reaped=True), time.monotonic()
    connections: list[int] = []
    watch = threading.Timer(1.0, lambda: connections.append(_connections(server)))
    watch.start()
    fleet.run()
    watch.cancel()
    seconds = time.monotonic() - begun
    used = cpu_seconds(server.pids, reaped=True) - before
    return fleet.done, seconds, used / max(fleet.done, 1) * 1e6, max(connections, default=0)


def _connections(server: TestPostgres) -> int:
    return int(server.ask("select count(*) - 1 from pg_stat_activity where backend_type = 'client backend'"))


def direct(server: TestPostgres, url: str, options: argparse.Namespace) -> HubFigures:
    """Workers with connections of their own, of which this process shares a few."""
    store = open_store(f"{url}?pool=20")
    try:
        fill(store, options.jobs + options.hands)
        workers = _registered(store, options.hands, new_id)
        return HubFigures(*measured(server, store, _PLAIN, workers, options), 1.0)
    finally:
        store.close()


def through_hub(server: TestPostgres, url: str, wire: str, options: argparse.Namespace) -> HubFigures:
    """Hands on one hub."""
    store = open_store(url)
    fill(store, options.jobs + options.hands)
    hub_wire = open_wire(wire)
    hub = Hub(store, SystemClock(), [hub_wire])
    far = HubStore(open_wire(wire), a_key(store))
    hub.start()
    try:
        hub_wire.wait_connected(30)
        workers = _registered(cast("Store", far), options.hands, far.new_worker_id)
        figures = measured(server, cast("Store", far), ANY_LANE, workers, options)
        counts = hub.counts()
        return HubFigures(*figures, counts.asked / max(counts.deals, 1))
    finally:
        far.close()
        hub.close()
        store.close()


def _registered(store: Store, number: int, make: Callable[[], UUID]) -> list[UUID]:
    lease = timedelta(minutes=30)
    return [store.register(Worker(make(), "bench"), lease=lease).id for _ in range(number)]


@contextmanager
def wire_at(kind: str) -> Iterator[str]:
    """The address of the wire: the given one, or that of a private broker."""
    if kind == "nats":
        with running_nats_server() as broker:
            yield f"{broker.url}/bench"
    elif kind == "rabbitmq":
        with running_rabbitmq() as node:
            yield f"{node.url.removesuffix('/%2F')}/bench"
    else:
        yield kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hands", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=6_000)
    parser.add_argument("--seconds", type=float, default=0.5, help="time that a job takes")
    parser.add_argument(
        "--wire", default="nats", help="nats or rabbitmq for a private server, or the URL of a wire"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    threading.stack_size(_STACK)
    with ExitStack() as stack:
        server = stack.enter_context(running_postgres(settings={"max_connections": "100"}))
        wire = stack.enter_context(wire_at(options.wire))
        sides: dict[str, HubFigures] = {}
        for name in ("direct", "hub"):
            url = server.create_database(name)
            fresh = open_store(url)
            fresh.migrate()
            fresh.close()
            sides[name] = (
                direct(server, url, options) if name == "direct" else through_hub(server, url, wire, options)
            )
    ratio = sides["hub"].server_us / sides["direct"].server_us
    if options.json:
        print(json.dumps({name: side._asdict() for name, side in sides.items()} | {"ratio": ratio}))
        return
    for name, side in sides.items():
        print(
            f"{name:<8}{side.jobs:>7} jobs {side.seconds:>6.1f} s {side.server_us:>7.1f} µs of server CPU a job"
            f" {side.connections:>4} connections {side.joined:>6.1f} asks a deal"
        )
    print(f"hub / direct: {ratio:.2f}")


if __name__ == "__main__":
    main()
