"""Start deadlines of jobs under a rate limit, and handling of jobs that miss them.

A claim records a start time by the store's clock. A stamp reads the worker's clock just before that, so the recorded
time is never earlier than the reading. A handler that is called within the rate's slack after the reading is therefore
within the slack of the recorded start. After that, the store must record the start again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidemill.clock import Clock
from tidemill.domain.lanes import Lane
from tidemill.domain.limits import Rules, slack_of
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.errors import StoreError
from tidemill.stores.base import Store

PUNCTUAL = 0.75
"""Share of the slack within which a handler must be called. The rest covers the time until its first line runs."""

TRIES = 10
"""How often a start is recorded again before the job is released."""

_NEVER = float("-inf")


class Stamp:
    """Reading of the worker's clock just before the store records starts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: float | None = None

    def __call__(self) -> None:
        self.at = self._clock.monotonic()


class Permits:
    """Start deadlines of one runner's jobs."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Callable[[], Rules],
        lose: Callable[[Iterable[HeldJob]], None],
    ) -> None:
        self._store, self._clock, self._rules, self._lose = store, clock, rules, lose

    def give(self, jobs: Iterable[HeldJob], dated: float | None) -> None:
        """Set the start deadline of jobs whose starts were recorded at or after the clock reading ``dated``.

        ``dated`` is None if the time is unknown.
        """
        rules = self._rules()
        for held in jobs:
            slack = slack_of(held.claim.limits, rules) if held.claim.limits else None
            if slack is not None:
                held.start_by = _NEVER if dated is None else dated + PUNCTUAL * slack.total_seconds()

    def renew(self, held: HeldJob) -> str | None:
        """Have the store record the start of a late job again. Returns the reason if that is refused, else None."""
        held.renewals += 1
        if held.renewals > TRIES:
            return f"this worker could not start it in time, {TRIES} times in a row"
        rules, stamp = self._rules(), Stamp(self._clock)
        slack = slack_of(held.claim.limits or (), rules)
        if slack is None:  # the rate was removed since the claim
            held.start_by = None
            return None
        try:
            lost, refused = self._store.redate([held.claim], rules, dating=stamp)
        except StoreError as error:
            return f"its start under a rate could not be recorded: {error}"
        if lost:
            self._lose([held])
            return "this worker no longer holds it"
        if refused:
            return "it reached its start too late, and its rate limit is used up"
        held.start_by = _NEVER if stamp.at is None else stamp.at + PUNCTUAL * slack.total_seconds()
        return None


def startable(lanes: Sequence[Lane], rules: Rules, limit: int, free: int) -> int:
    """Return how many jobs to claim from these lanes. If a lane has a rate, it is only as many as can start at once."""
    if limit <= free or all(slack_of(lane.limits, rules) is None for lane in lanes):
        return limit
    return free
