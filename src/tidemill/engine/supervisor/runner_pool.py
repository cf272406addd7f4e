"""Pool of runner processes: start, replacement, drain and stop.

The pool starts, messages and kills processes. It does not access the store and decides nothing about jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tidemill.clock import Clock
from tidemill.engine.supervisor.runner_process import Backoff, Emit, RunnerPhase, RunnerProcess

_log = logging.getLogger("tidemill.worker")

MARGIN = 4.0
"""Seconds after its grace period until a runner that has not stopped is killed."""

_EMPTY_HANDED = 1.0  # seconds for a runner that holds no jobs yet
_LOST = 2.0  # seconds for a runner that has lost its lease


@dataclass(slots=True)
class RunnerPlace:
    """Place for one runner."""

    number: int
    wanted: bool = True  #: False once an operator has drained it
    store_name: str | None = None  #: the store of its runners, if the app has several
    paused: bool = False  #: its store cannot be used at present
    suspended: bool = False  #: its runners claim nothing, at an operator's request
    runner: RunnerProcess | None = None
    successor: RunnerProcess | None = None  #: started, but not ready yet
    start_at: float = float("-inf")  #: earliest start of the next runner
    recycle: str | None = None  #: why its runner is to be replaced
    backoff: Backoff = field(default_factory=Backoff)


class RunnerPool:
    """All places. ``crew`` holds every process that has not exited, including those that are stopping."""

    def __init__(self, count: int, command: Sequence[str], emit: Emit, clock: Clock) -> None:
        self._seats = [RunnerPlace(number) for number in range(1, count + 1)]
        self._command, self._emit, self._clock = command, emit, clock
        self.crew: list[RunnerProcess] = []

    def __iter__(self) -> Iterator[RunnerPlace]:
        return iter(self._seats)

    @property
    def wanted(self) -> bool:
        """Whether any place is to have a runner."""
        return any(seat.wanted for seat in self._seats)

    @property
    def count(self) -> int:
        """The number of places that are to have a runner."""
        return sum(seat.wanted for seat in self._seats)

    def wanted_of(self, store: str | None) -> int:
        """The number of places of this store that are to have a runner."""
        return sum(seat.wanted for seat in list(self._seats) if seat.store_name == store)

    def is_wanted(self, store: str) -> bool:
        """Whether any place of this store is to have a runner."""
        return any(seat.wanted for seat in self._seats if seat.store_name == store)

    @property
    def ready(self) -> int:
        """Return how many runners can take jobs."""
        return sum(runner.ready and runner.phase is RunnerPhase.WORKING for runner in list(self.crew))

    def pause(self) -> float:
        """Return the seconds until the next start or kill is due."""
        now = self._clock.monotonic()
        due = [runner.kill_at for runner in self.crew if runner.kill_at is not None]
        due += [seat.start_at for seat in self._seats if seat.start_at > now]
        return max(0.0, min(due, default=float("inf")) - now)

    def assign(self, stores: Sequence[str | None]) -> None:
        """Give each place its store, and add places if there are too few. Runners learn their store when they join."""
        for number, store in enumerate(stores, start=1):
            if number > len(self._seats):
                self._seats.append(RunnerPlace(number))
            seat = self._seats[number - 1]
            seat.store_name = store
            for runner in (seat.runner, seat.successor):
                if runner is not None:
                    runner.store_name = store

    def of_store(self, name: str | None) -> list[RunnerProcess]:
        """Return the runners of this store."""
        return [runner for runner in self.crew if runner.store_name == name]

    def pause_store(self, name: str | None, *, paused: bool) -> None:
        """Start no runners for this store, or start them again."""
        for seat in self._seats:
            if seat.store_name == name:
                seat.paused = paused

    # Starting --------------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start missing runners.

        Only one successor starts at a time, so that a reload does not need twice the memory.
        """
        now = self._clock.monotonic()
        for seat in self._seats:
            if not seat.wanted or seat.paused or seat.successor is not None or now < seat.start_at:
                continue
            if seat.runner is None:
                seat.runner, seat.recycle = self._start(seat), None
            elif seat.recycle and not any(other.successor for other in self._seats):
                _log.info("%s is replaced: %s", seat.runner, seat.recycle)
                seat.successor = self._start(seat)

    def _start(self, seat: RunnerPlace) -> RunnerProcess | None:
        try:
            runner = RunnerProcess(seat.number, self._command, self._emit, self._clock, seat.store_name)
        except OSError as error:  # too many processes, too many files, too little memory
            pause = seat.backoff.after(lived=0.0)
            seat.start_at = self._clock.monotonic() + pause
            _log.error("runner %d cannot be started; retrying in %g s: %s", seat.number, pause, error)
            return None
        self.crew.append(runner)
        return runner

    def take_over(self, runner: RunnerProcess) -> None:
        """Handle a runner that became ready. If it is a successor, its predecessor finishes its jobs and exits."""
        seat = self._seat(runner)
        if seat.successor is not runner:
            return
        before, seat.runner, seat.successor, seat.recycle = seat.runner, runner, None, None
        if before is not None:
            self.drain(before)

    def recycle(self, why: Callable[[RunnerProcess], str | None]) -> None:
        """Mark runners to be replaced, for which ``why`` returns a reason."""
        for seat in self._seats:
            if seat.runner is not None and seat.runner.phase is RunnerPhase.WORKING and seat.recycle is None:
                seat.recycle = why(seat.runner)

    def confirm(self, workers: frozenset[UUID], at: float) -> None:
        """Pass a confirmed heartbeat to the runners of these workers. Without heartbeats, a runner drops its jobs."""
        for runner in self.crew:
            if runner.worker in workers and runner.phase is not RunnerPhase.LOST:
                runner.tell("beat", at=at)

    # Stopping --------------------------------------------------------------------------------------------------------

    def drain(self, runner: RunnerProcess) -> None:
        """Have a runner finish its jobs, claim nothing more, and exit."""
        if runner.phase in (RunnerPhase.STARTING, RunnerPhase.JOINING):
            self.stop(runner, 0.0)
        elif runner.phase is RunnerPhase.WORKING:
            runner.phase, runner.asked = RunnerPhase.DRAINING, True
            if not runner.tell("drain"):
                runner.kill()

    def stop(self, runner: RunnerProcess, grace: float) -> None:
        """Have a runner stop within the grace period, and kill it if it does not.

        On repeated calls the shorter time counts.
        """
        if runner.phase is RunnerPhase.LOST:
            return  # it already has less time
        idle = runner.phase in (RunnerPhase.STARTING, RunnerPhase.JOINING)
        runner.phase, runner.asked = RunnerPhase.STOPPING, True
        self._tell_last(runner, "stop", _EMPTY_HANDED if idle else grace + MARGIN, grace=grace)

    def abandon(self, runner: RunnerProcess, seconds: float = _LOST) -> None:
        """Have a runner that is sick or has lost its lease exit at once without writing. Another one replaces it."""
        self.vacate(runner)
        runner.phase, runner.asked = RunnerPhase.LOST, True
        self._tell_last(runner, "lost", seconds)

    def _tell_last(self, runner: RunnerProcess, kind: str, seconds: float, **fields: object) -> None:
        reached = runner.tell(kind, **fields)
        kill_at = self._clock.monotonic() + (seconds if reached else 0.0)
        runner.kill_at = min(kill_at, runner.kill_at) if runner.kill_at is not None else kill_at

    def vacate(self, runner: RunnerProcess) -> None:
        """Free the place of this runner for another one."""
        seat = self._seat(runner)
        if seat.runner is runner:
            seat.runner, seat.successor = seat.successor, None
            seat.recycle = None
        elif seat.successor is runner:
            seat.successor = None

    def leave_empty(self, runner: RunnerProcess) -> None:
        """Drain a runner on an operator's request, and do not replace it."""
        seat = self._seat(runner)
        for one in (seat.runner, seat.successor):
            if one is not None and (one is runner or seat.runner is runner):
                self.drain(one)
        if runner in (seat.runner, seat.successor):
            seat.wanted = False

    def scale(self, store: str | None, processes: int) -> None:
        """Change the number of runners of a store. Surplus runners drain, the last places first; drained places are used again first."""
        seats = [seat for seat in self._seats if seat.store_name == store]
        wanted = [seat for seat in seats if seat.wanted]
        for seat in wanted[processes:]:
            seat.wanted = False
            for runner in (seat.runner, seat.successor):
                if runner is not None:
                    self.drain(runner)
        free = [seat for seat in seats if not seat.wanted]
        for _ in range(processes - len(wanted)):
            seat = free.pop(0) if free else self._add_seat(store)
            if seat.runner is not None:
                self.vacate(seat.runner)  # it drains; its successor need not wait for that
            seat.wanted, seat.start_at, seat.recycle = True, float("-inf"), None

    def _add_seat(self, store: str | None) -> RunnerPlace:
        self._seats.append(RunnerPlace(len(self._seats) + 1, store_name=store))
        return self._seats[-1]

    def is_suspended(self, runner: RunnerProcess) -> bool:
        """Whether the runners of this place claim nothing, at an operator's request."""
        return self._seat(runner).suspended

    def suspend(self, runner: RunnerProcess, *, suspended: bool) -> list[RunnerProcess]:
        """Record whether the runners of this place claim nothing; return those that are there."""
        seat = self._seat(runner)
        seat.suspended = suspended
        return [other for other in (seat.runner, seat.successor) if other is not None]

    def kill_overdue(self) -> list[RunnerProcess]:
        """Kill and return the runners whose time is up."""
        now = self._clock.monotonic()
        overdue = [runner for runner in self.crew if runner.kill_at is not None and now >= runner.kill_at]
        for runner in overdue:
            runner.kill_at, runner.killed = None, True
            runner.kill()
        return overdue

    def exited(self, runner: RunnerProcess) -> float | None:
        """Handle a process exit. Returns the seconds until a replacement starts, or None if none is needed."""
        self.crew.remove(runner)
        runner.close()
        seat = self._seat(runner)
        held = runner in (seat.runner, seat.successor)
        self.vacate(runner)
        if not held or not seat.wanted or runner.asked:
            return None
        pause = seat.backoff.after(runner.age)
        seat.start_at = self._clock.monotonic() + pause
        return pause

    def _seat(self, runner: RunnerProcess) -> RunnerPlace:
        return self._seats[runner.seat - 1]
