"""A runner's report on its own health: loop, exchange, files and overdue jobs.

The supervisor combines it with its own observations; see ``domain.runner_health``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tidemill.engine.exchange.held_job import HeldJob

_LONGEST_STEP = 2.0
_ANSWER = 0.5


class RunnerCondition(NamedTuple):
    """Seconds for which each part has been failing. ``blocking`` is the job whose code blocks the event loop."""

    loop: float = 0.0
    loop_waiting: bool = False
    pump: float = 0.0
    store: float = 0.0
    files: float = 0.0
    overdue: float = 0.0
    blocking: str | None = None


class LoopProbe(Protocol):
    """The event loop executor."""

    def ping(self) -> float: ...

    def guilty(self) -> Any: ...

    @property
    def crowded(self) -> bool: ...


class ExchangeProbe(Protocol):
    """The exchange with the store."""

    @property
    def steps(self) -> int: ...

    @property
    def owes_a_step(self) -> bool: ...

    @property
    def store_ok(self) -> bool: ...


class SelfCheck:
    """Adds up for how long each part has been failing.

    Each call counts for at most two seconds. Time in which no thread of this process could run (a handler held the GIL,
    or the process was halted) is not counted here. The supervisor detects it as silence.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._steps = -1
        self._last = RunnerCondition()

    def look(
        self, loop: LoopProbe, exchange: ExchangeProbe, jobs: Sequence[HeldJob], now: float
    ) -> RunnerCondition:
        """Return the current condition of these parts."""
        since = 0.0 if self._looked_at is None else min(now - self._looked_at, _LONGEST_STEP)
        self._looked_at = now
        moved, self._steps = exchange.steps != self._steps, exchange.steps
        last = self._last

        def added(so_far: float, *, wrong: bool) -> float:
            return so_far + since if wrong else 0.0

        away = loop.ping() > _ANSWER
        self._last = RunnerCondition(
            loop=added(last.loop, wrong=away),
            loop_waiting=away and loop.crowded,
            pump=added(last.pump, wrong=exchange.store_ok and exchange.owes_a_step and not moved),
            store=added(last.store, wrong=not exchange.store_ok),
            files=added(last.files, wrong=not can_open_files()),
            overdue=max((_overdue(held, now) for held in jobs), default=0.0),
            blocking=_blocking(loop.guilty(), jobs) if away else None,
        )
        return self._last


def _blocking(inside: Any, jobs: Sequence[HeldJob]) -> str | None:
    """Return the job whose code blocks the event loop."""
    if inside is None:
        return None
    return next((str(held.claim.id) for held in jobs if held.handle is inside), None)


def _overdue(held: HeldJob, now: float) -> float:
    """Return the seconds that a job has run past its timeout without being ended."""
    if held.began is None or held.claim.timeout is None or held.over or not held.is_open:
        return 0.0
    return max(0.0, now - held.began - held.claim.timeout.total_seconds())


def can_open_files() -> bool:
    """Whether this process has a free file descriptor."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True
