"""Cost of a fleet for its PostgreSQL server, from the costs of single operations.

    python3 dev.py bench scale [--measure] [--jobs-per-minute 1000000] [--seconds 3] [--postgres URL] [--json FILE]

Without ``--measure`` the constants of ``bench.scale_model`` are used, and nothing runs. With it, each operation is repeated for some
seconds against a server of its own, and its CPU is that of the server's processes, so other load on the machine changes the times
but hardly the costs. A figure that was not used to fit the model is compared with it; the bar is 30 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
from bench.drain import drain, fill, new_jobs
from bench.engine_proc import cpu_seconds, family
from bench.engine_storage import Database, Server
from bench.scale_model import FLEETS, Costs, fitted, load_of, step_cost
from tests.servers.postgres import running_postgres

from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

BAR = 0.30
FILLED = {1: 20_000, 10: 60_000, 500: 200_000}
"""Jobs that wait before the steps of a size are measured."""

FAR_LEASE = timedelta(days=1)

UNCHECKED = (
    "more than a few claimers at once on a server with many cores, where the locks of the write-ahead log matter",
    "a real network between workers, poolers and the server",
    "10,000 sockets on one broker, and 10,000 real worker processes",
    "the cost of hubs and brokers themselves, which run elsewhere",
    "history: at this rate rows must leave the live tables within days",
)


class Check(NamedTuple):
    """A measured figure, and that of the model."""

    what: str
    measured: float
    model: float

    @property
    def deviation(self) -> float:
        return self.measured / self.model - 1 if self.model else 0.0

    @property
    def is_met(self) -> bool:
        return abs(self.deviation) <= BAR


class Meter:
    """Measures the CPU of a server's processes for one operation."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid, self._seconds = pid, seconds

    def cost(self, act: Callable[[], int]) -> float:
        """Repeat an operation, which returns its number of units (0 ends the measurement); return microseconds of server CPU for each unit."""
        act()  # plans and caches
        before, units = self._used(), 0
        until = time.monotonic() + self._seconds
        while time.monotonic() < until and (done := act()):
            units += done
        return (self._used() - before) * 1e6 / max(units, 1)

    def _used(self) -> float:
        return cpu_seconds(family(self._pid), reaped=True)


@contextmanager
def listening(url: str, number: int) -> Iterator[None]:
    """Hold this many connections that listen."""
    with ExitStack() as stack:
        for _ in range(number):
            connection = stack.enter_context(psycopg.connect(url, autocommit=True))
            connection.execute("listen tidemill_bench")
        yield


def steps(meter: Meter, store: Store, batch: int) -> float:
    """Finish and claim jobs in steps of this size."""
    at_once, left = max(200, batch * 8), FILLED[batch]

    def act() -> int:
        nonlocal left
        left -= at_once
        return drain(store, at_once, connections=1, batch=batch).jobs if left > 0 else 0

    fill(store, FILLED[batch])
    cost = meter.cost(act)
    if left > 0:
        drain(store, left, connections=1)
    return cost


def notify_cost(meter: Meter, url: str, listeners: int) -> float:
    """NOTIFY on a channel without a listener; the cost of one without any listener is subtracted."""
    with psycopg.connect(url, autocommit=True) as connection:

        def act() -> int:
            connection.execute("notify tidemill_other")
            return 1

        alone = meter.cost(act)
        with listening(url, listeners):
            return max(meter.cost(act) - alone, 0.0) / listeners


def beats(meter: Meter, store: Store, number: int) -> float:
    """Heartbeats of this many workers in one statement."""
    ids = [store.register(Worker(new_id(), f"w{n}"), lease=FAR_LEASE).id for n in range(number)]

    def act() -> int:
        store.beat(ids, lease=FAR_LEASE)
        return 1

    return meter.cost(act)


def empty_claim(meter: Meter, store: Store) -> float:
    """A look of an idle worker: the lanes, and a claim that finds nothing."""
    worker = store.register(Worker(new_id(), "idle"), lease=FAR_LEASE).id
    store.enqueue(new_jobs(1, "rare"))
    (lane,) = store.lanes(["rare"])
    request = ClaimRequest(worker, [lane._replace(quota=1)], 1)
    store.claim(request)

    def act() -> int:
        store.lanes()
        store.claim(request)
        return 1

    return meter.cost(act)


def enqueueing(meter: Meter, store: Store, number: int) -> float:
    def act() -> int:
        store.enqueue(new_jobs(number))
        return number

    return meter.cost(act)


def measure(server: Server, seconds: float) -> tuple[Costs, list[Check]]:
    """Measure the constants, and check the model with figures that were not used to fit it."""
    assert server.pid is not None
    meter = Meter(server.pid, seconds)
    database = Database(server, "scale")
    database.fresh()
    store = open_store(database.url, migrate=True)
    try:
        look = empty_claim(meter, store)  # first, because dead rows of earlier measurements would cost more
        single, bulk = enqueueing(meter, store, 1), enqueueing(meter, store, 1_000)
        small, middle, large = (steps(meter, store, batch) for batch in (1, 10, 500))
        step, job = fitted(small, 1, large, 500)
        host, many = beats(meter, store, 1), beats(meter, store, 100)
        worker = max(many - host, 0.0) / 99
        few, more = notify_cost(meter, database.url, 10), notify_cost(meter, database.url, 60)
        costs = replace(
            Costs(),
            step=step,
            job=job,
            single=round(single, 1),
            bulk=round(bulk, 1),
            beat_host=round(host - worker, 1),
            beat_worker=round(worker, 2),
            poll=round(look, 1),
            notify=round(more, 2),
            herd=round(look, 1),
        )
        checks = [
            Check("a job in steps of 10, µs", middle, step_cost(costs, 10)),
            Check("NOTIFY with 10 listeners, µs each", few, more),
            Check("50 heartbeats in one statement, µs", beats(meter, store, 50), host + 49 * worker),
        ]
    finally:
        store.close()
        database.drop()
    return costs, checks


def table(rate: float, costs: Costs) -> str:
    """Return the table of fleets."""
    lines = [
        f"{rate * 60:,.0f} jobs a minute, minimal payload; cores of one PostgreSQL server",
        "",
        f"{'fleet':<42}{'connections (GB)':>18}{'steps':>8}{'enqueue':>9}{'beats':>8}{'NOTIFY':>8}{'herd':>8}{'cores':>8}",
    ]
    for fleet in FLEETS:
        load = load_of(fleet, rate, costs)
        held = f"{fleet.connections:,} ({load.memory:.1f})"
        lines.append(
            f"{fleet.name:<42}{held:>18}{load.steps:>8.2f}{load.enqueue:>9.2f}{load.beats:>8.2f}{load.notify:>8.2f}"
            f"{load.herd:>8.2f}{load.cores:>8.1f}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 dev.py bench scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--measure", action="store_true", help="measure the constants first")
    parser.add_argument("--jobs-per-minute", type=float, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--postgres", metavar="URL", help="a server on this machine instead of a private one")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    costs, checks = Costs(), list[Check]()
    if options.measure:
        with ExitStack() as stack:
            url = options.postgres or stack.enter_context(running_postgres()).url()
            server = Server(url)
            stack.callback(server.close)
            if server.pid is None:
                parser.error(
                    "--measure reads the CPU of the server's processes; give a server on this machine"
                )
            costs, checks = measure(server, options.seconds)
    rate = options.jobs_per_minute / 60
    print("microseconds of server CPU" + (", measured now" if options.measure else ""))
    print("  " + ", ".join(f"{name} {value:g}" for name, value in asdict(costs).items()) + "\n")
    print(table(rate, costs))
    for check in checks:
        verdict = "ok" if check.is_met else "NOT within 30 %"
        print(
            f"check: {check.what}: {check.measured:.1f}, model {check.model:.1f} ({check.deviation:+.0%}, {verdict})"
        )
    print("\nnot checked:\n" + "\n".join(f"  - {text}" for text in UNCHECKED))
    if options.json is not None:
        fleets = {fleet.name: asdict(load_of(fleet, rate, costs)) for fleet in FLEETS}
        found = [{**check._asdict(), "is_met": check.is_met} for check in checks]
        options.json.write_text(
            json.dumps({"costs": asdict(costs), "fleets": fleets, "checks": found}, indent=1)
        )
    return 0 if all(check.is_met for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
