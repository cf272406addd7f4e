"""A client's cache of a store's limits, for checks at enqueue time.

Rules are cached for five seconds and depths for one, so that enqueueing does not read them each time. Whether a job may
run is not decided here but by the worker and the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.clock import Clock
from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule, is_lifted
from tidemill.domain.records import Setting
from tidemill.errors import PriorityTooHigh, QueueFull, StoreError
from tidemill.stores.base import Store
from tidemill.tasks.limit_rules import check_known
from tidemill.tasks.limits import rules_of, rules_of_all
from tidemill.tasks.task import Declared

FRESH = 5.0
"""Seconds for which the rules are cached."""

COUNTED = 1.0
"""Seconds for which a depth is cached; jobs that this client enqueues in that time are added to it."""

TENANT = "tenant/"
"""Prefix of the keys of tenant settings."""

Place = tuple[str, str]  # queue or tenant, and its name


class LimitCache:
    """The limits of one store, as cached by a client."""

    def __init__(self, store: Store, clock: Clock, own: Mapping[str, Rule]) -> None:
        self._store, self._clock, self._own = store, clock, own
        # Never held during a store call: the call may wait for a transaction in which another thread enqueues.
        self._lock = threading.Lock()
        self._rules: dict[str, Rule] | None = None
        self._tasks: frozenset[str] = frozenset()
        self._depths: dict[str, Rule] = {}
        self._stored: dict[str, Rule] = {}  # rules stored by this client, to be stored again if they are lost
        self._declared: dict[str, Declared] = {}
        self._counted: dict[Place, tuple[int, float]] = {}
        self._ceilings: dict[str, int] = {}  # highest allowed priority by tenant
        self.due_at = float("-inf")  #: when the rules are read again, on the monotonic clock
        self.is_silent = True  #: whether no rule affects enqueueing

    # Rules -------------------------------------------------------------------------------------------------------------

    def asks(self) -> bool:
        """Whether the next call may have to read from the store."""
        return bool(self._depths) or self._clock.monotonic() >= self.due_at

    def forget(self) -> None:
        """Expire the cache after a change, so that the rules are read again."""
        self.due_at = float("-inf")

    def look(self, declared: Declared) -> None:
        """Refresh the cached rules if they are old, and store the task's rules if this client has not done so."""
        if self._clock.monotonic() >= self.due_at:
            self._read()
        if declared.options.is_limited and self._declared.get(declared.name) is not declared:
            self._write(rules_of(declared.options), change=False)
            self._declared[declared.name] = declared

    def declares(self, tasks: Iterable[Declared]) -> bool:
        """Whether these tasks or the app declare a rule."""
        return bool(self._own) or any(task.options.is_limited for task in tasks)

    def declare(self, tasks: Iterable[Declared], *, change: bool = True) -> list[str]:
        """Store the rules of these tasks and of the app, as a worker does when it starts.

        Returns the names whose stored rule differs and was left unchanged because ``change`` is false.
        """
        rules = rules_of_all(task.options for task in tasks)
        at = self._clock.monotonic()
        self._learn(self._store.rules(), at)
        declared = {rule.name for rule in rules}
        foreign = {name for name in self._rules or () if name not in self._own}
        for name in self._own:
            check_known(name, declared | foreign)
        return self._write([*rules, *self._own.values()], change=change)

    def _read(self) -> None:
        at = self._clock.monotonic()
        is_loaded = self._rules is not None
        if is_loaded:
            self.due_at = at + FRESH  # concurrent callers use the cached rules during this read
        try:
            self._learn(self._store.rules(), at)
            self._ceilings = ceilings(self._store.settings())
            self._sort()
            self._restore_lost()
        except StoreError:
            if not is_loaded:
                raise
            # The call continues with the cached rules, and fails by itself if the store is unavailable.

    def _learn(self, rules: Iterable[Rule], at: float) -> None:
        with self._lock:
            self._rules = {rule.name: rule for rule in rules}
            self._sort()
            self.due_at = at + FRESH

    def _sort(self) -> None:
        """Select the rules that affect enqueueing."""
        stored = self._rules or {}
        self._tasks = frozenset(
            name
            for name, rule in {**self._own, **stored}.items()
            if name.startswith("task/") and rule.max > 0 and (rule.pinned or name in self._own)
        )
        self._depths = {name: rule for name, rule in stored.items() if rule.kind is LimitKind.DEPTH}
        self.is_silent = not self._tasks and not self._depths and not self._ceilings

    def _restore_lost(self) -> None:
        """Store the app's rules the first time, and store again those that were lost.

        A rule is lost if its transaction was rolled back, or if a person removed it without knowing that the code
        declares it. Rules that others have declared differently are left unchanged.
        """
        wanted = {**self._own, **self._stored}
        stored = self._rules or {}
        self._write(
            [
                rule
                for name, rule in wanted.items()
                if name not in self._stored or is_lifted(stored.get(name))
            ],
            change=False,
        )

    def _write(self, rules: Sequence[Rule], *, change: bool) -> list[str]:
        """Store missing rules, and with ``change`` those that differ; return the names of those left unchanged.

        A process that only enqueues changes no rule: it may run older code than the workers.
        """
        chosen = {rule.name: self._own.get(rule.name, rule) for rule in rules}
        stored = self._rules if self._rules is not None else {}
        changed = [rule for rule in chosen.values() if not _stands(rule, stored.get(rule.name))]
        left = [] if change else [rule.name for rule in changed if not is_lifted(stored.get(rule.name))]
        changed = [rule for rule in changed if rule.name not in left]
        if changed and self._store.put_rules(changed):
            self._store.notify(["change"])
        with self._lock:
            self._rules = {**(self._rules or {}), **{rule.name: rule for rule in changed}}
            self._sort()
            self._stored |= chosen
        return left

    # Jobs --------------------------------------------------------------------------------------------------------------

    def admitted(self, declared: Declared, jobs: list[NewJob]) -> list[NewJob]:
        """Return the jobs, with the limit of their task added if the task itself does not declare it.

        Raises ``QueueFull`` if the jobs exceed a depth limit, and ``PriorityTooHigh`` if the tenant may not use their
        priority.
        """
        name = f"task/{declared.name}"
        if name in self._tasks:
            jobs = [
                job if name in job.limits else job._replace(limits=tuple(sorted((*job.limits, name))))
                for job in jobs
            ]
        if self._ceilings:
            for job in jobs:
                check_ceiling(job.tenant, job.priority, self._ceilings.get(job.tenant))
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
        """Refresh the cached depth of a queue or tenant if it is old."""
        at = self._clock.monotonic()
        counted = self._counted.get(place)
        if counted is None or at - counted[1] >= COUNTED:
            depth = count_depth(self._store, place, most)
            with self._lock:
                self._counted[place] = depth, at


def ceilings(settings: Iterable[Setting]) -> dict[str, int]:
    """Return the highest allowed priority of each tenant that has one."""
    return {
        setting.key.removeprefix(TENANT): most
        for setting in settings
        if setting.key.startswith(TENANT)
        and isinstance(setting.value, Mapping)
        and isinstance(most := setting.value.get("max_priority"), int)
    }


def check_ceiling(tenant: str, priority: int, most: int | None) -> None:
    """Reject a priority above the highest that a tenant may use."""
    if most is not None and priority > most:
        raise PriorityTooHigh(
            f"priority {priority} is above {most}, the highest that tenant {tenant} may use; give {most} or less",
            tenant=tenant,
            priority=priority,
            max=most,
        )


def depth_rule(kind: str, name: str, rules: Mapping[str, Rule]) -> Rule | None:
    """Return the depth limit of a queue or tenant: its own rule, else the general one."""
    rule = rules.get(f"depth/{kind}/{name}") or rules.get(f"depth/{kind}")
    return rule if rule is not None and rule.max > 0 else None


def count_depth(store: Store, place: Place, most: int) -> int:
    """Count the waiting jobs of a queue or a tenant, up to ``most``."""
    kind, name = place
    return store.depth(queue=name, most=most) if kind == "queue" else store.depth(tenant=name, most=most)


def drop_rule(store: Store, name: str, instead: Rule | None, now: datetime | None) -> None:
    """Remove a rule, or replace it with ``instead``."""
    store.drop_rules([name])
    if instead is not None:
        store.put_rules([instead], now=now)
    elif not name.startswith("depth/") and not store.rules():
        # Workers look for jobs with limits only while there are rules. Jobs may still carry this name, so a rule
        # without effect replaces the last one.
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
    """Whether writing the rule would change nothing."""
    if stored is None:
        return False
    bare = replace(stored, changed_at=None, changed_by=None)
    return stored.pinned or bare == replace(rule, changed_at=None, changed_by=None)
