"""``app.limits``: reading limits, and setting them at run time.

A limit set here is pinned and audited. Workers enforce limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from tidemill.client._base import StoreApi
from tidemill.client.access.identity import difference, note, who
from tidemill.client.limits.cache import drop_rule
from tidemill.client.limits.states import LimitState, limit_state, limit_states
from tidemill.domain.breaker import BreakerState, phase_at, written
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.limits import LimitKind, Rule, is_lifted
from tidemill.errors import LimitNotFound, StoreBusy
from tidemill.tasks.limit_rules import check_known, rule_for, scope_of
from tidemill.tasks.limits import rule_name, rules_of_all

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
        found = limit_state(self._store, name, self._now(), keyed=self._keyed())
        if found is None:
            raise LimitNotFound(f"there is no limit {name!r}; see tidemill limits list", name=name)
        return found

    def declared(self) -> Mapping[str, Rule]:
        """Return the limits that the code declares: those of this app's tasks, and those of the app itself."""
        rules = {rule.name: rule for rule in rules_of_all(task.options for task in self._client.registry)}
        return rules | self._client.rules

    def set(
        self,
        name: str,
        max: int,  # noqa: A002  (the name that rules use)
        *,
        per: timedelta | None = None,
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
        found = (at.get(key) for at in (stored, declared) for key in (name, base))
        before = next((rule for rule in found if rule is not None), None)
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
        found = self._store.definitions(tenant=ALL_TENANTS, ids=[UUID(id)])
        most = found[0].settings.get("max_concurrent") if found else None
        return Rule(name, LimitKind.CONCURRENCY, most) if isinstance(most, int) and most else None

    def _told(self) -> None:
        self._client.forget_limits()
        self._tell(["change"])

    def _note(self, verb: str, name: str, old: Rule | None, new: Rule | None) -> None:
        scope, _, rest = name.removeprefix("depth/").partition("/")
        tenant = rest if scope == "tenant" and rest else ALL_TENANTS
        was, now = difference(_facts(old), _facts(new))
        note(self._store, f"limit.{verb}", f"limit:{name}", tenant, before=was, after=now, now=self._pin)

    # Async twins -------------------------------------------------------------------------------------------------------

    async def alist(self) -> Sequence[LimitState]:
        return await self._await(self.list)

    async def aget(self, name: str) -> LimitState:
        return await self._await(self.get, name)

    async def adeclared(self) -> Mapping[str, Rule]:
        return self.declared()

    async def aset(
        self,
        name: str,
        max: int,  # noqa: A002  (the name that rules use)
        *,
        per: timedelta | None = None,
        burst: int | None = None,
    ) -> LimitState:
        return await self._await(self.set, name, max, per=per, burst=burst)

    async def aunset(self, name: str) -> bool:
        return await self._await(self.unset, name)

    async def areset_breaker(self, name: str) -> LimitState:
        return await self._await(self.reset_breaker, name)


def _facts(rule: Rule | None) -> dict[str, object] | None:
    if rule is None or is_lifted(rule):
        return None
    per = None if rule.per is None else rule.per.total_seconds()
    return {"kind": rule.kind.value, "max": rule.max, "per": per, "burst": rule.burst, "pinned": rule.pinned}
