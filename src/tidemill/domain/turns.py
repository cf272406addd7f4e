"""Whose turn it is in a lane: those without limits, or those who stand behind its gates. Whoever came first goes first.

Jobs behind gates cost more to claim. Where they came later than others who wait in the same lane, and of whom there are plenty, they
are asked for when their time has come, or when there is room left. Pure bookkeeping by numbers that may be old: a mistake lasts
until the next look at the store, and keeps nobody back who finds room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, Lane, LaneKey

MOST = 64
"""Lanes that are compared; where there are more, nobody is kept back."""


class Turns:
    """How far those behind the gates of each lane have come, and of which kinds of work there is plenty without limits."""

    def __init__(self) -> None:
        self._first: dict[LaneKey, int] = {}
        self._plenty: dict[str, bool] = {}

    def seen(self, lanes: Iterable[Lane], *, anew: bool) -> None:
        """These stand behind gates that are open; ``anew``: and others that were seen before need not be there any more."""
        if anew:
            self._first.clear()
        for lane in lanes:
            key = LaneKey(lane.queue, lane.tenant, lane.priority)
            self._first[key] = min(lane.low, self._first.get(key, lane.low))

    def took(self, claims: Iterable[Claim]) -> None:
        """These were claimed from behind gates: those after them have numbers that are higher, as a rule."""
        for key, number in first_numbers(claims).items():
            if key in self._first:
                self._first[key] = max(number, self._first[key])

    def gave(self, kinds: Iterable[str], *, full: bool) -> None:
        """A claim of work without limits, of these kinds, was full or was not."""
        for kind in kinds:
            self._plenty[kind] = full

    def plenty(self, kinds: Iterable[str]) -> bool:
        """Whether the last claims of these kinds were full."""
        return all(self._plenty.get(kind) for kind in kinds)

    def come_later(self, plain: Sequence[Lane], first: Mapping[LaneKey, int] | None = None) -> bool:
        """Whether all who stand behind gates (or those with these first numbers) came after others in their lanes.

        Only where all have one priority: the order of priorities is not for us to judge.
        """
        first = self._first if first is None else first
        if not first or len(first) > MOST:
            return False
        if len({lane.priority for lane in plain} | {key.priority for key in first}) > 1:
            return False
        reached = {lane.key: lane.low + SAFETY for lane in plain}
        return all(key in reached and reached[key] < number for key, number in first.items())


def first_numbers(claims: Iterable[Claim]) -> dict[LaneKey, int]:
    """The lowest number in each lane, gates aside."""
    found: dict[LaneKey, int] = {}
    for claim in claims:
        key, number = LaneKey(claim.queue, claim.tenant, claim.priority), claim.seq or 0
        found[key] = min(number, found.get(key, number))
    return found
