"""Zombies: workers halted past their lease, whose jobs another worker takes over.

The store must accept no write of a zombie, whether the new execution has ended or still runs, and the zombie's handlers must be
stopped. ``python -m tests.faults.stops --store sqlite --cycles 50``
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN, END, Line
from tests.servers.processes import child_pids

_SETTINGS: dict[str, object] = {"beat": 0.4, "expiry": 3, "lease_beat": 0.4, "lease_expiry": 2, "children": 8}
_TASKS = ("hold", "hold_in_thread", "hold_alone")
_STOPPED_WITHIN = 5.0
"""Seconds after it wakes up within which a zombie's handlers must be gone."""


class Zombies:
    """Two workers, which are halted in turn while they hold jobs."""

    def __init__(self, harness: Harness, random: Random) -> None:
        self._harness, self._random = harness, random
        self._workers = [harness.supervised(1, **_SETTINGS) for _ in range(2)]
        for worker in self._workers:
            worker.ready()
        self.culprits: set[int] = set()
        self.taken_after: list[float] = []  #: seconds from the halt to the new execution
        self.stopped_after: list[
            float
        ] = []  #: seconds from waking up to the last ledger line of a zombie's handler
        self.file_locked = 0  #: halts that were reverted because they hit a writer
        self.writes_tried = 0  #: handlers of zombies that reached their end

    def cycle(self, *, finished: bool) -> None:
        """Halt a worker and continue it after others have ``finished`` its jobs, or while they still run."""
        harness = self._harness
        gate = harness.gate()
        jobs = [id for task in _TASKS for id in harness.enqueue(task, [{"gate": str(gate)}] * 2)]
        lines = harness.begun(jobs)
        zombie, held = self._holder(lines)
        was_ready, runners = zombie.readies(), set(zombie.runners())
        self.culprits |= runners
        halted_at = clock.monotonic()
        family = self._halt(zombie)
        try:
            again = harness.begun(held, 2)
            self.taken_after += [line.at - halted_at for line in again]
            # The zombie's handlers reach their normal end as soon as it wakes up.
            for id in held:
                (gate / f"{id}.1").touch()
            if finished:
                (gate / "all").touch()
                until(lambda: self._ended(held, 2), "other workers have ended the jobs", 60)
        finally:
            woken_at = clock.monotonic()
            zombie.go_on(family)
        until(
            lambda: runners.isdisjoint(child_pids(zombie.pid)), "the zombie's runner is gone", _STOPPED_WITHIN
        )
        self._note_last_lines(held, woken_at)
        (gate / "all").touch()
        until(lambda: self._ended(jobs), "all jobs have ended", 60)
        zombie.ready(was_ready + 1)

    def _halt(self, worker: Worker) -> set[int]:
        """Halt the worker, but not during a write to the file: SQLite's lock would block every other process."""
        while True:
            family = worker.halt()
            if not file_is_locked(self._harness):
                return family
            worker.go_on(family)
            self.file_locked += 1
            pause(0.1)

    def _holder(self, lines: list[Line]) -> tuple[Worker, list[UUID]]:
        held = {
            number: [
                line.job for line in lines if not {line.pid, line.parent}.isdisjoint(child_pids(worker.pid))
            ]
            for number, worker in enumerate(self._workers)
        }
        number = self._random.choice([number for number, jobs in held.items() if jobs])
        return self._workers[number], held[number]

    def _ended(self, jobs: list[UUID], token: int = 0) -> bool:
        return {line.job for line in self._harness.ledger.of(END, jobs) if line.token >= token} == set(jobs)

    def _note_last_lines(self, held: list[UUID], woken_at: float) -> None:
        lines_after_waking = [
            line
            for line in self._harness.ledger.lines()
            if line.token == 1 and line.job in set(held) and line.at > woken_at
        ]
        self.stopped_after += [line.at - woken_at for line in lines_after_waking]
        self.writes_tried += sum(line.kind == END for line in lines_after_waking)

    def refused(self) -> int:
        """Count the ends that the store refused, from the zombies' logs."""
        matches = [
            re.findall(r"the results of (\d+) jobs were not written", worker.log) for worker in self._workers
        ]
        return sum(int(count) for counts in matches for count in counts)

    def end(self) -> list[int]:
        """Stop both workers; return their exit codes."""
        return [worker.stop() for worker in self._workers]


def file_is_locked(harness: Harness) -> bool:
    """Return whether a process holds the write lock of the store's file."""
    if not harness.url.startswith("sqlite"):
        return False
    file = harness.url.removeprefix("sqlite:///")
    try:
        with closing(sqlite3.connect(file, timeout=0.7, isolation_level=None)) as raw:
            raw.execute("begin immediate")
            raw.execute("rollback")
    except sqlite3.OperationalError:
        return True
    return False


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run this many zombies; every other one wakes up while the new execution still runs."""
    zombies = Zombies(harness, Random(seed))
    for cycle in range(cycles):
        zombies.cycle(finished=cycle % 2 == 0)
    harness.drain()
    codes = zombies.end()
    verdict = judge(harness, culprits=zombies.culprits, crash_loops=False)
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    again = {line.run for line in harness.ledger.of(BEGIN) if line.token > 2}
    verdict.expect(not again, "only zombies lost jobs", again)
    verdict.expect(
        zombies.writes_tried > 0, "some zombies reached their end (otherwise the run proves nothing)", 0
    )
    verdict.facts |= {
        "taken_over_after": figures(zombies.taken_after),
        "halts_in_a_write_taken_back": zombies.file_locked,
        "zombie_ends_reached": zombies.writes_tried,
        "zombie_last_sign_after_waking": figures(zombies.stopped_after, 3),
        "zombie_writes_refused": zombies.refused(),
        "zombie_writes_accepted": sum(v.startswith(("I6", "I2")) for v in verdict.violations),
    }
    return verdict


if __name__ == "__main__":
    main("stops", run, cycles=50)
