"""Counting of limits in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from tidemill.domain.limits import Rule, Rules, Use, overfull, room, rule_of, spent, window_of
from tidemill.stores.memory.state import LimitCount, State


def use_of(state: State, name: str, rule: Rule | None, now: datetime) -> Use:
    """The use of a name, as far as its rule needs it."""
    counted = state.counted.get(name) or LimitCount()
    window = window_of(rule)
    starts = [part for part in counted.begun if window is not None and part[0] > now - window]
    begun = [part for part in starts if part[0] <= now]
    return Use(
        name,
        counted.used,
        sum(number for _, number in begun),
        counted.full_until_at,
        begun[0][0] if begun else None,
        counted.breaker,
        now,
        sum(number for at, number in starts if at > now),
    )


def correct(state: State, names: Collection[str], rules: Rules, now: datetime) -> None:
    """Move recorded starts and bucket fills in the future to now, because the clock was set back."""
    for name in names:
        counted, rule = state.counted.get(name), rule_of(name, rules)
        if counted is not None:
            begun = tuple((min(at, now), number) for at, number in counted.begun)
            until = overfull(rule, use_of(state, name, rule, now), now) or counted.full_until_at
            if (begun, until) != (counted.begun, counted.full_until_at):
                state.counted[name] = replace(counted, begun=begun, full_until_at=until)


def take_back(state: State, name: str, at: datetime | None) -> None:
    """Remove one recorded start at this instant."""
    counted = state.counted.get(name)
    if counted is None:
        return
    for place, (begun_at, number) in enumerate(counted.begun):
        if begun_at == at:
            left = ((begun_at, number - 1),) if number > 1 else ()
            begun = (*counted.begun[:place], *left, *counted.begun[place + 1 :])
            state.counted[name] = replace(counted, begun=begun)
            return


def rooms(state: State, names: Collection[str], rules: Rules, now: datetime) -> dict[str, int]:
    """How many more jobs may be claimed against each of these names."""
    correct(state, names, rules, now)
    ruled = {name: rule_of(name, rules) for name in names}
    return {name: room(rule, use_of(state, name, rule, now), now) for name, rule in ruled.items()}


def add(state: State, taken: Mapping[str, int], rules: Rules, now: datetime, *, held: bool = True) -> None:
    """Count this many new starts of each name, and with ``held`` also as held."""
    for name, number in taken.items():
        rule = rule_of(name, rules)
        use = use_of(state, name, rule, now)
        counted = state.counted.get(name) or LimitCount()
        window = window_of(rule)
        begun = counted.begun
        if window is not None:
            begun = (*(part for part in begun if part[0] > now - window), (now, number))
        full_until_at = spent(rule, use, number, now) or counted.full_until_at
        state.counted[name] = LimitCount(
            counted.used + (number if held else 0), begun, full_until_at, counted.breaker, now
        )


def free(state: State, names: Collection[str], now: datetime) -> None:
    """Release one held slot of each of these names."""
    for name in set(names):
        counted = state.counted.get(name)
        if counted is not None:
            state.counted[name] = replace(counted, used=max(counted.used - 1, 0), changed_at=now)
