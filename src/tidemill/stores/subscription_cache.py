"""The subscriptions that a store object knows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tidemill.domain.records import Setting
from tidemill.domain.subscriptions import StoredSubscription, read_subscriptions

_FRESH = 5.0  # seconds for which rare verbs use the subscriptions that were read last


class SubscriptionCache:
    """The subscriptions that this store object knows.

    Every read of the settings refreshes them, and every process reads the settings anyway. The verbs of workers and
    producers therefore cost no statement more.
    """

    subscriptions: tuple[StoredSubscription, ...] = ()
    _stored: tuple[StoredSubscription, ...] = ()
    _declared: tuple[StoredSubscription, ...] = ()
    _learned_at = float("-inf")

    def learn_subscriptions(self, settings: Iterable[Setting]) -> None:
        """Use the subscriptions among these settings, and those that this process declares."""
        self._stored = read_subscriptions(settings)
        self._learned_at = time.monotonic()
        self._merge()

    def declare_subscriptions(self, subscriptions: Sequence[StoredSubscription]) -> None:
        """Record events for these subscriptions of this process, also before they are stored."""
        self._declared = tuple(subscriptions)
        self._merge()

    def knows_subscriptions(self) -> bool:
        """Whether the subscriptions were read a moment ago."""
        return time.monotonic() - self._learned_at < _FRESH

    def _merge(self) -> None:
        declared = {subscription.name for subscription in self._declared}
        others = tuple(one for one in self._stored if one.name not in declared)
        self.subscriptions = self._declared + others
