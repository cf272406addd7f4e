"""Benchmark of the cost of limits.

    python3 dev.py bench limits [--postgres URL] [--stores postgres,sqlite] [--jobs 20000] [--processes 2] [--rounds 3]
                                [--ms 0] [--only plain,keyed,…] [--json FILE]

Every round drains each case in turn with ``tidemill worker``:

- ``plain``: jobs without limits
- ``keyed``: 50 keys, three jobs at a time each
- ``together``: one limit of 50 for all jobs
- ``both``: both of these on every job
- ``many``: 10,000 keys, one job at a time each
- ``beside-limited``: jobs without limits, and a quarter as many later ones with limits
- ``after-limited``: the same, but the jobs with limits are older and run first, so that they share the machine
- ``beside-closed``: jobs without limits, and ten times as many that are blocked by a full limit
- ``among-closed``: 50 keys, of which one is full and blocks nine tenths of the jobs

The rate is that of the jobs that can run, from the first claim to the last end. Ratios are to ``plain`` in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from bench.engine_storage import Database, Server
from tests.servers.postgres import running_postgres

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 300.0

CASES = {
    "plain": ("plain", None), "keyed": ("keyed", 0.40), "together": ("together", 0.40), "both": ("keyed_together", 0.40),
    "many": ("many", 0.35), "beside-limited": ("plain", 0.95), "after-limited": ("plain", None), "beside-closed": ("plain", 0.95),
    "among-closed": ("keyed", 0.40),
}  # fmt: skip
"""Each case with the task whose rate is reported, and the lowest acceptable ratio to ``plain``."""


@contextmanager
def working(url: str, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Run ``tidemill worker``."""
    words = ["worker", "bench.limits_app:app", "--processes", str(options.processes), "--concurrency", "200"]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words],
            env=environment(url, options),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def environment(url: str, options: argparse.Namespace) -> dict[str, str]:
    return os.environ | {"TIDEMILL_STORE": url, "BENCH_MS": str(options.ms)}


def rate(url: str, case: str, options: argparse.Namespace, folder: Path) -> float:
    """Return jobs per second."""
    fill = [sys.executable, "-m", "bench.limits_fill", case, str(options.jobs)]
    subprocess.run(fill, env=environment(url, options), cwd=ROOT, check=True)
    store = open_store(url)
    try:
        with working(url, options, folder):
            task = CASES[case][0]
            wait_for(store, task, options.jobs)
        return measured(store, task)
    finally:
        store.close()


def ended(store: Store, task: str) -> int:
    where = JobFilter(ALL_TENANTS, tasks=frozenset({task}), states=frozenset({JobState.COMPLETED}))
    return sum(store.count(where).values())


def wait_for(store: Store, task: str, jobs: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while ended(store, task) < jobs:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {ended(store, task)} of {jobs} jobs of {task} ended")
        time.sleep(0.25)


def measured(store: Store, task: str) -> float:
    where = JobFilter(ALL_TENANTS, tasks=frozenset({task}), states=frozenset({JobState.COMPLETED}))
    first: datetime | None = None
    last: datetime | None = None
    count, cursor = 0, None
    while True:
        page = store.jobs(where, sort=Sort.OLDEST, limit=1000, after=cursor)
        for job in page.items:
            assert job.claimed_at is not None
            assert job.finished_at is not None
            first = job.claimed_at if first is None else min(first, job.claimed_at)
            last = job.finished_at if last is None else max(last, job.finished_at)
            count += 1
        cursor = page.next
        if cursor is None:
            break
    assert first is not None
    assert last is not None
    return count / (last - first).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=float, default=0.0)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    cases = {"plain", *options.only.split(",")}
    only = [case for case in CASES if case in cases]
    results: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: Server | None = None
        if "postgres" in options.stores:
            url = options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
            server = Server(url)
            stack.callback(server.close)
        for name in options.stores.split(","):
            rates_of = results.setdefault(name, {case: [] for case in only})
            for number in range(options.rounds):
                for case in only if number % 2 == 0 else reversed(only):
                    rates_of[case].append(one(name, case, options, folder, server))
                    print(
                        f"  {name} {number + 1}/{options.rounds} {case}: {rates_of[case][-1]:,.0f}/s",
                        file=sys.stderr,
                        flush=True,
                    )
    for name, rates_of in results.items():
        print(f"\n{name}: jobs/s (median), ratio to plain (median, range), target")
        for case, rates in rates_of.items():
            shares = [mine / theirs for mine, theirs in zip(rates, rates_of["plain"], strict=True)]
            aim = CASES[case][1]
            target = "" if aim is None else f"  >= {aim:.0%}"
            print(
                f"  {case:15} {statistics.median(rates):>9,.0f}  {statistics.median(shares):7.1%} "
                f"({min(shares):.1%}–{max(shares):.1%}){target}"
            )
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


def one(name: str, case: str, options: argparse.Namespace, folder: Path, server: Server | None) -> float:
    if name == "sqlite":
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return rate(f"sqlite:///{place}/jobs.db", case, options, folder)
    assert server is not None
    database = Database(server, "bench_limits")
    database.fresh()
    try:
        return rate(database.url, case, options, folder)
    finally:
        database.drop()


if __name__ == "__main__":
    main()
