"""Builders of the limit tests: rules, claims within them, and counters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from tidemill.domain.breaker import BreakerPhase, BreakerState, written
from tidemill.domain.job import Claim
from tidemill.domain.limits import LimitKind, Rule, Rules, Use
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, wants


class Undo(Exception):
    """Leaves a transaction."""


TEN: Final = timedelta(seconds=10)

OPEN: Final = written(BreakerState(BreakerPhase.OPEN, T0, at(10)))
"""A breaker that opened at ``T0`` and stays open for ten seconds."""


def at_once(name: str, most: int, **fields: Any) -> Rule:
    """Return a concurrency limit."""
    return Rule(name, LimitKind.CONCURRENCY, most, **fields)


def in_time(name: str, most: int, per: timedelta = TEN, burst: int | None = None) -> Rule:
    """Return a rate limit."""
    return Rule(name, LimitKind.RATE, most, per, burst)


def by_name(*rules: Rule) -> Rules:
    """Return rules as a request carries them."""
    return {rule.name: rule for rule in rules}


def claim_within(store: Store, *rules: Rule, now: datetime = T0, **request: Any) -> list[Claim]:
    """Claim all that these rules allow, or what the request selects (see ``kit.wants``)."""
    return store.claim(wants(store, **request)._replace(rules=by_name(*rules)), now=now)


def use_of(store: Store, name: str, *rules: Rule, now: datetime = T0) -> Use:
    """Return the use of one name."""
    (use,) = store.uses(by_name(*rules), [name], now=now)
    return use


def used(store: Store, *names: str, now: datetime = T0) -> list[int]:
    """Return how many jobs are held of each name."""
    uses = store.uses({}, names, now=now)
    assert [use.name for use in uses] == list(names)
    return [use.used for use in uses]
