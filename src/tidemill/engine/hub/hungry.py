"""Hands that asked for more jobs than there were, to be woken when there are some."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from tidemill.engine.hub.dealer import AskGroup

LASTS = 60.0
"""Seconds for which a hand is remembered; it polls more often than that."""


class HungryHand(NamedTuple):
    """A hand without enough jobs, and when it asked."""

    address: UUID
    asked_at: float


class HungryHands:
    """The hands that wait for jobs, by group, the one that waits longest first. Only one thread uses it."""

    def __init__(self) -> None:
        self._hands: dict[AskGroup, OrderedDict[UUID, HungryHand]] = {}

    def add(self, group: AskGroup, worker: UUID, address: UUID, now: float) -> None:
        """Remember a hand that did not get enough."""
        hands = self._hands.setdefault(group, OrderedDict())
        hands.setdefault(worker, HungryHand(address, now))
        hands[worker] = HungryHand(address, now)

    def remove(self, group: AskGroup, worker: UUID) -> None:
        """Forget a hand that asks again."""
        self._hands.get(group, OrderedDict()).pop(worker, None)

    def take(self, group: AskGroup, most: int, now: float) -> list[UUID]:
        """The addresses of up to ``most`` hands, which are forgotten: they ask again."""
        hands = self._hands.get(group)
        taken: list[UUID] = []
        while hands and len(taken) < most:
            _, hand = hands.popitem(last=False)
            if now - hand.asked_at < LASTS:
                taken.append(hand.address)
        return taken

    def any(self, group: AskGroup) -> bool:
        """Whether hands of this group wait."""
        return bool(self._hands.get(group))

    def __len__(self) -> int:
        return sum(map(len, self._hands.values()))
