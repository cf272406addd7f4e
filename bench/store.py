"""Benchmark of the stores, compared with the bare statement in the same run.

    python3 dev.py bench store [--stores memory,sqlite,postgres] [--jobs 100000] [--quick] [--json FILE] [--postgres URL]

For each store: enqueue one by one and in bulk, then claim and finish by its own verbs in batches of 500 (default durability, history
kept, results stored) on an empty store, with 200,000 additional pending jobs, with 1,000,000 additional finished jobs and, on
PostgreSQL, for 400,000 jobs during a long transaction. A yardstick runs before and after each drain.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
from bench import seeds, yardstick
from bench.drain import drain, fill, new_jobs
from tests.servers.postgres import running_postgres

from tidemill.stores.base import Store
from tidemill.stores.open import open_store

Result = dict[str, object]
Stick = Callable[[], float]


def rate(count: int, work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def enqueueing(name: str, store: Store, singles: int, bulk: int) -> Iterator[Result]:
    jobs = new_jobs(singles)
    yield {
        "store": name,
        "what": "enqueue one by one",
        "rate": rate(singles, lambda: [store.enqueue([job]) for job in jobs]),
    }
    batches = [new_jobs(1_000) for _ in range(bulk // 1_000)]
    yield {
        "store": name,
        "what": "enqueue 1,000 at a time",
        "rate": rate(bulk, lambda: [store.enqueue(b) for b in batches]),
    }


def draining(
    name: str,
    what: str,
    store: Store,
    jobs: int,
    stick: Stick,
    *,
    each: Stick | None = None,
    slice_of: int = 0,
) -> Result:
    """Run a drain between two runs of the yardstick; ``each`` is a second yardstick that works job by job."""
    before, before_each = stick(), each() if each is not None else 0.0
    done = drain(store, jobs, connections=1 if name == "sqlite" else 2, slice_of=slice_of)
    around = statistics.mean((before, stick()))
    result: Result = {
        "store": name,
        "what": what,
        "rate": done.rate,
        "yardstick": around,
        "share": done.rate / around,
    }
    if each is not None:
        result["yardstick_each"] = statistics.mean((before_each, each()))
        result["share_each"] = done.rate / cast("float", result["yardstick_each"])
    if slice_of:
        marks = [0.0, *done.slices]
        result["slices"] = [round(slice_of / (end - start)) for start, end in itertools.pairwise(marks)]
    return result


@contextmanager
def long_transaction(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select txid_current(), count(*) from tidemill.ready")
        yield
        connection.rollback()


def on_postgres(url: str, jobs: int, pending: int, finished: int) -> Iterator[Result]:
    def stick() -> float:
        return yardstick.postgres(url, jobs)

    def fresh() -> Store:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema if exists tidemill cascade")
        return open_store(url, migrate=True)

    def settle() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum analyze tidemill.ready")
            connection.execute("checkpoint")

    store = fresh()
    yield from enqueueing("postgres", store, 2_000, jobs // 2)
    for what, beside in (("empty", 0), (f"{pending:,} pending jobs", pending)):
        store.close()
        store = fresh()
        fill(store, jobs + beside)
        settle()
        yield draining("postgres", f"claim+finish, {what}", store, jobs, stick)
    store.close()
    store = fresh()
    store.lanes()
    seeds.finished_postgres(url, finished)
    fill(store, jobs)
    settle()
    yield draining("postgres", f"claim+finish, {finished:,} finished jobs", store, jobs, stick)
    store.close()
    store = fresh()
    fill(store, 4 * jobs + 5_000)
    settle()
    with long_transaction(url):
        what = f"claim+finish, long transaction, {4 * jobs:,} jobs"
        yield draining("postgres", what, store, 4 * jobs, stick, slice_of=jobs)
    store.close()


def on_sqlite(folder: Path, jobs: int, pending: int, finished: int) -> Iterator[Result]:
    made = 0

    def stick() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return yardstick.sqlite(Path(place), jobs)

    def each() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return yardstick.sqlite(Path(place), jobs, each=True)

    def fresh() -> tuple[Store, Path]:
        nonlocal made
        made += 1
        path = folder / f"jobs{made}.db"
        return open_store(f"sqlite:///{path}"), path

    store, path = fresh()
    yield from enqueueing("sqlite", store, 2_000, jobs // 2)
    store.close()
    for what, beside, ended in (
        ("empty", 0, 0),
        (f"{pending:,} pending jobs", pending, 0),
        (f"{finished:,} finished jobs", 0, finished),
    ):
        store, path = fresh()
        store.lanes()
        if ended:
            seeds.finished_sqlite(path, ended)
        fill(store, jobs + beside)
        yield draining("sqlite", f"claim+finish, {what}", store, jobs, stick, each=each)
        store.close()


def on_memory(jobs: int) -> Iterator[Result]:
    store = open_store("memory://")
    yield from enqueueing("memory", store, 2_000, jobs // 2)
    done = drain(store, jobs // 2, connections=1)
    yield {"store": "memory", "what": "claim+finish, empty", "rate": done.rate}
    store.close()


def table(results: list[Result]) -> str:
    lines = [f"{'store':<10}{'what':<52}{'jobs/s':>10}{'yardstick':>11}{'share':>8}"]
    for result in results:
        stick = f"{result['yardstick']:>11,.0f}{result['share']:>8.0%}" if "yardstick" in result else ""
        lines.append(f"{result['store']:<10}{result['what']:<52}{result['rate']:>10,.0f}{stick}")
        if "yardstick_each" in result:
            other = f"{result['yardstick_each']:>11,.0f}{result['share_each']:>8.0%}"
            lines.append(f"{'':<10}{'  compared with a yardstick that works job by job':<62}{other}")
        if "slices" in result:
            lines.append(" " * 10 + "each quarter: " + ", ".join(f"{value:,}" for value in result["slices"]))  # type: ignore[attr-defined]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> list[Result]:
    small = options.quick
    jobs, pending, finished = (10_000, 20_000, 50_000) if small else (options.jobs, 200_000, 1_000_000)
    results: list[Result] = []

    def take(results_of_store: Iterator[Result]) -> None:
        for result in results_of_store:
            say(f"  {result['store']}: {result['what']}: {result['rate']:,.0f}/s")
            results.append(result)

    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        if "memory" in options.stores:
            take(on_memory(jobs))
        if "sqlite" in options.stores:
            take(on_sqlite(Path(folder), jobs, pending, finished))
        if "postgres" in options.stores and options.postgres:
            take(on_postgres(options.postgres, jobs, pending, finished))
        elif "postgres" in options.stores:
            settings = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
            with running_postgres(fsync=True, settings=settings) as server:
                take(on_postgres(server.create_database("bench"), jobs, pending, finished))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", default="memory,sqlite,postgres", type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="small numbers, as a smoke test")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--postgres", help="use this server and its database instead of a private one")
    options = parser.parse_args()
    results = run(options)
    print(table(results))
    print(json.dumps(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
