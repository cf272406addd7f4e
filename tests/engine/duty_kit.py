"""Helpers for the duty loop tests: recording duties, and stepped loops."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from tests.engine.cluster_kit import Line

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Coordination
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.engine.listener import WakeupListener
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore


class Notebook:
    """A duty that records when it ran and returns the given answer."""

    def __init__(self, clock: ManualClock, answer: Callable[[], Done] = Done) -> None:
        self.clock, self.answer = clock, answer
        self.times: list[float] = []

    def __call__(self) -> Done:
        self.times.append(round(self.clock.monotonic(), 2))
        return self.answer()


class Deaf(WakeupListener):
    """A listener without a thread, which receives topics from the test."""

    def hear(self, *topics: str) -> None:
        self.tell(frozenset(topics))


class Yard:
    """Several loops on one store, stepped by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.loops: list[Duties] = []

    def loop(
        self, *duties: Duty, line: Line | None = None, listener: WakeupListener | None = None, **options: Any
    ) -> Duties:
        store = self.memory if line is None else line.store
        options.setdefault("coordination", Coordination.LEASE)
        made = Duties(
            store, self.clock, new_id(), duties, random=Random(len(self.loops)), listener=listener, **options
        )
        if listener is not None:
            listener.subscribe(made._hear)
        self.loops.append(made)
        return made

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        self.memory.close()

    def pass_time(self, seconds: float, *loops: Duties) -> None:
        """Advance the clock step by step, running each loop whenever it is due."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            wait = min(loop.step() for loop in loops or self.loops)
            self.clock.advance(timedelta(seconds=min(wait, left), microseconds=1))


def every(seconds: float, run: Callable[[], Done], *topics: str) -> Duty:
    return Duty("work", timedelta(seconds=seconds), run, frozenset(topics))
