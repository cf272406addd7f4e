"""The stage: actors that take turns on a clock which is moved by hand, in an order that a seed decides.

Each actor is a greenlet: whoever sleeps hands the turn to one of those whose time has come. So everything an actor does between two
sleeps is done alone, no operating system has a say in it, and the same seed always plays the same piece. The stage knows nothing
of jobs.
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
    """Raised in an actor that must not go on; nothing of ours catches it."""


class Skewed:
    """The same time as read by somebody whose clock goes wrong by a fixed amount."""

    def __init__(self, clock: Clock, skew: timedelta, uptime: float) -> None:
        self._clock, self._skew, self._uptime = clock, skew, uptime

    def now(self) -> datetime:
        return self._clock.now() + self._skew

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._uptime


class Actor:
    """Somebody who does something, sleeps, and does something again."""

    def __init__(self, stage: Stage, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.turn_at = stage.micros  #: when it gets its next turn at the earliest
        self.held_until = 0  #: it gets none before then, whatever it wants
        self.doomed = self.over = False
        self._body = body
        self.greenlet = greenlet(self._run, stage.hub)

    def _run(self) -> None:
        try:
            if not self.doomed:
                self._body()
        except Killed:
            pass
        finally:
            self.over = True


class Stage:
    """The clock, the dice and the actors. Whoever sleeps hands the turn straight to the next."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.clock = ManualClock(START)
        self.micros = 0
        self.trace: list[str] = []
        self._actors: list[Actor] = []
        self._turns: list[tuple[int, int, Actor]] = []  # a heap; an actor's last entry counts
        self._entries = 0
        self._current: Actor | None = None
        self._until: Callable[[], bool] = lambda: True
        self._most = 0
        self._over = self._late = False
        self.hub = getcurrent()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.micros / _MICRO

    def say(self, words: str) -> None:
        """Write a line into the trace."""
        who = self._current.name if self._current is not None else "-"
        self.trace.append(f"{self.seconds:11.6f} {who:12} {words}")

    def enter(self, name: str, body: Callable[[], None]) -> Actor:
        """Somebody new; the first turn comes when the dice say so."""
        self._actors = [actor for actor in self._actors if not actor.over]
        actor = Actor(self, name, body)
        self._actors.append(actor)
        self._queue(actor, self.micros)
        return actor

    def _queue(self, actor: Actor, at: int) -> None:
        actor.turn_at = at
        self._entries += 1
        heapq.heappush(self._turns, (at, self._entries, actor))

    # From the actors -----------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float = 0.0) -> None:
        """Give the turn away, and want it again after so long."""
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
        """These get no turn for so long, wherever they are."""
        for actor in actors:
            actor.held_until = self.micros + ceil(seconds * _MICRO)
            if not actor.doomed:
                self._queue(actor, max(actor.turn_at, actor.held_until))

    def kill(self, actors: Iterable[Actor]) -> None:
        """These get one last turn, in which they die where they slept."""
        for actor in actors:
            actor.doomed = True
            self._queue(actor, self.micros)

    def _choose(self) -> Actor | None:
        """Whose turn is next; None when the piece is over."""
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
        chosen = ready[0] if len(ready) == 1 else self.dice.choice(ready)
        for entry in ready:
            if entry is not chosen:
                heapq.heappush(self._turns, entry)
        self._current = chosen[2]
        return chosen[2]

    def _first(self) -> tuple[int, int, Actor] | None:
        """The entry whose time comes first, of those that still count."""
        while self._turns:
            at, _, actor = entry = self._turns[0]
            if not actor.over and actor.turn_at == at:
                return entry
            heapq.heappop(self._turns)
        return None

    # From whoever plays --------------------------------------------------------------------------------------------------

    def play(self, *, until: Callable[[], bool], most: float) -> bool:
        """Give turns until it is enough; False if that took longer than so many seconds. What an actor raises is raised here."""
        self._until, self._most = until, ceil(most * _MICRO)
        while (actor := self._choose()) is not None:
            actor.greenlet.switch()  # whoever sleeps hands on; here one is again when somebody has left
        self._current = None
        return not self._late

    def close(self) -> None:
        """Everybody leaves, one after the other."""
        self._over = True
        for actor in [actor for actor in self._actors if not actor.over]:
            actor.doomed = True
            self._current = actor
            actor.greenlet.switch()
