"""A supervisor halted by SIGTSTP or SIGSTOP while its runners execute long jobs.

Ctrl-Z changes nothing. After SIGSTOP the runners drop their jobs when heartbeats are no longer confirmed, another worker takes
the jobs, and the halted worker resumes after SIGCONT. ``python -m tests.faults.halts --store sqlite --cycles 10``
"""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN, END, Line
from tests.faults.stops import file_is_locked
from tests.servers.processes import child_pids

EXPIRY = 6.0
_SETTINGS: dict[str, object] = {
    "beat": 0.5,
    "expiry": EXPIRY,
    "lease_beat": 0.4,
    "lease_expiry": 2,
    "children": 16,
}
_TASKS = ("hold", "hold_in_thread", "hold_alone")
OVERLAP = 3.0
"""Seconds for which a halted worker's handler may overlap the next execution of its job."""


class Halts:
    """Two workers; the supervisor of one is halted while its runner works."""

    def __init__(self, harness: Harness, random: Random) -> None:
        self._harness, self._random = harness, random
        self._workers = [harness.supervised(1, **_SETTINGS) for _ in range(2)]
        for worker in self._workers:
            worker.ready()
        self.culprits: set[int] = set()
        self.dropped_after: list[float] = []  #: seconds from the halt to the end of the runner
        self.taken_after: list[float] = []  #: seconds from the halt to the next execution
        self.overlaps: list[float] = []  #: seconds for which two executions of a job overlapped
        self.late_claims: list[Line] = []  #: executions begun in a runner whose lease had expired

    def ctrl_z(self) -> None:
        """Send SIGTSTP; the jobs end as usual."""
        gate, jobs = self._begin()
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTSTP)
        until(
            lambda: all("Ctrl-Z is ignored" in worker.log for worker in self._workers),
            "both log that they ignore it",
            30,
        )
        pause(EXPIRY * 1.5)
        (gate / "all").touch()
        self._finish(jobs)

    def halt(self) -> None:
        """Stop one supervisor with SIGSTOP until others have finished its jobs."""
        harness = self._harness
        gate, jobs = self._begin()
        lines = harness.begun(jobs)
        worker, held = self._holder(lines)
        runners, was_ready = set(worker.runners()), worker.readies()
        self.culprits |= runners
        at = self._stop(worker)
        try:
            until(lambda: not worker.runners(), "the runner has dropped its jobs and ended", 4 * EXPIRY)
            self.dropped_after.append(clock.monotonic() - at)
            late = [id for task in _TASKS for id in harness.enqueue(task, [{"gate": str(gate)}])]
            again = harness.begun(held, 2)
            self.taken_after += [line.at - at for line in again]
            (gate / "all").touch()
            self._finish([*jobs, *late])
        finally:
            worker.process.send_signal(signal.SIGCONT)
        self._look(held, at, runners)
        worker.ready(was_ready + 1)

    def _begin(self) -> tuple[Path, list[UUID]]:
        gate = self._harness.gate()
        jobs = [
            id
            for task in _TASKS
            for id in self._harness.enqueue(task, [{"gate": str(gate)} for _ in range(3)])
        ]
        self._harness.begun(jobs)
        return gate, jobs

    def _finish(self, jobs: list[UUID]) -> None:
        wanted = set(jobs)
        until(
            lambda: {line.job for line in self._harness.ledger.of(END, jobs)} == wanted, "all have ended", 120
        )

    def _stop(self, worker: Worker) -> float:
        """Halt the supervisor, but not during a write to the file: SQLite's lock would block every other process."""
        while True:
            at = clock.monotonic()
            worker.process.send_signal(signal.SIGSTOP)
            if not file_is_locked(self._harness):
                return at
            worker.process.send_signal(signal.SIGCONT)
            pause(0.1)

    def _holder(self, lines: list[Line]) -> tuple[Worker, list[UUID]]:
        held = [
            [line.job for line in lines if not {line.pid, line.parent}.isdisjoint(child_pids(worker.pid))]
            for worker in self._workers
        ]
        number = self._random.choice([number for number, jobs in enumerate(held) if jobs])
        return self._workers[number], held[number]

    def _look(self, held: list[UUID], at: float, runners: set[int]) -> None:
        """Record overlaps and late claims from the ledger."""
        for id in held:
            lines = [line for line in self._harness.ledger.lines() if line.job == id]
            first = max(line.at for line in lines if line.token == 1)
            second = min(line.at for line in lines if line.token == 2)
            self.overlaps.append(max(first - second, 0.0))
        self.late_claims += [
            line
            for line in self._harness.ledger.of(BEGIN)
            if line.at > at + EXPIRY + 1.0 and not runners.isdisjoint({line.pid, line.parent})
        ]

    def end(self) -> list[int]:
        """Stop both workers; return their exit codes."""
        return [worker.stop() for worker in self._workers]


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Send one Ctrl-Z, then halt this many times."""
    halts = Halts(harness, Random(seed))
    halts.ctrl_z()
    for _ in range(cycles):
        halts.halt()
    harness.drain()
    codes = halts.end()
    verdict = judge(harness, culprits=halts.culprits, releases=True, crash_loops=False)
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    verdict.expect(not halts.late_claims, "no job begins in a runner without a lease", halts.late_claims[:3])
    verdict.expect(
        max(halts.overlaps) <= OVERLAP,
        f"two executions of a job overlap for at most {OVERLAP:g} s",
        halts.overlaps,
    )
    verdict.facts |= {
        "runner_ended_after": figures(halts.dropped_after),
        "taken_over_after": figures(halts.taken_after),
        "overlap": figures(halts.overlaps, 3),
    }
    return verdict


if __name__ == "__main__":
    main("halts", run, cycles=10)
