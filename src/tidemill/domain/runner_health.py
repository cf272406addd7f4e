"""Health checks of runner processes that are alive.

The supervisor collects the signs; ``diagnose`` judges them. All times are seconds by the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.decide import in_company
from tidemill.domain.job import Claim
from tidemill.domain.outcome import Crashed, Outcome, Released, TimedOut

UNWELL = 6.0
"""Seconds after which a sign makes the worker not ready. A healthy runner sends a message every two seconds."""

NO_FILES = 3.0
"""Seconds without a free file descriptor after which a runner is replaced."""


class RunnerSigns(NamedTuple):
    """Observations of a runner. Each number is the duration of a problem; 0 means there is none."""

    silence: float = 0.0  #: since its last message
    overdue: float = 0.0  #: the store has shown one of its jobs past its timeout
    loop: float = 0.0  #: the event loop has not run
    loop_waiting: bool = False  #: other jobs wait for the event loop
    pump: float = 0.0  #: there was work to claim or to write, and no step was completed
    store: float = 0.0  #: the store has not answered the runner, although it answers the supervisor
    files: float = 0.0  #: it cannot open a file


class HealthBounds(NamedTuple):
    """How long a runner may show a sign: ``patience`` for an overdue job, ``silence`` without any message."""

    patience: float
    silence: float

    @property
    def wedged(self) -> float:
        """The bound for an event loop that blocks other jobs."""
        return self.silence / 4

    @property
    def stalled(self) -> float:
        """The bound without a store exchange. Longer, because the store itself may be the cause."""
        return self.silence / 2


class Diagnosis(NamedTuple):
    """Why a runner is sick, and whether to replace it now or only watch it."""

    reason: str
    replace: bool


def diagnose(signs: RunnerSigns, bounds: HealthBounds) -> Diagnosis | None:
    """Judge a runner by its signs; None if it is healthy. The first sign that requires a replacement is the reason."""
    loop_bound = bounds.wedged if signs.loop_waiting else bounds.silence
    found = (
        (signs.overdue, bounds.patience, "a job is past its timeout and was not ended"),
        (signs.files, NO_FILES, "it cannot open files"),
        (signs.silence, bounds.silence, "it sends no messages"),
        (signs.loop, loop_bound, "its event loop does not run"),
        (signs.pump, bounds.stalled, "it neither claims nor writes jobs"),
        (signs.store, bounds.stalled, "the store does not answer it"),
    )
    for seconds, bound, what in found:
        if seconds >= bound:
            return Diagnosis(f"{what} (for {seconds:.0f} s)", replace=True)
    for seconds, _, what in found:
        if seconds >= UNWELL or (seconds > 0 and what is found[0][2]):
            return Diagnosis(f"{what} (for {seconds:.0f} s)", replace=False)
    return None


def verdicts(
    held: Iterable[Claim], overdue: Collection[UUID], blamed: Collection[UUID], reason: str
) -> Callable[[Claim], Outcome]:
    """The outcome of each job of a runner that was killed because it was sick.

    An overdue job is timed out. If it, or a job that blocked the event loop, explains the sickness, the other jobs are released
    without a charge. If nothing explains it, any job that had started may be the cause.
    """
    held = list(held)
    company = in_company(held)
    explained = any(claim.id in overdue or claim.id in blamed for claim in held)

    def verdict(claim: Claim) -> Outcome:
        if claim.id in overdue and claim.timeout is not None:
            return TimedOut(claim.timeout)
        if claim.id in blamed or not explained:
            return Crashed(reason, alone=claim.id not in company)
        return Released(reason)

    return verdict
