"""Limits in the SQL store: rules, limited lanes and use.

The module ``counting`` counts claims.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from tidemill.domain.breaker import Breaker
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import LimitKind, Rule, Rules, Use, names_of
from tidemill.stores.limits import LimitRuleStore, LimitStore
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import at_most
from tidemill.stores.sql.limit_counts import LimitCounts

_FIRST = LaneKey("", "", 0)
"""Sorts before every lane, because no queue has an empty name."""


class SqlLimits(LimitCounts, LimitRuleStore, LimitStore):
    """The verbs of limits."""

    def rules(self) -> list[Rule]:
        return [read_rule(row) for row in self._db.run("rules")]

    def put_rules(self, rules: Sequence[Rule], *, now: datetime | None = None) -> frozenset[str]:
        if not rules:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "name": [rule.name for rule in rules],
            "rule_kind": [rule.kind for rule in rules],
            "max": [rule.max for rule in rules],
            "per": [rule.per for rule in rules],
            "burst": [rule.burst for rule in rules],
            "breaker": [None if rule.breaker is None else _dump_breaker(rule.breaker) for rule in rules],
            "pinned": [rule.pinned for rule in rules],
            "changed_by": [rule.changed_by for rule in rules],
        }
        return frozenset(row[0] for row in self._db.run("put_rules", {"now": now}, columns))

    def drop_rules(self, names: Collection[str]) -> frozenset[str]:
        if not names:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("drop_rules", {"names": list(names)}))

    def gates(
        self, queues: Sequence[str] | None = None, *, limit: int = 500, after: LaneKey | None = None
    ) -> list[Lane]:
        if limit <= 0 or (queues is not None and not queues):
            return []
        queue, tenant, priority, gate = after or _FIRST
        takes = {
            "queues": queues,
            "limit": limit,
            "after_queue": queue,
            "after_tenant": tenant,
            "after_priority": priority,
            "after_gate": gate,
        }
        return [
            Lane(queue, tenant, priority, low, gate=gate, limits=names_of(gate))
            for queue, tenant, priority, gate, low in self._db.run("gates", takes)
        ]

    def uses(
        self,
        rules: Rules,
        names: Collection[str] | None = None,
        *,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> list[Use]:
        if names is not None:
            if not names:
                return []
            wanted = list(dict.fromkeys(names))
            rows = self._db.run("uses", {"now": now, "names": wanted, "limit": len(wanted)})
            uses = self._with_starts(rows, rules, wanted, now)
            return [uses[name] for name in wanted]
        rows = self._db.run("uses", {"now": now, "limit": at_most(limit)}, flags=("held",))
        return list(self._with_starts(rows, rules, [row[0] for row in rows], now).values())

    def change_breaker(
        self, name: str, before: str | None, after: str, *, now: datetime | None = None
    ) -> bool:
        takes = {"now": now, "name": name, "before": before, "after": after}
        with self._db.transaction():
            self._db.run("open_uses", {"now": now, "names": [name]})
            return bool(self._db.run("change_breaker", takes))

    def label(self, task: str, name: str, *, limit: int) -> int:
        # Quoted here, so that a gate has the same text however its jobs got their limits.
        takes = {"task": task, "name": name, "quoted": json.dumps(name), "limit": at_most(limit)}
        return len(self._db.run("label", takes))

    def depth(self, *, queue: str | None = None, tenant: str | None = None, most: int) -> int:
        takes = {"queue": queue, "tenant": tenant, "limit": max(most, 0)}
        return int(self._db.run("depth", takes)[0][0])

    def forget_uses(self, idle: timedelta, *, limit: int, now: datetime | None = None) -> int:
        return len(self._db.run("forget_uses", {"now": now, "idle": idle, "limit": at_most(limit)}))


def read_rule(row: Row) -> Rule:
    """A rule from a result row."""
    name, kind, most, per, burst, breaker, pinned, changed_at, changed_by = row
    return Rule(
        name,
        LimitKind(kind),
        most,
        per,
        burst,
        None if breaker is None else _load_breaker(breaker),
        bool(pinned),
        changed_at,
        changed_by,
    )


def _dump_breaker(breaker: Breaker) -> str:
    data = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in asdict(breaker).items()
    }
    return json.dumps(data, sort_keys=True)


def _load_breaker(text: str) -> Breaker:
    data: dict[str, Any] = json.loads(text)
    for name in ("window", "rest"):
        data[name] = timedelta(seconds=data[name])
    return Breaker(**data)
