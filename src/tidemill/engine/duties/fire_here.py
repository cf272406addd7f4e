"""Fire here: creates jobs of schedules that fire on every node or in every runner.

Each node does this for itself, without a leader. A fire's job goes into the queue of its node or runner, from which no
other one takes jobs. An orphaned job waits for its node. The job of a runner that has ended waits until it expires. A
node or runner that is new to a schedule has no missed fires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import is_active
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.domain.schedule_fires import JOINED, FirePlan, plan_here, rewound_here
from tidemill.domain.schedules import ActiveJob, Definition, Fired, ScheduleRow, Scope, runner_place
from tidemill.engine.duties.fire import EVERY, TOPICS, Firing, TaskDataOf, no_task_data
from tidemill.engine.duty import Done, Duty
from tidemill.engine.fire_hooks import NO_FIRE_HOOKS, FireHooks
from tidemill.engine.node import own_queue
from tidemill.ids import new_id
from tidemill.stores.base import Store

_NEWEST = 500  # fires of all nodes that are searched for this node's live jobs


class Target(NamedTuple):
    """One schedule in one place: a node, or a runner process that started at ``began_at``."""

    schedule: ScheduleRow
    place: str
    began_at: datetime | None = None

    @property
    def key(self) -> tuple[UUID, str]:
        return self.schedule.id, self.place


class FireHere(Firing):
    """Fires all schedules of instance and process scope for one node."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        node: str,
        task_data_of: TaskDataOf = no_task_data,
        fire_hooks: FireHooks = NO_FIRE_HOOKS,
        *,
        pinned: bool = False,
        on_waiting: Callable[[Collection[NewJob]], None] | None = None,
    ) -> None:
        super().__init__(store, clock, task_data_of, fire_hooks, pinned=pinned)
        self._node, self._on_waiting = node, on_waiting
        self._began_at: datetime | None = None
        self._last: dict[tuple[UUID, str], Fired] = {}

    def __call__(self) -> Done:
        schedules = [
            schedule
            for scope in (Scope.INSTANCE, Scope.PROCESS)
            for schedule in self._store.schedules(tenant=ALL_TENANTS, scope=scope)
            if schedule.enabled
        ]
        if not schedules:
            self._began_at = self._began_at or self.now()
            return Done()
        now = self.now()
        self._began_at = self._began_at or now
        definitions = self.definitions(schedules)
        targets = self._targets(
            [schedule for schedule in schedules if _definition_allows(schedule, definitions)], now
        )
        self._join(targets, now)
        plans, next_at = self._plans(targets, definitions, now)
        fires, lost = 0, False
        # One place after another, because a store accepts one advance of a schedule at a time.
        for place in dict.fromkeys(place for place, _ in plans):
            written, missed = self.write([plan for where, plan in plans if where == place])
            lost = lost or bool(missed)
            fires += sum(len(plan.fires) for plan in written)
            self._last |= {(plan.schedule.id, place): plan.fires[-1] for plan in written if plan.fires}
            if self._on_waiting is not None:
                self._on_waiting([job for plan in written for job in plan.jobs if job.waiting is not None])
        return Done(fires, now if lost else next_at)

    def _targets(self, schedules: Sequence[ScheduleRow], now: datetime) -> list[Target]:
        """Each schedule on this node, or in plan live runner of this node."""
        runners: list[tuple[str, datetime | None]] = []
        if any(schedule.scope is Scope.PROCESS for schedule in schedules):
            runners = [
                (runner_place(self._node, worker.id), worker.started_at)
                for worker in self._store.workers()
                if worker.node == self._node
                and is_active(worker)
                and worker.expires_at is not None
                and worker.expires_at > now
            ]
        targets: list[Target] = []
        for schedule in schedules:
            if schedule.scope is Scope.INSTANCE:
                targets.append(Target(schedule, self._node))
            else:
                targets += [Target(schedule, place, began_at) for place, began_at in runners]
        keys = {target.key for target in targets}
        self._last = {key: last for key, last in self._last.items() if key in keys or key[1] == self._node}
        return targets

    def _join(self, targets: Sequence[Target], now: datetime) -> None:
        """Find the last fire of each schedule in each place.

        A node that is new to a schedule is recorded as such. A runner is not, because its start is recorded with its
        worker.
        """
        unknown = [target for target in targets if target.key not in self._last]
        for place in dict.fromkeys(target.place for target in unknown):
            ids = [target.schedule.id for target in unknown if target.place == place]
            self._last |= {(id, place): last for id, last in self._store.last_fires(ids, place).items()}
        assert self._began_at is not None
        joined: dict[tuple[UUID, str], Fired] = {}
        for target in unknown:
            if target.key not in self._last:
                schedule, began_at = target.schedule, target.began_at or self._began_at
                # An older place fires from the schedule's creation on, a newer one from its own start.
                at = min(now, max(began_at, schedule.since_at or began_at))
                joined[target.key] = Fired(schedule.id, at, target.place, schedule.tenant, None, JOINED)
        nodes = [fire for fire in joined.values() if fire.scope_key == self._node]
        if nodes:
            self._store.note_fires(nodes, now=self.pin)
        # Only after the write: the node's next process reads only what was recorded.
        self._last |= joined

    def _plans(
        self, targets: Sequence[Target], definitions: dict[UUID, Definition], now: datetime
    ) -> tuple[list[tuple[str, FirePlan]], datetime | None]:
        """The due plans with their places, and the time of the next fire. Live jobs are only read if something is due."""
        plans: list[tuple[str, FirePlan]] = []
        ahead: list[datetime] = []
        for target in targets:
            schedule = target.schedule
            self._last[target.key] = rewound_here(self._last[target.key], now)
            look = partial(self._look, target, definitions.get(schedule.definition_id or schedule.id), now)
            plan, next_at = look([], set())
            if plan.broken is not None:
                self.complain(schedule, plan.broken)
            elif plan.fires:
                living, parked = self._living(target) if schedule.overlap != "allow" else ([], set())
                if living:
                    plan, next_at = look(living, parked)
                plans.append((target.place, plan))
            if next_at is not None:
                ahead.append(next_at)
        return plans, min(ahead, default=None)

    def _look(
        self,
        target: Target,
        definition: Definition | None,
        now: datetime,
        living: list[ActiveJob],
        parked: set[UUID],
    ) -> tuple[FirePlan, datetime | None]:
        last, task_data = self._last[target.key], self.task_data_of(target.schedule.task)
        return plan_here(
            target.schedule,
            definition,
            living,
            last,
            now,
            task_data,
            new_id,
            node=target.place,
            parked=parked,
        )

    def _living(self, target: Target) -> tuple[list[ActiveJob], set[UUID]]:
        """The live jobs of the schedule that belong to this place, and the ids of those that wait."""
        active, parked = self.active([target.schedule], newest=_NEWEST)
        jobs = active.get(target.schedule.id, [])
        rows = self._store.get([job.job_id for job in jobs], tenant=ALL_TENANTS) if jobs else []
        mine = {row.id for row in rows if row.queue == own_queue(target.place)}
        return [job for job in jobs if job.job_id in mine], parked & mine

    def duty(self, every: timedelta = 3 * EVERY) -> Duty:
        """This duty for the loop. A written schedule also wakes it."""
        return Duty("fire_here", every, self, TOPICS)


def _definition_allows(schedule: ScheduleRow, definitions: dict[UUID, Definition]) -> bool:
    if schedule.definition_id is None:
        return True
    definition = definitions.get(schedule.definition_id)
    return definition is not None and definition.enabled
