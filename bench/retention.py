"""Benchmark of archiving while a worker drains.

    python3 dev.py bench retention [--postgres URL] [--stores postgres,sqlite] [--jobs 100000] [--drain 120000] [--rounds 3]
                                   [--slice SECONDS] [--flat-out 100000] [--pace SHARE] [--json FILE]

``--jobs`` finished jobs are due for the archive. Every round drains ``--drain`` new jobs with one ``tidemill worker``, which archives in
every second slice of ``--slice`` seconds. The ratio compares the jobs that finished in slices with archiving and in those without;
noise of the machine that lasts longer than a slice affects both. With ``--slice 0`` every round drains twice instead, once with
retention off and once with retention on. Finally one run without pauses archives more jobs, ``--flat-out`` at most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.drain import TASK, drain, fill
from bench.engine_storage import Database, Server
from bench.limits import measured, wait_for
from bench.retention_app import MOST_ROUNDS, slice_at
from tests.servers.postgres import running_postgres

from tidemill import App, ArchivePolicy, Retention
from tidemill.domain.archive_totals import LEASE, read_sums
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import NewJob
from tidemill.domain.states import JobState
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
        "BENCH_SLICE": str(options.slice) if options.slice else "",
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


def counts_of_slices(store: Store, task: str, length: float) -> dict[int, int]:
    """How many jobs finished in each slice that was drained from its begin to its end."""
    where = JobFilter(ALL_TENANTS, tasks=frozenset({task}), states=frozenset({JobState.COMPLETED}))
    counts: Counter[int] = Counter()
    cursor = None
    while True:
        page = store.jobs(where, sort=Sort.OLDEST, limit=1000, after=cursor)
        counts.update(slice_at(job.finished_at.timestamp(), length) for job in page.items if job.finished_at)
        cursor = page.next
        if cursor is None:
            break
    return {number: counts[number] for number in range(min(counts) + 1, max(counts))}


def pairs_of_slices(counts: dict[int, int]) -> list[tuple[int, int]]:
    """The jobs of each slice without archiving and of its neighbour with archiving, from left and right in turn."""
    pairs: list[tuple[int, int]] = []
    for number in sorted(counts):
        neighbour = number + (1 if len(pairs) % 2 == 0 else -1)
        if number % 2 == 0 and neighbour in counts:
            pairs.append((counts[number], counts[neighbour]))
    return pairs


def ratio_of(pairs: list[tuple[int, int]]) -> float:
    return sum(on for _, on in pairs) / sum(off for off, _ in pairs)


def interval_of(pairs: list[tuple[int, int]], draws: int = 2_000) -> tuple[float, float]:
    """The range that contains the ratio with a probability of 90 %, by drawing the pairs again."""
    dice = random.Random(1)
    found = sorted(ratio_of(dice.choices(pairs, k=len(pairs))) for _ in range(draws))
    return found[draws // 20], found[-draws // 20]


def in_slices(
    store: Store, url: str, options: argparse.Namespace, folder: Path, result: dict[str, Any]
) -> None:
    """Drain with one worker that archives in every second slice."""
    pairs: list[tuple[int, int]] = []
    for number in range(options.rounds):
        found = one_drain(store, url, f"round_{number}", "on", options, folder)
        pairs += pairs_of_slices(counts_of_slices(store, f"round_{number}", options.slice))
        result["archive_rate"].append(found["archive_rate"])
        low, high = interval_of(pairs) if pairs else (0.0, 0.0)
        print(
            f"  {number + 1}/{options.rounds} {found['rate']:,.0f}/s, archived {found['archived']:,.0f} at "
            f"{found['archive_rate']:,.0f}/s, {len(pairs)} pairs of slices, ratio {ratio_of(pairs) if pairs else 0:.1%} ({low:.1%}–{high:.1%})",
            file=sys.stderr,
            flush=True,
        )
    if len(pairs) < 5:
        raise SystemExit(f"only {len(pairs)} pairs of slices; use a larger --drain or a shorter --slice")
    result["off"] = [off / options.slice for off, _ in pairs]
    result["on"] = [on / options.slice for _, on in pairs]
    result["ratio"] = [ratio_of(pairs), *interval_of(pairs)]
    result["pairs"] = len(pairs)


def measure(url: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure one store."""
    store = open_store(url, migrate=True)
    result: dict[str, Any] = {"off": [], "on": [], "ratio": [], "archive_rate": []}
    try:
        store.migrate()
        fill(store, options.jobs)
        drain(store, options.jobs)
        if options.slice:
            in_slices(store, url, options, folder, result)
        for number in range(0 if options.slice else options.rounds):
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
        result["flat_out"] = flat_out(store, options.flat_out)
    finally:
        store.close()
    return result


def flat_out(store: Store, limit: int) -> float:
    """Archive the rest without pauses, or ``limit`` jobs of it, and return the rate."""
    settings = Retention(use_defaults=False, policies=[ArchivePolicy("old", tasks=[TASK], max_age=0)])
    done = App(store, retention=settings).archive.run(limit=limit, budget="2h")
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
    parser.add_argument("--flat-out", type=int, default=100_000, help="most jobs to archive without pauses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--slice",
        type=float,
        default=1.0,
        help="seconds with and without archiving in turn; 0 for whole drains",
    )
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
        if "pairs" in result:
            ratio, low, high = shares
            print(
                f"{name}: drain {statistics.fmean(result['off']):,.0f}/s without and {statistics.fmean(result['on']):,.0f}/s with "
                f"archiving in {result['pairs']} pairs of slices; ratio {ratio:.1%} (90 % interval {low:.1%}–{high:.1%}, target "
                f"{TARGET:.0%}); archived {statistics.median(result['archive_rate']):,.0f}/s during the drain, "
                f"{result['flat_out']:,.0f}/s without pauses"
            )
            continue
        print(
            f"{name}: drain {statistics.median(result['off']):,.0f}/s without and {statistics.median(result['on']):,.0f}/s with "
            f"archiving; ratio {statistics.median(shares):.1%} ({min(shares):.1%}–{max(shares):.1%}, target {TARGET:.0%}); "
            f"archived {statistics.median(result['archive_rate']):,.0f}/s during the drain, {result['flat_out']:,.0f}/s without pauses"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
