"""A deterministic simulator: greenlets that take turns on a manual clock.

An actor that sleeps passes the turn to one whose time has come; the seed decides between several. Everything between two sleeps
happens without interruption and without the operating system's scheduler, so a seed always produces the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import ceil
from random import Random

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from tidemill.clock import Clock, ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
_MICRO = 1_000_000


class Killed(BaseException):
    """Raised in an actor that is killed; the code under test does not catch it."""


class Skewed:
    """A clock with a constant error."""

    def __init__(self, clock: Clock, skew: timedelta, uptime: float) -> None:
        self._clock, self._skew, self._uptime = clock, skew, uptime

    def now(self) -> datetime:
        return self._clock.now() + self._skew

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._uptime


class StoreClock:
    """The store's clock, which a fault may step. Its monotonic time is never stepped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = timedelta(0)
        self.highest = timedelta(0)

    def step_to(self, offset: timedelta) -> None:
        """Set the offset of the clock."""
        self.offset = offset
        self.highest = max(self.highest, offset)

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Actor:
    """A greenlet that alternates between work and sleep."""

    def __init__(self, simulator: Simulator, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.turn_at = simulator.micros  #: earliest time of its next turn
        self.held_until = 0  #: it gets no turn before then
        self.doomed = self.over = False
        self._body = body
        self.greenlet = greenlet(self._run, simulator.hub)

    def _run(self) -> None:
        try:
            if not self.doomed:
                self._body()
        except Killed:
            pass
        finally:
            self.over = True


class Simulator:
    """The clock, the random numbers and the actors."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock(START)
        self.micros = 0
        self.trace: list[str] = []
        self._actors: list[Actor] = []
        self._turns: list[tuple[int, int, Actor]] = []  # a heap; only an actor's last entry counts
        self._entries = 0
        self._current: Actor | None = None
        self._until: Callable[[], bool] = lambda: True
        self._most = 0
        self._over = self._late = False
        self.hub = getcurrent()

    @property
    def seconds(self) -> float:
        """Return the simulated seconds since the start."""
        return self.micros / _MICRO

    def say(self, words: str) -> None:
        """Append a line to the trace."""
        who = self._current.name if self._current is not None else "-"
        self.trace.append(f"{self.seconds:11.6f} {who:12} {words}")

    def enter(self, name: str, body: Callable[[], None]) -> Actor:
        """Add an actor; the random numbers decide when its first turn comes."""
        self._actors = [actor for actor in self._actors if not actor.over]
        actor = Actor(self, name, body)
        self._actors.append(actor)
        self._queue(actor, self.micros)
        return actor

    def _queue(self, actor: Actor, at: int) -> None:
        actor.turn_at = at
        self._entries += 1
        heapq.heappush(self._turns, (at, self._entries, actor))

    # Called by actors ----------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float = 0.0) -> None:
        """Pass the turn, and take it again after this many seconds."""
        actor = self._current
        assert actor is not None
        if actor.doomed:
            raise Killed
        self._queue(actor, max(self.micros + max(ceil(seconds * _MICRO), 1), actor.held_until))
        following = self._choose()
        if following is not actor:
            (self.hub if following is None else following.greenlet).switch()
        if actor.doomed:
            raise Killed

    def hold(self, actors: Iterable[Actor], seconds: float) -> None:
        """Give these actors no turn for this many seconds."""
        for actor in actors:
            actor.held_until = self.micros + ceil(seconds * _MICRO)
            if not actor.doomed:
                self._queue(actor, max(actor.turn_at, actor.held_until))

    def kill(self, actors: Iterable[Actor]) -> None:
        """Give these actors one last turn, in which they die where they slept."""
        for actor in actors:
            actor.doomed = True
            self._queue(actor, self.micros)

    def _choose(self) -> Actor | None:
        """Return the actor with the next turn; None at the end of the run."""
        if self._over:
            return None
        self._over = self._until()
        if self._over:
            return None
        first = self._first()
        if first is None:
            self._over = self._late = True
            return None
        soonest = first[0]
        if soonest > self.micros:
            if soonest > self._most:
                self._over = self._late = True
                return None
            self.clock.advance(timedelta(microseconds=soonest - self.micros))
            self.micros = soonest
        ready: list[tuple[int, int, Actor]] = []
        while first is not None and first[0] <= self.micros:
            ready.append(heapq.heappop(self._turns))
            first = self._first()
        chosen = ready[0] if len(ready) == 1 else self.rng.choice(ready)
        for entry in ready:
            if entry is not chosen:
                heapq.heappush(self._turns, entry)
        self._current = chosen[2]
        return chosen[2]

    def _first(self) -> tuple[int, int, Actor] | None:
        """Return the earliest valid entry."""
        while self._turns:
            at, _, actor = entry = self._turns[0]
            if not actor.over and actor.turn_at == at:
                return entry
            heapq.heappop(self._turns)
        return None

    # Called by the run ---------------------------------------------------------------------------------------------------

    def play(self, *, until: Callable[[], bool], most: float) -> bool:
        """Give turns until the condition holds; return False after ``most`` seconds. Exceptions of an actor propagate."""
        self._until, self._most = until, ceil(most * _MICRO)
        while (actor := self._choose()) is not None:
            # A sleeping actor switches to the next one directly; control returns here when an actor ends.
            actor.greenlet.switch()
        self._current = None
        return not self._late

    def close(self) -> None:
        """End every actor, one after the other."""
        self._over = True
        for actor in [actor for actor in self._actors if not actor.over]:
            actor.doomed = True
            self._current = actor
            actor.greenlet.switch()
