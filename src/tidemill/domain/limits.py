"""Limits on concurrent jobs and on starts per time.

A job names the limits it counts against. A name is that of a rule (``task/mail``, ``mail.rate``), or of a rule and a key
(``mail.account/7``). Rules are few and can change at run time; the store counts the use of each name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from tidemill.domain.bounds import text_flaw
from tidemill.domain.breaker import Breaker, BreakerPhase, phase_at, reopens_at
from tidemill.domain.lanes import Lane
from tidemill.domain.masks import looks_secret, masked_key

ENDLESS = 2**31 - 1
"""The room without a limit."""

LONGEST_KEY = 100
"""Maximum length of a literal key; longer keys are hashed."""

LEAST_SLACK, SLACK, MOST_SLACK = timedelta(milliseconds=20), 0.025, timedelta(seconds=1)
"""How long after its recorded start a rate-limited job may begin: this share of ``per``, within these bounds."""

_ZERO = timedelta(0)


class LimitKind(StrEnum):
    """The quantity that a rule limits."""

    CONCURRENCY = "concurrency"  #: jobs held at the same time
    RATE = "rate"  #: jobs started within a period
    BREAKER = "breaker"  #: jobs that depend on a service that may be down
    DEPTH = "depth"  #: waiting jobs; checked at enqueue


@dataclass(frozen=True, slots=True)
class Rule:
    """A declared or configured limit. ``max`` 0 means no limit; a ``pinned`` rule was set by a person and overrides the code."""

    name: str
    kind: LimitKind = LimitKind.CONCURRENCY
    max: int = 0
    per: timedelta | None = None  #: period of a rate
    #: Burst size of a rate (token bucket). Without it, no window of length ``per`` has more than ``max`` starts.
    burst: int | None = None
    breaker: Breaker | None = None
    pinned: bool = False
    changed_at: datetime | None = None
    changed_by: str | None = None
    slack: timedelta = _ZERO  #: of a rate: how long after its recorded start a job may begin; never stored


Rules = Mapping[str, Rule]


def enforced(rule: Rule) -> Rule:
    """The rule as workers enforce it.

    A store records a start when it claims the job; the handler begins at most ``slack`` later. Two records that are
    ``per + slack`` apart therefore belong to starts that are at least ``per`` apart.
    """
    if rule.kind is not LimitKind.RATE or not rule.per or rule.max <= 0:
        return rule
    return replace(rule, slack=min(max(rule.per * SLACK, LEAST_SLACK), MOST_SLACK))


class Use(NamedTuple):
    """The use of a name: jobs held, jobs started within the window, and until when the token bucket is full."""

    name: str
    used: int = 0
    begun: int = 0
    full_until_at: datetime | None = None
    oldest_at: datetime | None = None  #: the first start in the window
    breaker: str | None = None  #: the breaker's state, as text
    now: datetime | None = None  #: the store's time of the reading, if known
    ahead: int = 0  #: recorded starts after ``now``, because the store's clock was set back


def rule_of(name: str, rules: Rules) -> Rule | None:
    """The rule for exactly this name, or for the name without its key; None if there is no limit."""
    return rules.get(name) or rules.get(name.partition("/")[0])


def is_lifted(rule: Rule | None) -> bool:
    """Whether the rule limits nothing: there is none, or it only marks a removed limit."""
    return rule is None or (not rule.pinned and rule.max <= 0 and rule.kind is not LimitKind.BREAKER)


def key_text(value: object) -> str:
    """A key's value as a part of a name.

    >>> key_text(7), key_text("acme"), key_text(None)
    ('7', 'acme', 'null')
    """
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    # A name is stored as text, but an argument may contain characters that no store holds.
    if len(text) <= LONGEST_KEY and text_flaw(text) is None:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def key_part(key: str, value: object) -> str:
    """The part of a name for the argument ``key``; a digest if the argument's name looks like a secret's.

    >>> key_part("customer", "acme")
    'acme'
    """
    text = key_text(value)
    return masked_key(text) if looks_secret(key) else text


def window_of(rule: Rule | None) -> timedelta | None:
    """How long a start counts; None if only running jobs count."""
    if rule is None or rule.kind is not LimitKind.RATE or rule.burst is not None:
        return None
    return rule.per + rule.slack if rule.per else None


def memory_of(rules: Iterable[Rule], least: timedelta) -> timedelta:
    """How long an unchanged use may still matter to one of these rules."""
    longest = least
    for rule in rules:
        if rule.per and rule.max > 0:
            longest = max(longest, rule.per + MOST_SLACK, rule.per * (rule.burst or 0) / rule.max)
        if rule.breaker is not None:
            longest = max(longest, rule.breaker.window + rule.breaker.rest)
    return longest


def room(rule: Rule | None, use: Use, now: datetime) -> int:
    """How many more jobs may be claimed now."""
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
    bucket = _bucket_of(rule, use, now)
    return ENDLESS if bucket is None else _bucket_room(bucket, use, now)


def _breaker_room(rule: Rule, use: Use, now: datetime) -> int:
    if rule.breaker is None:
        return ENDLESS
    match phase_at(use.breaker, now):
        case BreakerPhase.CLOSED:
            return ENDLESS
        case BreakerPhase.OPEN:
            return 0
        case BreakerPhase.HALF_OPEN:
            probes = _bucket_of(rule, use, now)
            left = 0 if probes is None else _bucket_room(probes, use, now)
            return max(min(rule.breaker.probes - use.used, left), 0)


class _Bucket(NamedTuple):
    """A token bucket of this size, into which ``max`` tokens flow within ``per``."""

    size: int
    max: int
    per: timedelta
    slack: timedelta = _ZERO


def _bucket_of(rule: Rule | None, use: Use, now: datetime) -> _Bucket | None:
    """The bucket from which a rule takes its starts now; None if it has none.

    The probes of a half-open breaker come from a bucket. A worker reports the result of a probe after it has released
    the slot, so counting held jobs alone would let further probes start before the first failure is known.
    """
    if rule is None:
        return None
    if rule.breaker is not None:
        if phase_at(use.breaker, now) is not BreakerPhase.HALF_OPEN:
            return None
        return _Bucket(rule.breaker.probes, rule.breaker.probes, rule.breaker.rest)
    if rule.kind is not LimitKind.RATE or rule.burst is None or not rule.per or rule.max <= 0:
        return None
    return _Bucket(rule.burst, rule.max, rule.per, rule.slack)


def _bucket_room(bucket: _Bucket, use: Use, now: datetime) -> int:
    filled = _ZERO
    if use.full_until_at is not None:
        filled = max(use.full_until_at - now + bucket.slack, _ZERO)
    # In whole microseconds, so that a rounding error does not make a bucket with just enough room look full.
    return max(bucket.size - -(-filled * bucket.max // bucket.per), 0)


def opens_at(rule: Rule | None, use: Use, now: datetime) -> datetime | None:
    """When time alone makes room; None if there is room, or if a job must end first."""
    if rule is None or room(rule, use, now) > 0:
        return None
    if (bucket := _bucket_of(rule, use, now)) is not None:
        if use.full_until_at is None or _bucket_room(bucket, use, now) > 0:
            return None
        if rule.breaker is not None and use.used >= rule.breaker.probes:
            return None
        # Rounded as in `room`: there is room at this instant, and none a microsecond earlier.
        return use.full_until_at + bucket.slack - bucket.per * (bucket.size - 1) // bucket.max
    if rule.kind is LimitKind.BREAKER and rule.breaker is not None:
        at = reopens_at(use.breaker)
        return at if at is not None and at > now else None
    if rule.kind is not LimitKind.RATE or not rule.per or use.oldest_at is None:
        return None
    return use.oldest_at + rule.per + rule.slack


def spent(rule: Rule | None, use: Use, number: int, now: datetime) -> datetime | None:
    """Until when the bucket is full after this many more starts; None if the rule has no bucket."""
    bucket = _bucket_of(rule, use, now)
    if bucket is None:
        return None
    # Rounded down to whole microseconds: rounding up could fill the room of one more start.
    return max(use.full_until_at or now, now) + bucket.per * number // bucket.max


def overfull(rule: Rule | None, use: Use, now: datetime) -> datetime | None:
    """The corrected fill time of a bucket that seems to hold more than its capacity; None if it does not.

    This happens after the store's clock was set back. Without the correction no job would start until the clock has caught up.
    """
    bucket = _bucket_of(rule, use, now)
    if bucket is None or use.full_until_at is None:
        return None
    most = now + bucket.per * bucket.size // bucket.max
    return most if use.full_until_at > most + bucket.slack else None


def slack_of(names: Iterable[str], rules: Rules) -> timedelta | None:
    """How long after its recorded start a job with these limits may begin; None if no rate limits it."""
    ruled = (rule_of(name, rules) for name in names)
    return min((rule.slack for rule in ruled if is_rate(rule)), default=None)


def is_rate(rule: Rule | None) -> TypeGuard[Rule]:
    """Whether the rule limits the number of starts per period."""
    return rule is not None and rule.kind is LimitKind.RATE and rule.max > 0 and bool(rule.per)


def fitting(limits: Sequence[Collection[str]], rooms: Mapping[str, int]) -> list[bool]:
    """Which of these jobs fit into the rooms, in order."""
    left = dict(rooms)
    fits: list[bool] = []
    for names in limits:
        able = all(left.get(name, 1) > 0 for name in names)
        for name in names if able else ():
            if name in left:
                left[name] -= 1
        fits.append(able)
    return fits


def grant(lanes: Sequence[Lane], rooms: Mapping[str, int], limit: int) -> tuple[list[Lane], Sequence[Lane]]:
    """The first lanes with quotas that hold whatever the lanes before them yield, and the lanes to request afterwards.

    Together they yield at most ``limit``. The function does not guess the room of a lane that depends on earlier lanes: that lane
    and all after it are returned for later, in order. A name without a room cannot be counted now.
    """
    left = {name: free for name, free in rooms.items() if free < limit}  # larger rooms cannot be used up
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
    """The canonical text of a set of limits; empty for no limits."""
    return _gate_of(tuple(limits)) if limits else ""


@lru_cache(maxsize=20_000)
def _gate_of(limits: tuple[str, ...]) -> str:
    return json.dumps(limits, separators=(",", ":"))


@lru_cache(maxsize=20_000)
def names_of(gate: str) -> tuple[str, ...]:
    """The limits of a gate."""
    return tuple(json.loads(gate)) if gate else ()


def count(limits: Iterable[Collection[str] | None]) -> dict[str, int]:
    """How often each name occurs."""
    found: dict[str, int] = {}
    for names in limits:
        for name in set(names or ()):
            found[name] = found.get(name, 0) + 1
    return found
