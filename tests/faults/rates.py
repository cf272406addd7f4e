"""Rates measured at the handler, by an external ledger, with busy runners.

    python -m tests.faults.rates --store sqlite|postgres|memory [--seconds 60] [--processes 4] [--rates 2,10,200] [--burst N]

Jobs of random length on threads and on the event loop keep every slot busy (two thirds of the slots for rates above 50 a
second). No window of one second may hold more starts than the rate (with ``--burst``: than the bucket allows), and at least
95 % of the rate must be used while jobs wait.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

from tests.faults.checks import Verdict
from tests.faults.kit import ROOT, until
from tests.faults.rates_app import BURST, LEDGER, NAME, RATE, STORE
from tests.servers.postgres import running_postgres

from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

SETTINGS = {"concurrency": 10, "threads": 6, "children": 2}
KINDS = ("on_a_thread", "on_the_loop")
SLOW = 50
WARM_UP = 2.0
"""Seconds after the first start that do not count towards utilisation: runners are still starting."""

_WORKER = """
import json, sys
from tidemill.engine.log_formats import write_logs
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
write_logs()
sys.exit(Supervisor("tests.faults.rates_app:app", read_settings(json.loads(sys.argv[2])), processes=int(sys.argv[1])).run())
"""

_MEMORY = """
import json, sys, threading
from contextlib import ExitStack
from tests.faults.rates import fill
from tests.faults.rates_app import app
from tidemill.engine.worker_settings import read_settings
runners, settings, rate, seconds, burst = int(sys.argv[1]), json.loads(sys.argv[2]), *map(int, sys.argv[3:6])
fill(app.store, rate, seconds, burst or None, runners, ("on_a_thread", "on_the_loop"))
with ExitStack() as stack:
    for _ in range(runners):
        stack.enter_context(app.worker(**settings))
    sys.stdin.read()
"""


def fill(
    store: Store, rate: int, seconds: float, burst: int | None, processes: int, kinds: Sequence[str]
) -> None:
    """Enqueue more rate-limited jobs than can start, and enough others to keep every slot busy."""
    random = Random(1)
    store.put_rules([Rule(NAME, LimitKind.RATE, rate, timedelta(seconds=1), burst)])
    rated = int(rate * (seconds + WARM_UP + 10)) + (burst or 0)
    jobs = [
        NewJob(
            new_id(), random.choice(kinds), json.dumps({"seconds": random.uniform(0, 0.02)}), limits=(NAME,)
        )
        for _ in range(rated)
    ]
    slots = {"busy_thread": SETTINGS["threads"], "busy_loop": SETTINGS["concurrency"]}
    for task, count in slots.items():
        # A slow rate finds every slot taken; a fast one needs free slots, so other jobs take two thirds of them.
        limits = (f"busy.{task}",) if rate > SLOW else ()
        if limits:
            store.put_rules([Rule(limits[0], max=count * processes * 2 // 3)])
        longest = 4.0 if limits else 1.0
        jobs += [
            NewJob(new_id(), task, json.dumps({"seconds": random.uniform(0.01, longest)}), limits=limits)
            for _ in range(int(2.2 / longest * count * processes * (seconds + WARM_UP + 5)))
        ]
    random.shuffle(jobs)
    for at in range(0, len(jobs), 1000):
        store.enqueue(jobs[at : at + 1000])


@contextmanager
def working(words: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run runners in separate processes, and stop them at the end."""
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out
        )
    try:
        yield
        assert worker.poll() is None, log.read_text()
    finally:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.terminate()
        try:
            worker.wait(60)
        finally:
            worker.kill()
            worker.wait()


def run(
    url: str,
    folder: Path,
    rate: int,
    *,
    seconds: float,
    processes: int,
    burst: int | None = None,
    kinds: Sequence[str] = KINDS,
) -> Verdict:
    """Run one rate for this long, and check the ledger."""
    ledger = folder / f"ledger-{rate}-{burst or 0}"
    environment = {**os.environ, STORE: url, LEDGER: str(ledger), RATE: str(rate), BURST: str(burst or 0)}
    settings = json.dumps(SETTINGS)
    if url.startswith("memory:"):
        words = ["-c", _MEMORY, str(processes), settings, str(rate), str(int(seconds)), str(burst or 0)]
    else:
        words = ["-c", _WORKER, str(processes), settings]
        store = open_store(url)
        try:
            store.migrate()
            fill(store, rate, seconds, burst, processes, kinds)
        finally:
            store.close()

    def lines() -> list[float]:
        return [float(line) for line in ledger.read_text().split()] if ledger.exists() else []

    with working(words, environment, folder / "worker.log"):
        first = until(lines, "the first handler starts", 120)[0]
        until(lambda: max(lines()) >= first + WARM_UP + seconds, "the run is over", seconds + 120)
    return judge(sorted(lines()), rate, burst, seconds)


def judge(times: Sequence[float], rate: int, burst: int | None, seconds: float) -> Verdict:
    """Check that no window holds more starts than allowed, and that the rate is used."""
    verdict = Verdict()
    closest = shortest_span(times, (burst or rate) + 1)
    fullest = most_within(times, 1.0)
    # A bucket refills one start at a time: n starts beyond the burst take at least n / rate seconds.
    least = (
        {burst + more: more / rate for more in range(1, max(rate, SLOW) + 1)} if burst else {rate + 1: 1.0}
    )
    for count, seconds_of in least.items():
        span = shortest_span(times, count)
        verdict.expect(
            span >= seconds_of,
            "no window holds more starts than the rate",
            {"starts": count, "span": span, "least": seconds_of, "fullest": fullest},
        )
    since = times[0] + WARM_UP
    begun = bisect_left(times, since + seconds) - bisect_left(times, since)
    used = begun / (rate * seconds)
    verdict.expect(used >= 0.95, "at least 95 % of the rate is used", used)
    verdict.facts |= {
        "rate": rate,
        "burst": burst,
        "starts": len(times),
        "fullest_second": fullest,
        "closest": round(closest, 4),
        "use": round(used, 4),
    }
    return verdict


def shortest_span(times: Sequence[float], count: int) -> float:
    """Return the shortest time between the first and the last of this many consecutive starts."""
    return min(
        (late - early for early, late in zip(times, times[count - 1 :], strict=False)), default=float("inf")
    )


def most_within(times: Sequence[float], seconds: float) -> int:
    """Return the most starts in a half-open window of this length."""
    return max((bisect_left(times, at + seconds) - place for place, at in enumerate(times)), default=0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=("sqlite", "postgres", "memory"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rates", default="2,10,200")
    parser.add_argument("--burst", type=int)
    parser.add_argument("--kinds", default=",".join(KINDS), help="the rate-limited tasks")
    options = parser.parse_args()
    bad = 0
    for rate in map(int, options.rates.split(",")):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if options.store == "postgres":
                url = stack.enter_context(running_postgres(fsync=True)).url("postgres")
            else:
                url = "memory://" if options.store == "memory" else f"sqlite:///{folder}/jobs.db"
            verdict = run(
                url,
                folder,
                rate,
                seconds=options.seconds,
                processes=options.processes,
                burst=options.burst,
                kinds=options.kinds.split(","),
            )
            print(options.store, verdict.facts, *verdict.violations, sep="\n  ", flush=True)
            bad += bool(verdict.violations)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
