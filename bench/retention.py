"""Benchmark of archiving while a worker drains.

    python3 dev.py bench retention [--postgres URL] [--stores postgres,sqlite] [--jobs 100000] [--drain 120000] [--rounds 3]
                                   [--pace SHARE] [--json FILE]

``--jobs`` finished jobs are due for the archive. Every round drains ``--drain`` new jobs twice with ``tidemill worker``, once with
retention off and once with retention on, in alternating order. The ratio compares the two rates of one round. Finally one run without
pauses archives the remaining jobs.
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
from pathlib import Path
from typing import Any

from bench.drain import TASK, drain, fill
from bench.engine_storage import Database, Server
from bench.limits import measured, wait_for
from bench.retention_app import MOST_ROUNDS
from tests.servers.postgres import running_postgres

from tidemill import App, ArchivePolicy, Retention
from tidemill.domain.archive_totals import LEASE, read_sums
from tidemill.domain.job import NewJob
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

ROOT = Path(__file__).resolve().parents[1]
TARGET = 0.95


@contextmanager
def working(url: str, archive: str, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Run ``tidemill worker``."""
    words = ["worker", "bench.retention_app:app", "--processes", "1", "--concurrency", "200"]
    more = {
        "TIDEMILL_STORE": url,
        "BENCH_ARCHIVE": archive,
        "BENCH_PACE": "" if options.pace is None else str(options.pace),
    }
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words],
            env=os.environ | more,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def archived(store: Store) -> int:
    """Return how many jobs were archived so far."""
    lease = next((lease for lease in store.leases() if lease.name == LEASE), None)
    return 0 if lease is None else sum(sums.archived for sums in read_sums(lease.metadata).values())


def one_drain(
    store: Store, url: str, task: str, archive: str, options: argparse.Namespace, folder: Path
) -> dict[str, float]:
    """Drain new jobs, and return the rates of the worker and of the archive."""
    for start in range(0, options.drain, 5_000):
        count = min(5_000, options.drain - start)
        store.enqueue([NewJob(new_id(), task, '{"n": 1}') for _ in range(count)])
    before, began = archived(store), time.perf_counter()
    with working(url, archive, options, folder):
        wait_for(store, task, options.drain)
        seconds, moved = time.perf_counter() - began, archived(store) - before
    return {"rate": measured(store, task), "archived": moved, "archive_rate": moved / seconds}


def measure(url: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure one store."""
    store = open_store(url, migrate=True)
    result: dict[str, Any] = {"off": [], "on": [], "ratio": [], "archive_rate": []}
    try:
        store.migrate()
        fill(store, options.jobs)
        drain(store, options.jobs)
        for number in range(options.rounds):
            found: dict[str, dict[str, float]] = {}
            for turn, archive in enumerate(("off", "on") if number % 2 == 0 else ("on", "off")):
                task = f"round_{2 * number + turn}"
                found[archive] = one_drain(store, url, task, archive, options, folder)
            assert found["off"]["archived"] == 0
            result["off"].append(found["off"]["rate"])
            result["on"].append(found["on"]["rate"])
            result["ratio"].append(found["on"]["rate"] / found["off"]["rate"])
            result["archive_rate"].append(found["on"]["archive_rate"])
            print(
                f"  {number + 1}/{options.rounds} off {found['off']['rate']:,.0f}/s, on {found['on']['rate']:,.0f}/s, "
                f"ratio {result['ratio'][-1]:.1%}, archived {found['on']['archived']:,.0f} at {found['on']['archive_rate']:,.0f}/s",
                file=sys.stderr,
                flush=True,
            )
        result["flat_out"] = flat_out(store)
    finally:
        store.close()
    return result


def flat_out(store: Store) -> float:
    """Archive the rest without pauses, and return the rate."""
    settings = Retention(use_defaults=False, policies=[ArchivePolicy("old", tasks=[TASK], max_age=0)])
    done = App(store, retention=settings).archive.run(limit=10**9, budget="2h")
    assert done.failed == 0
    return done.archived / done.took.total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--jobs", type=int, default=100_000, help="finished jobs that are due")
    parser.add_argument(
        "--drain",
        type=int,
        default=120_000,
        help="jobs that a worker drains; a drain shorter than some seconds shows one batch only",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pace", type=float, help="share of time to archive; the default is that of the store"
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not 1 <= options.rounds <= MOST_ROUNDS // 2:
        parser.error(f"--rounds must be between 1 and {MOST_ROUNDS // 2}")
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in options.stores.split(","):
            print(name, file=sys.stderr, flush=True)
            if name == "sqlite":
                results[name] = measure(f"sqlite:///{folder}/jobs.db", options, folder)
                continue
            url = options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
            server = Server(url)
            stack.callback(server.close)
            database = Database(server, "bench_retention")
            database.fresh()
            try:
                results[name] = measure(database.url, options, folder)
            finally:
                database.drop()
    for name, result in results.items():
        shares = result["ratio"]
        print(
            f"{name}: drain {statistics.median(result['off']):,.0f}/s without and {statistics.median(result['on']):,.0f}/s with "
            f"archiving; ratio {statistics.median(shares):.1%} ({min(shares):.1%}–{max(shares):.1%}, target {TARGET:.0%}); "
            f"archived {statistics.median(result['archive_rate']):,.0f}/s during the drain, {result['flat_out']:,.0f}/s without pauses"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
