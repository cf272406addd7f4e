"""Limits: how many jobs may run at once or start within a time, and how much of each limit is left. Pure arithmetic.

A job names the limits it counts against; a name is a rule's (``task/mail``, ``mail.rate``) or a rule's and a key's
(``mail.account/7``). Rules are few and can be changed at run time; what is used of each name is counted by the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from tidemill.domain.bounds import text_flaw
from tidemill.domain.breaker import Breaker, Phase, phase_at, reopens_at
from tidemill.domain.lanes import Lane

ENDLESS = 2**31 - 1
"""The room of what is not limited."""

LONGEST_KEY = 100
"""Characters of a key that are kept as they are; a longer one is known by its hash."""

_ZERO = timedelta(0)


class LimitKind(StrEnum):
    """What a rule limits."""

    CONCURRENCY = "concurrency"  #: jobs that are held at the same time
    RATE = "rate"  #: jobs that begin within a time
    BREAKER = "breaker"  #: jobs that depend on something that may be down
    DEPTH = "depth"  #: jobs that wait; looked at when one is enqueued


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit as it was declared or set. ``max`` 0 is no limit; a ``pinned`` rule was set by a person and stays so."""

    name: str
    kind: LimitKind = LimitKind.CONCURRENCY
    max: int = 0
    per: timedelta | None = None  #: of a rate
    burst: int | None = (
        None  #: of a rate: so many at once, then evenly; without it no window has more than ``max``
    )
    breaker: Breaker | None = None
    pinned: bool = False
    changed_at: datetime | None = None
    changed_by: str | None = None


Rules = Mapping[str, Rule]


class Use(NamedTuple):
    """What is used of a name: jobs held, jobs begun within the window, and until when what is begun fills its bucket."""

    name: str
    used: int = 0
    begun: int = 0
    full_until_at: datetime | None = None
    oldest_at: datetime | None = None  #: when the window's first jobs began
    breaker: str | None = None  #: the breaker's state, as text
    now: datetime | None = None  #: the store's time when it was read, where that is known


def rule_of(name: str, rules: Rules) -> Rule | None:
    """The rule for a name: one for just this name, else the one it was made from; None where nothing limits it."""
    return rules.get(name) or rules.get(name.partition("/")[0])


def is_lifted(rule: Rule | None) -> bool:
    """Whether nothing is limited by it: there is none, or one that only marks where a limit was."""
    return rule is None or (not rule.pinned and rule.max <= 0 and rule.kind is not LimitKind.BREAKER)


def key_text(value: object) -> str:
    """A key's value as a part of a name.

    >>> key_text(7), key_text("acme"), key_text(None)
    ('7', 'acme', 'null')
    """
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if (
        len(text) <= LONGEST_KEY and text_flaw(text) is None
    ):  # a name is a text in a table, and an argument may hold more
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def window_of(rule: Rule | None) -> timedelta | None:
    """How long a job that began counts; None where only those that run do."""
    if rule is None or rule.kind is not LimitKind.RATE or rule.burst is not None:
        return None
    return rule.per


def memory_of(rules: Iterable[Rule], least: timedelta) -> timedelta:
    """How long what nobody touches may still matter to one of these rules."""
    longest = least
    for rule in rules:
        if rule.per and rule.max > 0:
            longest = max(longest, rule.per, rule.per * (rule.burst or 0) / rule.max)
        if rule.breaker is not None:
            longest = max(longest, rule.breaker.window + rule.breaker.rest)
    return longest


def room(rule: Rule | None, use: Use, now: datetime) -> int:
    """How many more may be claimed now."""
    if rule is None:
        return ENDLESS
    match rule.kind:
        case LimitKind.CONCURRENCY:
            return ENDLESS if rule.max <= 0 else max(rule.max - use.used, 0)
        case LimitKind.RATE:
            return _rate_room(rule, use, now)
        case LimitKind.BREAKER:
            return _breaker_room(rule, use, now)
        case LimitKind.DEPTH:
            return ENDLESS


def _rate_room(rule: Rule, use: Use, now: datetime) -> int:
    if rule.max <= 0 or not rule.per:
        return ENDLESS
    if rule.burst is None:
        return max(rule.max - use.begun, 0)
    filled = max((use.full_until_at or now) - now, _ZERO)
    # In whole microseconds, so that a bucket that is just empty enough is not found too full for a rounding error.
    return max(rule.burst - -(-filled * rule.max // rule.per), 0)


def _breaker_room(rule: Rule, use: Use, now: datetime) -> int:
    if rule.breaker is None:
        return ENDLESS
    match phase_at(use.breaker, now):
        case Phase.CLOSED:
            return ENDLESS
        case Phase.OPEN:
            return 0
        case Phase.HALF_OPEN:
            return max(rule.breaker.probes - use.used, 0)


def opens_at(rule: Rule | None, use: Use, now: datetime) -> datetime | None:
    """When there is room again, where time alone makes it; None where there is room, or where a job must end first."""
    if rule is None or room(rule, use, now) > 0:
        return None
    if rule.kind is LimitKind.BREAKER and rule.breaker is not None:
        at = reopens_at(use.breaker)
        return at if at is not None and at > now else None
    if rule.kind is not LimitKind.RATE or not rule.per:
        return None
    if rule.burst is None:
        return None if use.oldest_at is None else use.oldest_at + rule.per
    if use.full_until_at is None:
        return None
    # Rounded as `room` does: then there is room, and a microsecond before there was none.
    return use.full_until_at - rule.per * (rule.burst - 1) // rule.max


def spent(rule: Rule | None, use: Use, number: int, now: datetime) -> datetime | None:
    """Until when a bucket is filled after so many more; None for what is no bucket."""
    if rule is None or rule.kind is not LimitKind.RATE or rule.burst is None or not rule.per or rule.max <= 0:
        return None
    # Down to whole microseconds: rounded up, so many would fill the room of one more.
    return max(use.full_until_at or now, now) + rule.per * number // rule.max


def grant(lanes: Sequence[Lane], rooms: Mapping[str, int], limit: int) -> tuple[list[Lane], Sequence[Lane]]:
    """The first lanes with what each may yield, whatever those before it do; and the lanes to ask for once that is known.

    All of them together yield at most ``limit``. A lane whose room depends on what those before it leave is not guessed at: it and
    all after it come next, in their order. A name without a room is one that cannot be counted now.
    """
    left = {name: free for name, free in rooms.items() if free < limit}  # more than that cannot be used up
    granted: list[Lane] = []
    for place, lane in enumerate(lanes):
        wanted = min(lane.quota, limit, *(rooms.get(name, 0) for name in lane.limits))
        if wanted <= 0:
            continue
        if any(left.get(name, wanted) < wanted for name in lane.limits):
            return granted, lanes[place:]
        granted.append(lane._replace(quota=wanted))
        for name in left.keys() & lane.limits:
            left[name] -= wanted
    return granted, ()


def gate_of(limits: Collection[str]) -> str:
    """The gate that jobs with these limits stand behind: the same text for the same limits, nothing for none."""
    return _gate_of(tuple(limits)) if limits else ""


@lru_cache(maxsize=20_000)
def _gate_of(limits: tuple[str, ...]) -> str:
    return json.dumps(limits, separators=(",", ":"))


@lru_cache(maxsize=20_000)
def names_of(gate: str) -> tuple[str, ...]:
    """The limits of those behind a gate."""
    return tuple(json.loads(gate)) if gate else ()


def count(limits: Iterable[Collection[str] | None]) -> dict[str, int]:
    """In how many each name occurs."""
    found: dict[str, int] = {}
    for names in limits:
        for name in set(names or ()):
            found[name] = found.get(name, 0) + 1
    return found
