"""Order between limited and unlimited jobs of a lane, by their sequence numbers.

Limited jobs cost more to claim. If they are younger than the unlimited jobs waiting in the same lane, and the last claims of
unlimited jobs were full, the worker requests them only when their turn has come or when room is left. The numbers may be stale:
an error lasts until the store is read again, and never keeps back a job while there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, Lane, LaneKey

MOST = 64
"""Maximum number of lanes to compare; with more, no job is kept back."""


class Turns:
    """The position of limited jobs per lane, and for which kinds of work unlimited jobs are plentiful."""

    def __init__(self) -> None:
        self._first: dict[LaneKey, int] = {}
        self._plenty: dict[str, bool] = {}

    def seen(self, lanes: Iterable[Lane], *, replace: bool) -> None:
        """Record open limited lanes; ``replace``: they replace the lanes recorded before."""
        if replace:
            self._first.clear()
        for lane in lanes:
            key = LaneKey(lane.queue, lane.tenant, lane.priority)
            self._first[key] = min(lane.low, self._first.get(key, lane.low))

    def took(self, claims: Iterable[Claim]) -> None:
        """Record claims of limited jobs: the jobs after them usually have higher numbers."""
        for key, number in first_numbers(claims).items():
            if key in self._first:
                self._first[key] = max(number, self._first[key])

    def gave(self, kinds: Iterable[str], *, full: bool) -> None:
        """Record whether a claim of unlimited jobs of these kinds was full."""
        for kind in kinds:
            self._plenty[kind] = full

    def plenty(self, kinds: Iterable[str]) -> bool:
        """Whether the last claims of these kinds were full."""
        return all(self._plenty.get(kind) for kind in kinds)

    def come_later(self, plain: Sequence[Lane], first: Mapping[LaneKey, int] | None = None) -> bool:
        """Whether all limited jobs (or those with these first numbers) are younger than the unlimited jobs in their lanes.

        Only if all lanes have the same priority: this class does not decide between priorities.
        """
        first = self._first if first is None else first
        if not first or len(first) > MOST:
            return False
        if len({lane.priority for lane in plain} | {key.priority for key in first}) > 1:
            return False
        reached = {lane.key: lane.low + SAFETY for lane in plain}
        return all(key in reached and reached[key] < number for key, number in first.items())


def first_numbers(claims: Iterable[Claim]) -> dict[LaneKey, int]:
    """The lowest number in each lane, regardless of its limits."""
    found: dict[LaneKey, int] = {}
    for claim in claims:
        key, number = LaneKey(claim.queue, claim.tenant, claim.priority), claim.seq or 0
        found[key] = min(number, found.get(key, number))
    return found
