"""Runners and supervisors killed at random under load.

There are one to three kills a second, or as many as the machine can start new processes. No job is lost, and every repeated run
was in flight at a kill. Most kills hit a runner at work: one that still imports the app holds no jobs.
``python -m tests.faults.kills --store sqlite --cycles 100``
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Producer, Stuck, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN, END, Line

_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4, "pumps": 1}
_PROCESSES = 2
_SUPERVISORS = 0.2
"""Share of kills that hit a supervisor."""

_STARTING = 0.1
"""Share of the other kills that hit a runner in any phase."""


class Nemesis:
    """Kills processes of two workers, and restarts what does not restart on its own."""

    def __init__(self, harness: Harness, random: Random) -> None:
        self._harness, self._random = harness, random
        self.workers = [self._start() for _ in range(2)]
        self.runner_kills: list[tuple[float, set[int]]] = []
        self.supervisor_kills: list[tuple[float, set[int]]] = []
        self.at_work = 0  #: killed runners that could hold jobs

    def _start(self) -> Worker:
        return self._harness.supervised(_PROCESSES, **_SETTINGS)

    @property
    def culprits(self) -> set[int]:
        """Return the pids of every killed runner."""
        return {pid for _, pids in (*self.runner_kills, *self.supervisor_kills) for pid in pids}

    def strike(self) -> None:
        """Kill one process."""
        if self._random.random() < _SUPERVISORS or not self.supervisor_kills:
            number = self._random.randrange(len(self.workers))
            self._check_alive(self.workers[number])
            at = clock.monotonic()
            self.supervisor_kills.append((at, self.workers[number].kill()))
            self.workers[number] = self._start()
        else:
            any_phase = self._random.random() < _STARTING
            until(lambda: self._strike_a_runner(any_phase=any_phase), "there is a runner to kill", 120)

    def _check_alive(self, worker: Worker) -> None:
        """Raise if a worker has exited on its own."""
        if not worker.alive:
            raise Stuck(f"a worker exited on its own: {worker.log[-2000:]}")

    def _strike_a_runner(self, *, any_phase: bool) -> bool:
        for worker in self.workers:
            self._check_alive(worker)
        runners = [
            (worker, pid)
            for worker in self.workers
            for pid in worker.runners()
            if any_phase or f"(pid {pid}) is ready" in worker.log
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


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Kill this many processes, then wait until every job has ended."""
    random = Random(seed)
    nemesis = Nemesis(harness, random)
    for worker in nemesis.workers:
        worker.ready(_PROCESSES)
    began = clock.monotonic()
    with Producer(harness, random):
        for _ in range(cycles):
            pause(random.uniform(1 / 3, 1.0))
            nemesis.strike()
    duration = clock.monotonic() - began
    drained = harness.drain()
    codes = [worker.stop() for worker in nemesis.workers]
    verdict = judge(harness, culprits=nemesis.culprits, crash_loops=True)
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    verdict.facts |= {
        "kills_per_second": round(cycles / duration, 2),
        "runner_kills": len(nemesis.runner_kills),
        "runners_at_work_killed": nemesis.at_work,
        "supervisor_kills": len(nemesis.supervisor_kills),
        "runner_kill_to_next_begin": figures(_recoveries(harness, nemesis.runner_kills)),
        "supervisor_kill_to_next_begin": figures(_recoveries(harness, nemesis.supervisor_kills)),
        "drained_in": round(drained, 1),
    }
    return verdict


def _recoveries(harness: Harness, kills: list[tuple[float, set[int]]]) -> list[float]:
    """Return the seconds from each kill to the next begin of each job that was running, including its wait in a queue."""
    ended = {line.run for line in harness.ledger.of(END)}
    begins = harness.ledger.of(BEGIN)
    by_job: dict[UUID, list[Line]] = {}
    for line in begins:
        by_job.setdefault(line.job, []).append(line)
    delays = []
    for at, pids in kills:
        for line in begins:
            if line.run in ended or line.at > at or pids.isdisjoint({line.pid, line.parent}):
                continue
            later = [again.at for again in by_job[line.job] if again.token > line.token]
            delays += [min(later) - at] if later else []
    return delays


if __name__ == "__main__":
    main("kills", run, cycles=100)
