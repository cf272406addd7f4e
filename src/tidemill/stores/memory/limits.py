"""Limits in memory: rules, limited lanes and use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import Rule, Rules, Use, count, fitting, is_rate, names_of, rule_of
from tidemill.domain.states import JobState
from tidemill.stores.limits import LimitRuleStore, LimitStore, Redated
from tidemill.stores.memory import limit_counts
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import LimitCount


class MemoryLimits(MemoryPart, LimitRuleStore, LimitStore):
    """The verbs of limits."""

    def rules(self) -> list[Rule]:
        with self._open() as state:
            return [state.limits[name] for name in sorted(state.limits)]

    def put_rules(self, rules: Sequence[Rule], *, now: datetime | None = None) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            changed = set()
            for rule in rules:
                before = state.limits.get(rule.name)
                if before is not None and (_same(before, rule) or (before.pinned and not rule.pinned)):
                    continue
                state.limits[rule.name] = replace(rule, changed_at=moment)
                changed.add(rule.name)
            return frozenset(changed)

    def drop_rules(self, names: Collection[str]) -> frozenset[str]:
        with self._open() as state:
            return frozenset(name for name in set(names) if state.limits.pop(name, None) is not None)

    def gates(
        self, queues: Sequence[str] | None = None, *, limit: int = 500, after: LaneKey | None = None
    ) -> list[Lane]:
        with self._open() as state:
            keys = [key for key in state.lanes if key.gate and (queues is None or key.queue in queues)]
            keys.sort(key=_order)
            if after is not None:
                keys = [key for key in keys if _order(key) > _order(after)]
            return [
                Lane(*key[:3], low=next(iter(state.lanes[key])), gate=key.gate, limits=names_of(key.gate))
                for key in keys[:limit]
            ]

    def uses(
        self,
        rules: Rules,
        names: Collection[str] | None = None,
        *,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> list[Use]:
        with self._open() as state:
            moment = self._at(now)
            if names is None:
                ranked = [(-counted.used, name) for name, counted in state.counted.items() if counted.used]
                names = [name for _, name in sorted(ranked)[: max(limit, 0)]]
            return [limit_counts.use_of(state, name, rule_of(name, rules), moment) for name in names]

    def redate(
        self,
        claims: Sequence[Claim],
        rules: Rules,
        *,
        dating: Callable[[], object] | None = None,
        now: datetime | None = None,
    ) -> Redated:
        with self._open() as state:
            if dating is not None:
                dating()
            moment = self._at(now)
            jobs = {claim.id: state.find_held(claim.id, claim.token, claim.worker) for claim in claims}
            held = [job for job in jobs.values() if job is not None]
            rated = [[name for name in set(job.limits) if is_rate(rule_of(name, rules))] for job in held]
            for job, names in zip(held, rated, strict=True):
                for name in names:
                    limit_counts.take_back(state, name, job.claimed_at)
            rooms = limit_counts.rooms(state, {name for names in rated for name in names}, rules, moment)
            fits = fitting(rated, rooms)
            kept = [(job, names) for job, names, able in zip(held, rated, fits, strict=True) if able]
            limit_counts.add(state, count(names for _, names in kept), rules, moment, held=False)
            for job, _ in kept:
                started_at = None if job.started_at is None else moment
                state.rewrite(replace(job, claimed_at=moment, started_at=started_at))
            lost = frozenset(id for id, job in jobs.items() if job is None)
            return Redated(lost, frozenset(job.id for job in held) - {job.id for job, _ in kept})

    def change_breaker(
        self, name: str, before: str | None, after: str, *, now: datetime | None = None
    ) -> bool:
        with self._open() as state:
            counted = state.counted.get(name) or LimitCount()
            if counted.breaker != before:
                return False
            state.counted[name] = replace(counted, breaker=after, changed_at=self._at(now))
            return True

    def label(self, task: str, name: str, *, limit: int) -> int:
        with self._open() as state:
            labelled = [
                job
                for job in state.jobs.values()
                if job.task == task
                and job.state in (JobState.PENDING, JobState.SCHEDULED)
                and name not in job.limits
            ][: max(limit, 0)]
            state.relabel([replace(job, limits=(*job.limits, name)) for job in labelled])
            return len(labelled)

    def depth(self, *, queue: str | None = None, tenant: str | None = None, most: int) -> int:
        with self._open() as state:
            waiting = sum(
                len(jobs)
                for key, jobs in state.lanes.items()
                if queue in (None, key.queue) and tenant in (None, key.tenant)
            )
            return min(waiting, most)

    def forget_uses(self, idle: timedelta, *, limit: int, now: datetime | None = None) -> int:
        with self._open() as state:
            before = self._at(now) - idle
            idle_names = [
                name
                for name, counted in state.counted.items()
                if not counted.used and counted.changed_at is not None and counted.changed_at < before
            ][: max(limit, 0)]
            for name in idle_names:
                del state.counted[name]
            return len(idle_names)


def _order(key: LaneKey) -> tuple[str, str, int, str]:
    return key.queue, key.tenant, -key.priority, key.gate


def _same(one: Rule, other: Rule) -> bool:
    return replace(one, changed_at=None, changed_by=None) == replace(other, changed_at=None, changed_by=None)
