"""Zombies: a whole worker is halted past its lease, another takes its jobs, and then it wakes up.

Nothing the zombie writes may be accepted, whether the new execution has ended by then or still runs, and its handlers must be
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
from tests.faults.kit import Ground, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN, END, Line

from tidemill.testing.processes import child_pids

_SETTINGS: dict[str, object] = {"beat": 0.4, "expiry": 3, "lease_beat": 0.4, "lease_expiry": 2, "children": 8}
_TASKS = ("hold", "hold_in_thread", "hold_alone")
_STOPPED_WITHIN = 5.0
"""Seconds after it wakes up in which a zombie's handlers must be gone."""


class Zombies:
    """Two workers, of which one after the other is halted while it holds something."""

    def __init__(self, ground: Ground, random: Random) -> None:
        self._ground, self._random = ground, random
        self._workers = [ground.supervised(1, **_SETTINGS) for _ in range(2)]
        for worker in self._workers:
            worker.ready()
        self.culprits: set[int] = set()
        self.taken_after: list[float] = []  #: seconds from the halt to the new execution
        self.stopped_after: list[float] = []  #: seconds from waking up to the last sign of a zombie's handler
        self.file_locked = 0  #: halts that were taken back, because they hit a writer
        self.writes_tried = 0  #: handlers of zombies that came to their end

    def cycle(self, *, finished: bool) -> None:
        """Halt a worker and wake it when others have ``finished`` its jobs, or else while they are at it."""
        ground = self._ground
        gate = ground.gate()
        jobs = [id for task in _TASKS for id in ground.enqueue(task, [{"gate": str(gate)}] * 2)]
        lines = ground.begun(jobs)
        zombie, held = self._holder(lines)
        was_ready, runners = zombie.readies(), set(zombie.runners())
        self.culprits |= runners
        halted_at = clock.monotonic()
        family = self._halt(zombie)
        try:
            again = ground.begun(held, 2)
            self.taken_after += [line.at - halted_at for line in again]
            for id in held:  # the first thing the zombie does is to come to an end, as good as any
                (gate / f"{id}.1").touch()
            if finished:
                (gate / "all").touch()
                until(lambda: self._ended(held, 2), "the others have ended them", 60)
        finally:
            woken_at = clock.monotonic()
            zombie.go_on(family)
        until(
            lambda: runners.isdisjoint(child_pids(zombie.pid)), "the zombie's runner is gone", _STOPPED_WITHIN
        )
        self._note_last_signs(held, woken_at)
        (gate / "all").touch()
        until(lambda: self._ended(jobs), "all have ended", 60)
        zombie.ready(was_ready + 1)

    def _halt(self, worker: Worker) -> set[int]:
        """Halt it, but not in the middle of a write to a file: SQLite's lock would then halt everybody with it."""
        while True:
            family = worker.halt()
            if not self._file_is_locked():
                return family
            worker.go_on(family)
            self.file_locked += 1
            pause(0.1)

    def _file_is_locked(self) -> bool:
        if not self._ground.url.startswith("sqlite"):
            return False
        file = self._ground.url.removeprefix("sqlite:///")
        try:
            with closing(sqlite3.connect(file, timeout=0.7, isolation_level=None)) as raw:
                raw.execute("begin immediate")
                raw.execute("rollback")
        except sqlite3.OperationalError:
            return True
        return False

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
        return {line.job for line in self._ground.ledger.of(END, jobs) if line.token >= token} == set(jobs)

    def _note_last_signs(self, held: list[UUID], woken_at: float) -> None:
        signs = [
            line
            for line in self._ground.ledger.lines()
            if line.token == 1 and line.job in set(held) and line.at > woken_at
        ]
        self.stopped_after += [line.at - woken_at for line in signs]
        self.writes_tried += sum(line.kind == END for line in signs)

    def refused(self) -> int:
        """Ends that zombies tried to write and the store refused, by their own word."""
        found = [re.findall(r"the end of (\d+) jobs was not written", worker.log) for worker in self._workers]
        return sum(int(count) for counts in found for count in counts)

    def end(self) -> list[int]:
        """Stop both; their exit codes."""
        return [worker.stop() for worker in self._workers]


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many zombies, every second of them among the living."""
    zombies = Zombies(ground, Random(seed))
    for cycle in range(cycles):
        zombies.cycle(finished=cycle % 2 == 0)
    ground.drain()
    codes = zombies.end()
    verdict = judge(ground, culprits=zombies.culprits, crash_loops=False)
    verdict.expect(codes == [0, 0], "a worker that is told to stop exits with 0", codes)
    again = {line.run for line in ground.ledger.of(BEGIN) if line.token > 2}
    verdict.expect(not again, "nobody but zombies lost anything", again)
    verdict.expect(zombies.writes_tried > 0, "zombies came to an end, else nothing is proven", 0)
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
