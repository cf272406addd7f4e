"""Counting limits in memory: what is left of a name, what a claim takes, what an end gives back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from tidemill.domain.limits import Rule, Rules, Use, room, rule_of, spent, window_of
from tidemill.stores.memory.state import Counted, State


def use_of(state: State, name: str, rule: Rule | None, now: datetime) -> Use:
    """What is used of a name, by what a rule wants to know."""
    counted = state.counted.get(name) or Counted()
    window = window_of(rule)
    begun = [part for part in counted.begun if window is not None and part[0] > now - window]
    return Use(
        name,
        counted.used,
        sum(number for _, number in begun),
        counted.full_until_at,
        begun[0][0] if begun else None,
        counted.breaker,
        now,
    )


def rooms(state: State, names: Collection[str], rules: Rules, now: datetime) -> dict[str, int]:
    """How many more may be claimed that count against each of these."""
    ruled = {name: rule_of(name, rules) for name in names}
    return {name: room(rule, use_of(state, name, rule, now), now) for name, rule in ruled.items()}


def add(state: State, taken: Mapping[str, int], rules: Rules, now: datetime) -> None:
    """So many more are held of each name."""
    for name, number in taken.items():
        rule = rule_of(name, rules)
        use = use_of(state, name, rule, now)
        counted = state.counted.get(name) or Counted()
        window = window_of(rule)
        begun = counted.begun
        if window is not None:
            begun = (*(part for part in begun if part[0] > now - window), (now, number))
        full_until_at = spent(rule, use, number, now) or counted.full_until_at
        state.counted[name] = Counted(counted.used + number, begun, full_until_at, counted.breaker, now)


def free(state: State, names: Collection[str], now: datetime) -> None:
    """One that counted against these is held no more."""
    for name in set(names):
        counted = state.counted.get(name)
        if counted is not None:
            state.counted[name] = replace(counted, used=max(counted.used - 1, 0), changed_at=now)
