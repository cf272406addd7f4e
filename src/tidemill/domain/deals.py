"""Deals: claims for several workers at once, and the order in which their jobs are distributed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest, Lane

if TYPE_CHECKING:
    from tidemill.domain.limits import Rule


class Ask(NamedTuple):
    """The wish of one worker for at most ``limit`` jobs."""

    worker: UUID
    limit: int


class DealRequest(NamedTuple):
    """A claim for several workers: the other fields are those of a ``ClaimRequest``."""

    asks: Sequence[Ask]
    lanes: Sequence[Lane]
    tasks: Sequence[str] | None = None
    start: bool = True
    rules: Mapping[str, Rule] = {}
    dating: Callable[[], object] | None = None

    @property
    def limit(self) -> int:
        """The most jobs that it can return."""
        return sum(ask.limit for ask in self.asks)

    def among(self, living: Collection[UUID]) -> DealRequest:
        """The request without workers that may not claim."""
        return self._replace(asks=[ask for ask in self.asks if ask.worker in living])

    def claim(self) -> ClaimRequest:
        """One claim for all of them, in the name of the first."""
        return ClaimRequest(
            self.asks[0].worker,
            self.lanes,
            self.limit,
            self.tasks,
            self.start,
            self.rules,
            dating=self.dating,
        )


def turns(asks: Sequence[Ask]) -> Iterator[UUID]:
    """The workers in the order in which they get jobs: one for each, then a second one for each that wants more.

    >>> a, b = UUID(int=1), UUID(int=2)
    >>> [worker.int for worker in turns([Ask(a, 1), Ask(b, 3)])]
    [1, 2, 2, 2]
    """
    for turn in range(max((ask.limit for ask in asks), default=0)):
        for ask in asks:
            if ask.limit > turn:
                yield ask.worker


def trimmed(asks: Sequence[Ask], limit: int) -> list[Ask]:
    """The asks with at most ``limit`` jobs together, in the order of their turns.

    >>> [ask.limit for ask in trimmed([Ask(UUID(int=1), 3), Ask(UUID(int=2), 3)], 3)]
    [2, 1]
    """
    if sum(ask.limit for ask in asks) <= limit:
        return list(asks)
    counts = Counter(islice(turns(asks), max(limit, 0)))
    return [ask._replace(limit=counts[ask.worker]) for ask in asks if counts[ask.worker]]


def remaining(asks: Sequence[Ask], claims: Sequence[Claim]) -> list[Ask]:
    """The asks without the jobs of these claims."""
    got = Counter(claim.worker for claim in claims)
    return [ask._replace(limit=ask.limit - got[ask.worker]) for ask in asks if ask.limit > got[ask.worker]]


def dealt(claims: Sequence[Claim], asks: Sequence[Ask]) -> list[Claim]:
    """These claims with the worker that each of them goes to: the jobs are dealt by their numbers, in turn."""
    order = sorted(claims, key=lambda claim: claim.seq or 0)
    workers = {claim.id: worker for claim, worker in zip(order, turns(asks), strict=False)}
    return [claim._replace(worker=workers[claim.id]) for claim in claims]
