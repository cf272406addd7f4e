"""React: creates the jobs of schedules that run after definitions or on events.

``domain.reactions`` decides which fires follow from the stored occurrences. One transaction writes the fires and their jobs, and
deletes the occurrences that they use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.domain.reactions import Occurrence, plan_reactions
from tidemill.domain.schedule_fires import FirePlan
from tidemill.domain.schedules import Definition, ScheduleRow
from tidemill.engine.duties.fire import EVERY, Firing, TaskDataOf, no_task_data
from tidemill.engine.duty import Done, Duty
from tidemill.engine.fire_hooks import NO_FIRE_HOOKS, FireHooks
from tidemill.ids import new_id
from tidemill.stores.base import Store

_SCHEDULES, _OCCURRENCES = 200, 1_000
TOPICS = frozenset({"occurrences"})


class ReactDuty(Firing):
    """Fires the reactive schedules that have occurrences, one page of schedules after another."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        task_data_of: TaskDataOf = no_task_data,
        fire_hooks: FireHooks = NO_FIRE_HOOKS,
        *,
        pinned: bool = False,
        on_waiting: Callable[[Collection[NewJob]], None] | None = None,
    ) -> None:
        super().__init__(store, clock, task_data_of, fire_hooks, pinned=pinned)
        self._on_waiting = on_waiting

    def __call__(self) -> Done:
        fires, more, after = 0, False, None
        while ids := self._store.reacting(after=after, limit=_SCHEDULES):
            made, full = self._react(ids)
            fires, more, after = fires + made, more or full, ids[-1]
            if len(ids) < _SCHEDULES:
                break
        return Done(fires, more=more)

    def _react(self, ids: Sequence[UUID]) -> tuple[int, bool]:
        """Fire one page of schedules. Returns the fires, and whether occurrences were left unread."""
        occurrences = self._store.occurrences(ids, limit=_OCCURRENCES)
        unused = {id: list(group) for id, group in groupby(occurrences, lambda one: one.schedule_id)}
        schedules = self._store.schedules(tenant=ALL_TENANTS, ids=list(unused)) if unused else []
        plans = self._plans(schedules, unused, self.now())
        written, lost = self.write(plans) if plans else ([], set())
        if self._on_waiting is not None:
            self._on_waiting([job for plan in written for job in plan.jobs if job.waiting is not None])
        fires = sum(len(plan.fires) for plan in written)
        return fires, bool(lost) or (len(occurrences) >= _OCCURRENCES and any(plan.used for plan in written))

    def _plans(
        self, schedules: Sequence[ScheduleRow], unused: dict[UUID, list[Occurrence]], now: datetime
    ) -> list[FirePlan]:
        definitions = self.definitions(schedules)
        active, parked = self.active(schedules)
        plans: list[FirePlan] = []
        for schedule in schedules:
            definition: Definition | None = None
            if schedule.definition_id is not None:
                definition = definitions.get(schedule.definition_id)
                if definition is None or not definition.enabled:
                    continue
            living = active.get(schedule.id, [])
            plan = plan_reactions(
                schedule,
                definition,
                living,
                unused[schedule.id],
                now,
                self.task_data_of(schedule.task),
                new_id,
                parked=[job.job_id for job in living if job.job_id in parked],
                busy=self.busy(schedule, definition, len(living)),
            )
            if plan.broken is not None:
                self.complain(schedule, plan.broken)
            elif plan.used:
                plans.append(plan)
        return plans

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A new occurrence also wakes it."""
        return Duty("react", every, self, TOPICS)
