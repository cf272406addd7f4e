"""Kills under load: runners and supervisors are killed at random, one to three a second, or as fast as the machine starts new
ones. Nothing may be lost, and what ran twice was in flight at a kill.

Most blows hit runners that are at work: one that still imports the app holds nothing, and its death proves little.
``python -m tests.faults.kills --store sqlite --cycles 100``
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Ground, Producer, Stuck, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN, END, Line

_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4, "pumps": 1}
_PROCESSES = 2
_SUPERVISORS = 0.2
"""The share of blows that hit a supervisor."""

_STARTING = 0.1
"""The share of the others that hit a runner wherever it is in its life."""


class Nemesis:
    """Strikes at two workers, and starts again what does not come back by itself."""

    def __init__(self, ground: Ground, random: Random) -> None:
        self._ground, self._random = ground, random
        self.workers = [self._start() for _ in range(2)]
        self.runner_kills: list[tuple[float, set[int]]] = []
        self.supervisor_kills: list[tuple[float, set[int]]] = []
        self.at_work = 0  #: runners among them that could hold jobs

    def _start(self) -> Worker:
        return self._ground.supervised(_PROCESSES, **_SETTINGS)

    @property
    def culprits(self) -> set[int]:
        """Every runner that was killed."""
        return {pid for _, pids in (*self.runner_kills, *self.supervisor_kills) for pid in pids}

    def strike(self) -> None:
        """Kill somebody."""
        if self._random.random() < _SUPERVISORS or not self.supervisor_kills:
            number = self._random.randrange(len(self.workers))
            self._look(self.workers[number])
            at = clock.monotonic()
            self.supervisor_kills.append((at, self.workers[number].kill()))
            self.workers[number] = self._start()
        else:
            anyone = self._random.random() < _STARTING
            until(lambda: self._strike_a_runner(anyone=anyone), "there is a runner to kill", 120)

    def _look(self, worker: Worker) -> None:
        """Who is to be hurt must live: a worker that has ended by itself broke a promise already."""
        if not worker.alive:
            raise Stuck(f"a worker has ended by itself: {worker.log[-2000:]}")

    def _strike_a_runner(self, *, anyone: bool) -> bool:
        for worker in self.workers:
            self._look(worker)
        runners = [
            (worker, pid)
            for worker in self.workers
            for pid in worker.runners()
            if anyone or f"(pid {pid}) is ready" in worker.log
        ]
        if not runners:
            return False
        worker, pid = self._random.choice(runners)
        at, at_work = clock.monotonic(), f"(pid {pid}) is ready" in worker.log
        if not worker.kill_runner(pid):
            return False
        self.runner_kills.append((at, {pid}))
        self.at_work += at_work
        return True


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many kills, then peace until every job has ended."""
    random = Random(seed)
    nemesis = Nemesis(ground, random)
    for worker in nemesis.workers:
        worker.ready(_PROCESSES)
    began = clock.monotonic()
    with Producer(ground, random):
        for _ in range(cycles):
            pause(random.uniform(1 / 3, 1.0))
            nemesis.strike()
    struck = clock.monotonic() - began
    drained = ground.drain()
    codes = [worker.stop() for worker in nemesis.workers]
    verdict = judge(ground, culprits=nemesis.culprits, crash_loops=True)
    verdict.expect(codes == [0, 0], "a worker that is told to stop exits with 0", codes)
    verdict.facts |= {
        "kills_per_second": round(cycles / struck, 2),
        "runner_kills": len(nemesis.runner_kills),
        "runners_at_work_killed": nemesis.at_work,
        "supervisor_kills": len(nemesis.supervisor_kills),
        "runner_kill_to_next_begin": figures(_recoveries(ground, nemesis.runner_kills)),
        "supervisor_kill_to_next_begin": figures(_recoveries(ground, nemesis.supervisor_kills)),
        "drained_in": round(drained, 1),
    }
    return verdict


def _recoveries(ground: Ground, kills: list[tuple[float, set[int]]]) -> list[float]:
    """Seconds from each kill to the next beginning of each job that was running then, waiting in a queue included."""
    ended = {line.run for line in ground.ledger.of(END)}
    begins = ground.ledger.of(BEGIN)
    by_job: dict[UUID, list[Line]] = {}
    for line in begins:
        by_job.setdefault(line.job, []).append(line)
    found = []
    for at, pids in kills:
        for line in begins:
            if line.run in ended or line.at > at or pids.isdisjoint({line.pid, line.parent}):
                continue
            later = [again.at for again in by_job[line.job] if again.token > line.token]
            found += [min(later) - at] if later else []
    return found


if __name__ == "__main__":
    main("kills", run, cycles=100)
