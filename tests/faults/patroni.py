"""Failovers by Patroni and etcd under load, asynchronous and synchronous: lost and repeated jobs, and time to recover.

Every other failover kills the server alone, which its Patroni notices; the rest kill the node, whose leader key must expire.
``python -m tests.faults.patroni --cycles 20`` needs about 25 minutes; it prints one line of JSON for each mode.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict
from tests.faults.kit import Harness, Producer, Worker, clock, figures, open_harness, pause, until
from tests.faults.ledger import BEGIN, END
from tests.servers.patroni import PatroniPair, running_patroni

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.errors import StoreError

MODES = {"asynchronous": "local", "synchronous": "standby"}
"""Patroni's mode, and the durability of the app."""

_QUIET = 2.0
"""Seconds of load before a failover."""

_RECOVERY = 90.0


@contextmanager
def patroni_harness(mode: str) -> Iterator[tuple[PatroniPair, Harness]]:
    """Yield the servers of a mode, and a harness on them."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as folder,
        running_patroni(synchronous=mode == "synchronous") as pair,
        open_harness(pair.url(durability=MODES[mode]), Path(folder)) as harness,
    ):
        yield pair, harness


class Failovers:
    """Failovers of a pair while jobs are enqueued and run."""

    def __init__(self, pair: PatroniPair, harness: Harness) -> None:
        self._pair, self._harness = pair, harness
        self.accepting: dict[str, list[float]] = {"server": [], "node": []}
        self.running: dict[str, list[float]] = {"server": [], "node": []}

    def cycle(self, kind: str) -> None:
        """Kill the primary, wait until jobs are accepted and run again, and bring the node back."""
        self._pair.wait_until_whole()
        pause(_QUIET)
        victim = self._pair.primary
        accepted, ends = len(self._harness.ledger.accepted()), len(self._harness.ledger.of(END))
        began = clock.monotonic()
        if kind == "node":
            victim.kill()
        else:
            victim.kill_server()
        until(lambda: self._pair_serves(victim.name), "the standby is promoted", _RECOVERY)
        # Calls that were under way when the server died are answered by no new one.
        until(lambda: len(self._harness.ledger.accepted()) > accepted, "a job is accepted again", _RECOVERY)
        self.accepting[kind].append(clock.monotonic() - began)
        until(lambda: len(self._harness.ledger.of(END)) > ends, "a job runs again", _RECOVERY)
        self.running[kind].append(clock.monotonic() - began)
        if kind == "node":
            self._pair.restart(victim)

    def _pair_serves(self, former: str) -> bool:
        return any(
            node.status().get("role") in ("primary", "master")
            for node in self._pair.nodes
            if node.name != former
        )


def run(pair: PatroniPair, harness: Harness, mode: str, cycles: int, seed: int) -> Verdict:
    """Fail over this often under load, and count what was lost and repeated."""
    workers: list[Worker] = [harness.supervised(1, threads=4, children=1) for _ in range(2)]
    for worker in workers:
        worker.ready()
    failovers = Failovers(pair, harness)
    with Producer(harness, Random(seed)) as producer:
        for number in range(cycles):
            failovers.cycle("node" if number % 2 else "server")
        pair.wait_until_whole()
    harness.drain()
    codes = [worker.stop() for worker in workers]
    return judged(harness, mode, cycles, failovers, producer.refused, codes)


def judged(
    harness: Harness, mode: str, cycles: int, failovers: Failovers, refused: int, codes: list[int]
) -> Verdict:
    """Compare the jobs that were accepted with those that the database has, and with their runs."""
    accepted = harness.ledger.accepted()
    jobs = harness.jobs(accepted)
    lost = [id for id in accepted if id not in jobs]
    begun: Counter[UUID] = Counter(line.job for line in harness.ledger.of(BEGIN))
    ended: Counter[UUID] = Counter(line.job for line in harness.ledger.of(END))
    crashed = sum(
        execution.state.value == "crashed"
        for start in range(0, len(accepted), 500)
        for execution in harness.store.executions(accepted[start : start + 500], tenant=ALL_TENANTS)
    )
    states = Counter(str(job.state) for job in jobs.values())
    verdict = Verdict()
    if mode == "synchronous":
        verdict.expect(not lost, "no accepted job is lost", lost[:5])
    verdict.expect(set(states) == {JobState.COMPLETED.value}, "every stored job is completed", dict(states))
    unrun = [id for id in jobs if not ended[id]]
    verdict.expect(not unrun, "a completed job has run", unrun[:5])
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    verdict.facts |= {
        "mode": mode,
        "durability": MODES[mode],
        "failovers": cycles,
        "accepted": len(accepted),
        "refused": refused,
        "lost": len(lost),
        "begun_again": sum(count > 1 for count in begun.values()),
        "ended_twice": sum(count > 1 for count in ended.values()),
        "crashes_charged": crashed,
        "accepting_again_after": {kind: figures(times) for kind, times in failovers.accepting.items()},
        "running_again_after": {kind: figures(times) for kind, times in failovers.running.items()},
    }
    return verdict


def main() -> None:
    """Run both modes, or one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.patroni")
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kept = True
    for mode in MODES if given.mode == "both" else [given.mode]:
        began = clock.monotonic()
        with patroni_harness(mode) as (pair, harness):
            try:
                verdict = run(pair, harness, mode, given.cycles, given.seed)
            except (AssertionError, StoreError):
                for worker in harness.workers:
                    print(worker.log[-3000:], file=sys.stderr)
                raise
        kept = kept and not verdict.violations
        for violation in verdict.violations[:20]:
            print(f"  {violation}")
        seconds = round(clock.monotonic() - began, 1)
        print(json.dumps({"kept": not verdict.violations, "seconds": seconds} | verdict.facts), flush=True)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
