"""The state of a store's limits: rules and their usage, from bounded reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.client.limits.cache import count_depth
from tidemill.domain.breaker import BreakerPhase, phase_at
from tidemill.domain.lanes import LaneKey
from tidemill.domain.limits import ENDLESS, LimitKind, Rule, Rules, Use, is_lifted, opens_at, room, rule_of
from tidemill.stores.base import Store
from tidemill.tasks.limit_rules import EACH

MOST_NAMES = 1_000
"""Maximum number of limit names whose usage is read, most used first."""

MOST_KEYS = 10
"""Maximum number of keys shown for one rule."""

MOST_QUEUES = 50
"""Maximum number of queues or tenants that are examined."""

_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit with its current usage.

    ``used`` counts held jobs. For a rate window it counts the jobs started within it; for a depth it counts waiting
    jobs.

    ``room`` is the number of jobs that may still start or be enqueued now. It is None without a limit, and for a rule
    that counts each key separately: ``keys`` holds the states of those, most used first.

    ``opens_at`` is the time at which there is room again even if no job ends.
    """

    name: str
    rule: Rule
    used: int = 0
    room: int | None = None
    opens_at: datetime | None = None
    phase: BreakerPhase | None = None  #: of a breaker
    keys: tuple[LimitState, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether there is no room now, for this limit or for one of its keys."""
        return self.room == 0 or any(key.is_full for key in self.keys)


def state_of(name: str, rule: Rule, use: Use, now: datetime) -> LimitState:
    """Return the state of one limit name."""
    at = use.now or now
    left = room(rule, use, at)
    window = rule.kind is LimitKind.RATE and rule.burst is None
    return LimitState(
        name,
        rule,
        use.begun if window else use.used,
        None if left >= ENDLESS else left,
        opens_at(rule, use, at),
        phase_at(use.breaker, at) if rule.kind is LimitKind.BREAKER else None,
    )


def limit_states(store: Store, now: datetime, *, keyed: Collection[str] = ()) -> list[LimitState]:
    """Return the state of every effective rule; ``keyed`` names rules known to count each key separately."""
    rules = {rule.name: rule for rule in store.rules() if not is_lifted(rule)}
    if not rules:
        return []
    counted = [name for name, rule in rules.items() if rule.kind is not LimitKind.DEPTH]
    own = {use.name: use for use in store.uses(rules, counted)} if counted else {}
    keys: dict[str, list[LimitState]] = {}
    for use in store.uses(rules, limit=MOST_NAMES) if counted else ():
        rule = rule_of(use.name, rules)
        if rule is not None and rule.name != use.name:
            keys.setdefault(rule.name, []).append(state_of(use.name, rule, use, now))
    found = []
    for name, rule in rules.items():
        if rule.kind is LimitKind.DEPTH:
            found.append(_depth_state(store, rule, rules))
            continue
        state = state_of(name, rule, own[name], now)
        if name in EACH or name in keyed or name in keys:
            shown = keys.get(name, [])
            used = sum(key.used for key in shown)
            state = replace(state, used=used, room=None, opens_at=None, keys=tuple(shown[:MOST_KEYS]))
        found.append(state)
    return found


def limit_state(store: Store, name: str, now: datetime, *, keyed: Collection[str] = ()) -> LimitState | None:
    """Return the state of one limit, or of one key of a limit; None if no rule applies."""
    rules = {rule.name: rule for rule in store.rules() if not is_lifted(rule)}
    if name in rules:
        return next((state for state in limit_states(store, now, keyed=keyed) if state.name == name), None)
    parts = name.split("/", 2)
    if parts[0] == "depth":
        rule = rules.get("/".join(parts[:2])) if len(parts) == 3 else None
        return None if rule is None else _depth_of(store, name, rule)
    rule = rule_of(name, rules)
    if rule is None:
        return None
    (use,) = store.uses(rules, [name])
    return state_of(name, rule, use, now)


def _depth_state(store: Store, rule: Rule, rules: Rules) -> LimitState:
    if rule.name not in EACH:
        return _depth_of(store, rule.name, rule)
    at = 0 if rule.name == "depth/queue" else 1
    places = sorted({key[at] for key in waiting_lanes(store)})[:MOST_QUEUES]
    names = [f"{rule.name}/{place}" for place in places]
    shown = [_depth_of(store, name, rule) for name in names if name not in rules]
    shown.sort(key=lambda key: (-key.used, key.name))
    return LimitState(
        rule.name, rule, sum(key.used for key in shown), None, None, None, tuple(shown[:MOST_KEYS])
    )


def _depth_of(store: Store, name: str, rule: Rule) -> LimitState:
    _, kind, place = name.split("/", 2)
    if rule.max <= 0:
        return LimitState(name, rule)
    depth = count_depth(store, (kind, place), rule.max)
    return LimitState(name, rule, depth, rule.max - depth)


def waiting_lanes(store: Store) -> list[LaneKey]:
    """Return the lanes of waiting jobs, with or without limits: every queue, but possibly not every limit set."""
    found = [lane.key for lane in store.lanes()]
    page: Sequence[LaneKey] = [lane.key for lane in store.gates()]
    found += page
    for _ in range(MOST_QUEUES):
        if len(page) not in (1, 500):
            break
        # After a full page, read only the first lane of each following queue, one at a time.
        beyond = LaneKey(page[-1].queue, _LAST, 0)
        page = [lane.key for lane in store.gates(limit=1, after=beyond)]
        found += page
    return found
