"""Limits of 1, 5 and 50 under four runners that are killed at random.

No limit is exceeded at any instant, by the store's times and by an external ledger; and while jobs wait, the limits are used up.
``python -m tests.faults.limits --store postgres --claims 200000``, and ``--claims 20000 --ms 100`` to measure utilisation.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict
from tests.faults.kit import ROOT, pause, until
from tests.faults.limits_app import LEDGER, LIMITS, STORE
from tests.servers.postgres import running_postgres
from tests.servers.processes import child_pids

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import DEFAULT_MAX_ATTEMPTS, NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

PROCESSES = 2
SHARES = {"one": 1, "five": 5, "fifty": 50}
_START = """
import json, sys
from tidemill.engine.log_formats import write_logs
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
write_logs()
settings = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4}
sys.exit(Supervisor("tests.faults.limits_app:app", read_settings(settings), processes=int(sys.argv[1])).run())
"""

Span = tuple[float, float]


@dataclass
class Nemesis:
    """Two supervisors with two runners each, and the time of every kill."""

    environment: dict[str, str]
    folder: Path
    random: Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed: dict[int, float] = field(default_factory=dict)

    def start(self) -> None:
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            words = [sys.executable, "-c", _START, str(PROCESSES)]
            self.workers.append(
                subprocess.Popen(words, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
            )

    def strike(self) -> None:
        """Kill a runner, or sometimes a supervisor with its runners."""
        worker = self.random.choice([process for process in self.workers if process.poll() is None])
        runners = [
            pid for pid, words in child_pids(worker.pid).items() if "tidemill.engine.runner.main" in words
        ]
        if self.random.random() < 0.1:
            worker.kill()
            worker.wait()
            until(
                lambda: not any(Path(f"/proc/{pid}").exists() for pid in runners), "its runners are gone", 30
            )
            self.start()
        elif runners:
            runners = [self.random.choice(runners)]
            os.kill(runners[0], signal.SIGKILL)
        self.killed |= dict.fromkeys(runners, time.monotonic())

    def end(self) -> list[int]:
        for worker in self.workers:
            worker.terminate()
        return [worker.wait(60) for worker in self.workers]


def run(url: str, folder: Path, claims: int, kills: int, seed: int, ms: float = 2.0) -> Verdict:
    """Run this many jobs with kills spread over the run, then check the invariants."""
    random, verdict = Random(seed), Verdict()
    ledger = folder / "ledger"
    store = open_store(url)
    try:
        store.migrate()
        ids = fill(store, claims, ms / 1000, random)
        nemesis = Nemesis({**os.environ, STORE: url, LEDGER: str(ledger)}, folder, random)
        try:
            for _ in range(2):
                nemesis.start()
            for number in range(kills):
                wait_for(store, claims * (number + 1) // (kills + 2))
                nemesis.strike()
                pause(random.uniform(0.0, 0.3))
            wait_for(store, claims)
            codes = [code for code in nemesis.end() if code != -signal.SIGKILL]
            verdict.expect(set(codes) == {0}, "a worker exits with 0 on SIGTERM", codes)
        finally:
            for worker in nemesis.workers:
                worker.kill()
                worker.wait()
        judge(store, ids, ledger, nemesis.killed, verdict)
        verdict.facts |= {"kills": len(nemesis.killed), "jobs": claims}
        return verdict
    finally:
        store.close()


def fill(store: Store, claims: int, seconds: float, random: Random) -> dict[str, list[UUID]]:
    """Enqueue the jobs directly, which is faster than a client; return their ids by task."""
    store.put_rules([Rule(name, max=most) for name, most in LIMITS.items()])
    ids: dict[str, list[UUID]] = {}
    for task, share in SHARES.items():
        count = max(claims * share // sum(SHARES.values()), 1)
        if task == "fifty":
            count = claims - sum(map(len, ids.values()))
        ids[task] = [new_id() for _ in range(count)]
        for at in range(0, count, 1000):
            store.enqueue(
                [
                    NewJob(
                        id,
                        task,
                        json.dumps({"seconds": seconds * random.uniform(0.5, 1.5)}),
                        max_attempts=DEFAULT_MAX_ATTEMPTS + 20,
                        limits=(task,),
                    )
                    for id in ids[task][at : at + 1000]
                ]
            )
    return ids


def wait_for(store: Store, ended: int) -> None:
    where = JobFilter(ALL_TENANTS, states=ENDED)
    until(lambda: sum(store.count(where).values()) >= ended, f"{ended} jobs have ended", 1200)


# The verdict -------------------------------------------------------------------------------------------------------------


def judge(
    store: Store, ids: dict[str, list[UUID]], ledger: Path, killed: dict[int, float], verdict: Verdict
) -> None:
    """Compare the store's times and the ledger's with the limits."""
    outside = outside_spans(ledger.read_text().splitlines(), killed)
    for task, most in LIMITS.items():
        stored: list[Span] = []
        for at in range(0, len(ids[task]), 500):
            for one in store.executions(ids[task][at : at + 500], tenant=ALL_TENANTS):
                assert one.claimed_at is not None
                assert one.finished_at is not None
                stored.append((one.claimed_at.timestamp(), one.finished_at.timestamp()))
        jobs = [
            job
            for at in range(0, len(ids[task]), 500)
            for job in store.get(ids[task][at : at + 500], tenant=ALL_TENANTS)
        ]
        states = {job.state for job in jobs}
        verdict.expect(len(jobs) == len(ids[task]), "no job is lost", task)
        verdict.expect(
            states <= {JobState.COMPLETED, JobState.DEAD_LETTERED}, "every job ends", (task, states)
        )
        peak, peak_outside = highest(stored), highest(outside[task])
        verdict.expect(peak <= most, f"never more than {most} by the store's times", (task, peak))
        verdict.expect(peak_outside <= most, f"never more than {most} by the ledger", (task, peak_outside))
        verdict.facts[task] = {
            "limit": most,
            "claims": len(stored),
            "most_at_once": peak,
            "most_at_once_outside": peak_outside,
            "use": round(use(stored, most), 3),
        }
    left = [use for use in store.uses({}, list(LIMITS)) if use.used]
    verdict.expect(not left, "no use is counted when no job is held", left)


def outside_spans(lines: Iterable[str], killed: dict[int, float]) -> dict[str, list[Span]]:
    """Return when handlers ran; a killed handler ran until the kill."""
    begun: dict[tuple[str, str, str], tuple[float, int]] = {}
    spans: dict[str, list[Span]] = defaultdict(list)
    for line in lines:
        kind, task, job, token, pid, at = line.split()
        if kind == "B":
            begun[task, job, token] = (float(at), int(pid))
        else:
            spans[task].append((begun.pop((task, job, token))[0], float(at)))
    for (task, _, _), (since, victim) in begun.items():
        spans[task].append((since, killed[victim]))
    return spans


def highest(spans: Sequence[Span]) -> int:
    """Return the maximum number of overlapping spans; spans that only touch do not overlap."""
    most = now = 0
    for _, change in sorted([(end, -1) for _, end in spans] + [(begin, 1) for begin, _ in spans]):
        now += change
        most = max(most, now)
    return most


def use(spans: Sequence[Span], limit: int) -> float:
    """Return the share of the limit in use between the first and the last claim, while jobs were always waiting."""
    begin, until_ = min(span[0] for span in spans), max(span[0] for span in spans)
    if until_ <= begin:
        return 1.0
    held = sum(min(end, until_) - start for start, end in spans)
    return held / (limit * (until_ - begin))


@contextmanager
def places(store: str) -> Iterator[tuple[str, Path]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        if store == "sqlite":
            yield f"sqlite:///{folder}/jobs.db", folder
        else:
            server = stack.enter_context(running_postgres())
            yield server.create_database("faults"), folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.limits")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--claims", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--ms", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with places(given.store) as (url, folder):
        verdict = run(url, folder, given.claims, given.kills, given.seed, given.ms)
    words = f"{len(verdict.violations)} violations" if verdict.violations else "every promise kept"
    print(
        f"limits on {given.store}, {given.claims} jobs, seed {given.seed}, {time.monotonic() - began:.0f} s: {words}"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    print(json.dumps(verdict.facts, default=str))
    sys.exit(1 if verdict.violations else 0)


if __name__ == "__main__":
    main()
