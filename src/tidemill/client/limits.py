"""``app.limits``: reading limits with their usage, and setting them at run time.

A limit set here is pinned and audited. Workers enforce limits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client._base import StoreApi, async_twin, in_each_store
from tidemill.client.access import difference, note, who
from tidemill.client.enqueue.limit_cache import count_depth, drop_rule
from tidemill.domain.breaker import BreakerPhase, BreakerState, phase_at, written
from tidemill.domain.durations import Duration
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.lanes import LaneKey
from tidemill.domain.limits import ENDLESS, LimitKind, Rule, Rules, Use, is_lifted, opens_at, room, rule_of
from tidemill.errors import LimitNotFound, StoreBusy
from tidemill.stores.base import Store
from tidemill.tasks.limit_rules import PER_NAME, check_known, rule_for, scope_of
from tidemill.tasks.limits import rule_name, rules_of_all

NO_LIMIT = "no limit"


def allows(
    rule: Rule, span: Callable[[timedelta | None], str], percent: Callable[[float | None], str]
) -> str:
    """Return a short text about what a rule allows; ``span`` and ``percent`` format a duration and a share.

    >>> def allowed(rule): return allows(rule, str, "{:.0%}".format)
    >>> allowed(Rule("x", LimitKind.RATE, 20, timedelta(minutes=1))), allowed(Rule("x", max=2)), allowed(Rule("x"))
    ('20 in 0:01:00', '2 at a time', 'no limit')
    """
    if rule.kind is LimitKind.BREAKER:
        breaker = rule.breaker
        if breaker is None:
            return "everything"
        return f"opens at {percent(breaker.failures)} failures of {breaker.least} in {span(breaker.window)}"
    if rule.max <= 0:
        return NO_LIMIT
    match rule.kind:
        case LimitKind.RATE:
            bucket = "" if rule.burst is None else f", {rule.burst:,} at once"
            return f"{rule.max:,} in {span(rule.per)}{bucket}"
        case LimitKind.DEPTH:
            return f"{rule.max:,} waiting"
        case _:
            return f"{rule.max:,} at a time"


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
    states = []
    for name, rule in rules.items():
        if rule.kind is LimitKind.DEPTH:
            states.append(_depth_state(store, rule, rules))
            continue
        state = state_of(name, rule, own[name], now)
        if name in PER_NAME or name in keyed or name in keys:
            shown = keys.get(name, [])
            used = sum(key.used for key in shown)
            state = replace(state, used=used, room=None, opens_at=None, keys=tuple(shown[:MOST_KEYS]))
        states.append(state)
    return states


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


def tenant_limits(store: Store, tenants: Collection[str], now: datetime) -> dict[str, list[LimitState]]:
    """Return the limits of each tenant's held or started jobs, and of its waiting jobs. Tenants without one are absent."""
    rules = {rule.name: rule for rule in store.rules() if not is_lifted(rule)}
    states: dict[str, list[LimitState]] = {}
    names = {f"tenant/{tenant}": tenant for tenant in tenants}
    effective = {name: rule for name in names if (rule := rule_of(name, rules)) is not None and rule.max > 0}
    for use in store.uses(rules, list(effective)) if effective else ():
        state = state_of(use.name, effective[use.name], use, now)
        states.setdefault(names[use.name], []).append(state)
    for tenant in tenants:
        name = f"depth/tenant/{tenant}"
        depth = rules.get(name) or rules.get("depth/tenant")
        if depth is not None and depth.max > 0:
            states.setdefault(tenant, []).append(_depth_of(store, name, depth))
    return states


def _depth_state(store: Store, rule: Rule, rules: Rules) -> LimitState:
    if rule.name not in PER_NAME:
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
    keys = [lane.key for lane in store.lanes()]
    page: Sequence[LaneKey] = [lane.key for lane in store.gates()]
    keys += page
    for _ in range(MOST_QUEUES):
        if len(page) not in (1, 500):
            break
        # After a full page, read only the first lane of each following queue, one at a time.
        beyond = LaneKey(page[-1].queue, _LAST, 0)
        page = [lane.key for lane in store.gates(limit=1, after=beyond)]
        keys += page
    return keys


LABELLED = 500
"""Number of waiting jobs that are labelled with a limit at once."""

_ATTEMPTS = 20


class Limits(StoreApi):
    """The limits of an app's store."""

    def list(self) -> Sequence[LimitState]:
        """Return every limit with its usage, sorted by name; for limits with keys, also the most used keys."""
        return limit_states(self._store, self._now(), keyed=self._keyed())

    def get(self, name: str) -> LimitState:
        """Return one limit, or one key of it (``mail.limit.account/7``), or raise ``LimitNotFound``."""
        state = limit_state(self._store, name, self._now(), keyed=self._keyed())
        if state is None:
            raise LimitNotFound(f"there is no limit {name!r}; see tidemill limits list", name=name)
        return state

    def declared(self) -> Mapping[str, Rule]:
        """Return the limits that the code declares: those of this app's tasks, and those of the app itself."""
        rules = {rule.name: rule for rule in rules_of_all(task.options for task in self._client.registry)}
        return rules | self._client.rules

    @in_each_store
    def set(
        self,
        name: str,
        max: int,  # noqa: A002  (the name that rules use)
        *,
        per: Duration | None = None,
        burst: int | None = None,
    ) -> LimitState:
        """Set a limit that overrides the code: ``max`` jobs at a time, or ``max`` started within ``per``; 0 lifts it.

        Workers apply it within five seconds; running jobs are not affected. A limit ``task/NAME`` also applies to the
        task's waiting jobs.
        """
        rules = {rule.name: rule for rule in self._store.rules()}
        declared = self.declared()
        check_known(name, {*rules, *declared})
        base = name.partition("/")[0]
        stored = {key: rule for key, rule in rules.items() if not is_lifted(rule)}
        candidates = (at.get(key) for at in (stored, declared) for key in (name, base))
        before = next((rule for rule in candidates if rule is not None), None)
        wanted = replace(
            rule_for(name, max, per=per, burst=burst, before=before, pinned=True), changed_by=who()
        )
        with self._store.transaction():
            old = self._rule(name)
            if self._store.put_rules([wanted], now=self._pin):
                self._note("changed", name, old, wanted)
        self._told()
        # A limit in the code is on the task's jobs since they were enqueued. Any other limit is not on the waiting
        # jobs yet.
        if scope_of(name) == "task" and (is_lifted(old) or (old is not None and old.pinned)):
            self._label(name)
        return self.get(name)

    def _label(self, name: str) -> None:
        task = name.partition("/")[2]
        while self._store.label(task, name, limit=LABELLED) >= LABELLED:
            pass
        self._tell(["change"])

    @in_each_store
    def unset(self, name: str) -> bool:
        """Remove a limit that was set at run time, so that the code's limit applies; return whether one was set."""
        declared = self.declared().get(name) or self._defined(name)
        with self._store.transaction():
            old = self._rule(name)
            if old is None or not old.pinned:
                return False
            drop_rule(self._store, name, declared, self._pin)
            self._note("removed", name, old, declared)
        self._told()
        return True

    @in_each_store
    def reset_breaker(self, name: str) -> LimitState:
        """Close a breaker and clear the failures that opened it, so that jobs waiting for it can run."""
        full = name if name.startswith("breaker/") else f"breaker/{name}"
        rules = {rule.name: rule for rule in self._store.rules()}
        if full not in rules:
            raise LimitNotFound(f"there is no breaker {name!r}; see tidemill limits list", name=name)
        for _ in range(_ATTEMPTS):
            with self._store.transaction():
                (use,) = self._store.uses(rules, [full], now=self._pin)
                if use.breaker is None:
                    break
                if self._store.change_breaker(full, use.breaker, written(BreakerState()), now=self._pin):
                    phase = phase_at(use.breaker, use.now or self._now())
                    note(
                        self._store,
                        "breaker.reset",
                        f"limit:{full}",
                        ALL_TENANTS,
                        before={"phase": phase.value},
                        after={"phase": "closed"},
                        now=self._pin,
                    )
                    break
        else:
            raise StoreBusy(f"breaker {name} changes too often; try again")
        self._tell(["change"])
        return self.get(full)

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _rule(self, name: str) -> Rule | None:
        return next((rule for rule in self._store.rules() if rule.name == name), None)

    def _keyed(self) -> frozenset[str]:
        """Return the limits of this app's tasks that count each key separately."""
        return frozenset(
            rule_name(task.name, limit, task.options.limits)
            for task in self._client.registry
            for limit in task.options.limits
            if limit.key is not None or limit.by_tenant
        )

    def _defined(self, name: str) -> Rule | None:
        """Return the limit from a definition's own settings."""
        scope, _, id = name.partition("/")
        if scope != "definition":
            return None
        definitions = self._store.definitions(tenant=ALL_TENANTS, ids=[UUID(id)])
        most = definitions[0].settings.get("max_concurrent") if definitions else None
        return Rule(name, LimitKind.CONCURRENCY, most) if isinstance(most, int) and most else None

    def _told(self) -> None:
        self._client.enqueuer.forget_limits()
        self._tell(["change"])

    def _note(self, verb: str, name: str, old: Rule | None, new: Rule | None) -> None:
        scope, _, rest = name.removeprefix("depth/").partition("/")
        tenant = rest if scope == "tenant" and rest else ALL_TENANTS
        was, now = difference(_data(old), _data(new))
        note(self._store, f"limit.{verb}", f"limit:{name}", tenant, before=was, after=now, now=self._pin)

    # Async twins -------------------------------------------------------------------------------------------------------

    alist = async_twin(list)  # noqa: A003  (the method above)
    aget = async_twin(get)
    adeclared = async_twin(declared)
    aset = async_twin(set)  # noqa: A003  (the method above)
    aunset = async_twin(unset)
    areset_breaker = async_twin(reset_breaker)


def _data(rule: Rule | None) -> dict[str, object] | None:
    if rule is None or is_lifted(rule):
        return None
    per = None if rule.per is None else rule.per.total_seconds()
    return {"kind": rule.kind.value, "max": rule.max, "per": per, "burst": rule.burst, "pinned": rule.pinned}
