"""What a client knows of a store's limits when it enqueues: which rules there are, which to write down, and what is too much.

The rules are believed for five seconds and depths for one, so that enqueueing asks nothing in between. Whether a job may run is
not judged here: that is between a worker and the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.clock import Clock
from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule, is_lifted
from tidemill.errors import QueueFull, StoreError
from tidemill.stores.base import Store
from tidemill.tasks.limit_rules import check_known
from tidemill.tasks.limiting import rules_of, rules_of_all
from tidemill.tasks.task import Declared

FRESH = 5.0
"""Seconds for which the rules are believed."""

COUNTED = 1.0
"""Seconds for which a depth is believed; what this client adds meanwhile is counted on."""

Place = tuple[str, str]  # queue or tenant, and its name


class Limiting:
    """The limits of one store, as a client knows them."""

    def __init__(self, store: Store, clock: Clock, own: Mapping[str, Rule]) -> None:
        self._store, self._clock, self._own = store, clock, own
        # Never held while the store is asked: who is asked may wait for a transaction in which another enqueues.
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._rules: dict[str, Rule] | None = None
        self._tasks: frozenset[str] = frozenset()
        self._depths: dict[str, Rule] = {}
        self._said: dict[str, Rule] = {}  # by this client, to be said again should it get lost
        self._declared: dict[str, Declared] = {}
        self._counted: dict[Place, tuple[int, float]] = {}

    # Rules -------------------------------------------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """Whether no rule wants anything of those who enqueue."""
        return not self._tasks and not self._depths

    def asks(self) -> bool:
        """Whether the next call may have to ask the store."""
        return bool(self._depths) or self._clock.monotonic() - self._read_at >= FRESH

    def forget(self) -> None:
        """Something was changed: read the rules again."""
        self._read_at = float("-inf")

    def look(self, declared: Declared) -> None:
        """Know the rules, and write down those of the task, if that is to be done."""
        if self._clock.monotonic() - self._read_at >= FRESH:
            self._read()
        if declared.options.is_limited and self._declared.get(declared.name) is not declared:
            self._write(rules_of(declared.options))
            self._declared[declared.name] = declared

    def declare(self, tasks: Iterable[Declared]) -> None:
        """Write down the rules of all these tasks and the app's own, as a worker does when it starts."""
        rules = rules_of_all(task.options for task in tasks)
        at = self._clock.monotonic()
        self._learn(self._store.rules(), at)
        declared = {rule.name for rule in rules}
        foreign = {name for name in self._rules or () if name not in self._own}
        for name in self._own:
            check_known(name, declared | foreign)
        self._write([*rules, *self._own.values()])

    def _read(self) -> None:
        at = self._clock.monotonic()
        known = self._rules is not None
        if known:
            self._read_at = at  # whoever comes meanwhile goes on with what is known
        try:
            self._learn(self._store.rules(), at)
            self._mend()
        except StoreError:
            if not known:
                raise
            # The call goes on with what was known, and fails by itself if the store is not there.

    def _learn(self, rules: Iterable[Rule], at: float) -> None:
        with self._lock:
            self._rules = {rule.name: rule for rule in rules}
            self._sort()
            self._read_at = at

    def _sort(self) -> None:
        """What of the rules concerns those who enqueue."""
        known = self._rules or {}
        self._tasks = frozenset(
            name
            for name, rule in {**self._own, **known}.items()
            if name.startswith("task/") and rule.max > 0 and (rule.pinned or name in self._own)
        )
        self._depths = {name: rule for name, rule in known.items() if rule.kind is LimitKind.DEPTH}

    def _mend(self) -> None:
        """Say the app's rules, the first time, and those again that got lost: undone with a transaction, or removed by somebody
        who did not know that they are declared. What others have declared differently is left alone.
        """
        wanted = {**self._own, **self._said}
        known = self._rules or {}
        self._write(
            [rule for name, rule in wanted.items() if name not in self._said or is_lifted(known.get(name))]
        )

    def _write(self, rules: Sequence[Rule]) -> None:
        chosen = {rule.name: self._own.get(rule.name, rule) for rule in rules}
        known = self._rules if self._rules is not None else {}
        changed = [rule for rule in chosen.values() if not _stands(rule, known.get(rule.name))]
        if changed and self._store.put_rules(changed):
            self._store.notify(["change"])
        with self._lock:
            self._rules = {**(self._rules or {}), **{rule.name: rule for rule in changed}}
            self._sort()
            self._said |= chosen

    # Jobs --------------------------------------------------------------------------------------------------------------

    def admitted(self, declared: Declared, jobs: list[NewJob]) -> list[NewJob]:
        """The jobs with the limit of their task, where only a rule knows of that; ``QueueFull`` where they are too many."""
        name = f"task/{declared.name}"
        if name in self._tasks:
            jobs = [
                job if name in job.limits else job._replace(limits=tuple(sorted((*job.limits, name))))
                for job in jobs
            ]
        if self._depths:
            self._admit(jobs)
        return jobs

    def _admit(self, jobs: Sequence[NewJob]) -> None:
        wanted: dict[Place, int] = {}
        now = self._clock.now()
        for job in jobs:
            if job.delay or (job.run_at is not None and job.run_at > now):
                continue  # it waits for its time, not for a worker
            for place in (("queue", job.queue), ("tenant", job.tenant)):
                wanted[place] = wanted.get(place, 0) + 1
        rules = {place: rule for place in wanted if (rule := depth_rule(*place, self._depths)) is not None}
        for place, rule in rules.items():
            self._count(place, rule.max)
        with self._lock:
            counted: dict[Place, tuple[int, float]] = {}
            for place, rule in rules.items():
                depth, at = self._counted[place]
                if depth + wanted[place] > rule.max:
                    raise _full(place, depth, wanted[place], rule)
                counted[place] = depth + wanted[place], at
            self._counted |= counted

    def _count(self, place: Place, most: int) -> None:
        """Know how many wait there."""
        at = self._clock.monotonic()
        known = self._counted.get(place)
        if known is None or at - known[1] >= COUNTED:
            found = count_depth(self._store, place, most)
            with self._lock:
                self._counted[place] = found, at


def depth_rule(kind: str, name: str, rules: Mapping[str, Rule]) -> Rule | None:
    """How deep a queue or a tenant's jobs may be: its own rule, else the one for each."""
    rule = rules.get(f"depth/{kind}/{name}") or rules.get(f"depth/{kind}")
    return rule if rule is not None and rule.max > 0 else None


def count_depth(store: Store, place: Place, most: int) -> int:
    """How many jobs wait in a queue, or of a tenant, as far as the most."""
    kind, name = place
    return store.depth(queue=name, most=most) if kind == "queue" else store.depth(tenant=name, most=most)


def drop_rule(store: Store, name: str, instead: Rule | None, now: datetime | None) -> None:
    """Remove a rule, or put the one in its place that is to hold instead."""
    store.drop_rules([name])
    if instead is not None:
        store.put_rules([instead], now=now)
    elif not name.startswith("depth/") and not store.rules():
        # Jobs that carry the name stand behind gates, at which workers look only while there are rules: one that limits
        # nothing stays in its place.
        store.put_rules([Rule(name)], now=now)


def _full(place: Place, depth: int, number: int, rule: Rule) -> QueueFull:
    kind, name = place
    more = "" if number == 1 else f", and {number} more are too many"
    return QueueFull(
        f"{kind} {name} is full: {depth} jobs wait, and limit {rule.name} allows {rule.max}{more}; try again later",
        queue=name if kind == "queue" else None,
        tenant=name if kind == "tenant" else None,
        depth=depth,
        max=rule.max,
    )


def _stands(rule: Rule, stored: Rule | None) -> bool:
    """Whether writing it would change nothing."""
    if stored is None:
        return False
    bare = replace(stored, changed_at=None, changed_by=None)
    return stored.pinned or bare == replace(rule, changed_at=None, changed_by=None)
