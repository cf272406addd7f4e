"""Shards: a list over all of them beside that of the slowest, a routed enqueue beside a plain one, and a killed shard.

    python3 dev.py bench shards [--shards 4] [--jobs 20000] [--rounds 100] [--delay 5] [--json]

Each shard is a PostgreSQL server of its own. Lists, counts and enqueues of both sides take turns, and medians are compared.
``--delay`` puts a proxy before each server that delays data by so many milliseconds each way: without it the processors of this
machine do the work of all servers one after the other, which the servers of an installation do at the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from bench.drain import new_jobs
from tests.faults.proxy import Proxy
from tests.servers.postgres import PrivatePostgres, running_postgres

from tidemill import App
from tidemill.client.jobs.api import Jobs
from tidemill.errors import StoreError

LIST_BAR, ENQUEUE_BAR = 1.5, 1 / 0.97
_LOT = 1000


class Comparison(NamedTuple):
    """Medians of two ways, in milliseconds."""

    what: str
    all: float
    slowest: float
    bar: float

    @property
    def ratio(self) -> float:
        return self.all / self.slowest


def tenants_of(shards: Sequence[str]) -> dict[str, str]:
    """A tenant for each shard, whose name begins with the shard."""
    return {shard: f"{shard}-acme" for shard in shards}


def open_app(home: str, urls: Mapping[str, str]) -> App:
    """An app whose tenants are in the shard that their name begins with."""
    return App(home, shards=dict(urls), place=lambda tenant: tenant.partition("-")[0], migrate=True)


def fill(app: App, tenants: Mapping[str, str], jobs: int) -> None:
    """Enqueue this many jobs in each shard."""
    for shard, tenant in tenants.items():
        app.shards.place(tenant)
        for _ in range(0, jobs, _LOT):
            app.stores[shard].enqueue([job._replace(tenant=tenant) for job in new_jobs(_LOT)])


def medians(acts: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of each act in milliseconds; the acts take turns."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            began = time.perf_counter()
            act()
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values[len(values) // 10 :]) for name, values in times.items()}


def over_all(app: App, tenants: Mapping[str, str], rounds: int) -> list[Comparison]:
    """Compare questions about all tenants with the same question to each shard alone."""
    comparisons = []
    for what, ask in (("list of 50 jobs", _list), ("counts by status", _counts)):
        acts: dict[str, Callable[[], object]] = {"*": partial(ask, app.jobs)}
        for shard in tenants:
            acts[shard] = partial(ask, app.at_store(shard).jobs)
        found = medians(acts, rounds)
        comparisons.append(Comparison(what, found.pop("*"), max(found.values()), LIST_BAR))
    return comparisons


def _list(jobs: Jobs) -> object:
    return jobs.list(tenant="*", limit=50)


def _counts(jobs: Jobs) -> object:
    return jobs.counts(tenant="*")


def routed(app: App, plain: App, tenant: str, rounds: int) -> Comparison:
    """Compare an enqueue that is routed to a shard with one of an app without shards, to the same server."""

    def enqueue_at(target: App) -> Callable[[], object]:
        return lambda: _enqueue(target, tenant)

    found = medians({"routed": enqueue_at(app), "plain": enqueue_at(plain)}, rounds * 5)
    return Comparison("one enqueue", found["routed"], found["plain"], ENQUEUE_BAR)


def killed(app: App, tenants: Mapping[str, str], victim: str, server: PrivatePostgres) -> dict[str, object]:
    """Kill a shard, and measure what the tenants of the others notice."""
    others = [tenant for shard, tenant in tenants.items() if shard != victim]
    server.stop("immediate")
    began = time.perf_counter()
    page = app.jobs.list(tenant="*", limit=50)
    first = time.perf_counter() - began
    began = time.perf_counter()
    again = app.jobs.list(tenant="*", limit=50)
    second = time.perf_counter() - began
    accepted = [_enqueue(app, tenant) for tenant in others for _ in range(20)]
    try:
        _enqueue(app, tenants[victim])
        refused = False
    except StoreError:
        refused = True
    server.start()
    deadline = time.monotonic() + 60
    while app.jobs.list(tenant="*", limit=50).missing and time.monotonic() < deadline:
        time.sleep(0.5)
    return {
        "missing": [*page.missing],
        "missing_again": [*again.missing],
        "first_list_s": round(first, 3),
        "second_list_s": round(second, 3),
        "accepted_for_others": len(accepted),
        "refused_for_its_tenant": refused,
        "whole_again": not app.jobs.list(tenant="*", limit=50).missing,
    }


def delayed(stack: ExitStack, url: str, milliseconds: float) -> str:
    """The URL of a proxy before a server, which delays data by this much each way."""
    if not milliseconds:
        return url
    parts = urlsplit(url)
    proxy = stack.enter_context(Proxy(("127.0.0.1", parts.port or 5432)))
    proxy.slow(milliseconds / 1000)
    return urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{proxy.port}"))


def measure(number: int, jobs: int, rounds: int, delay: float) -> tuple[list[Comparison], dict[str, object]]:
    """Measure everything on servers of this run."""
    with ExitStack() as stack:
        names = [f"s{index}" for index in range(1, number + 1)]
        servers = {name: stack.enter_context(running_postgres()) for name in ("home", *names)}
        urls = {
            name: delayed(stack, server.create_database("jobs"), delay) for name, server in servers.items()
        }
        home = urls.pop("home")
        app = stack.enter_context(closing(open_app(home, urls)))
        app.task(name="bench.noop")(_noop)
        tenants = tenants_of(names)
        fill(app, tenants, jobs)
        comparisons = over_all(app, tenants, rounds)
        plain = stack.enter_context(closing(App(urls[names[0]])))
        plain.task(name="bench.noop")(_noop)
        comparisons.append(routed(app, plain, tenants[names[0]], rounds))
        return comparisons, killed(app, tenants, names[-1], servers[names[-1]])


def _enqueue(app: App, tenant: str) -> UUID:
    with app.tenant(tenant):
        return app.enqueue("bench.noop").id


def _noop() -> None:
    """The task of the jobs."""


def main() -> int:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(prog="dev.py bench shards", description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    comparisons, outage = measure(given.shards, given.jobs, given.rounds, given.delay)
    if given.json:
        rows = [row._asdict() | {"ratio": row.ratio} for row in comparisons]
        print(json.dumps({"comparisons": rows, "outage": outage}))
        return 0
    for row in comparisons:
        print(
            f"{row.what:18} {row.all:8.2f} ms, slowest or plain {row.slowest:8.2f} ms, ratio {row.ratio:.2f}, aim {row.bar:.2f}"
        )
    print(f"one shard killed: {json.dumps(outage)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
