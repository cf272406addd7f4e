"""Fire here: schedules that every node fires for itself. Each node does this for its own name, and nobody leads.

A fire's job goes into the node's own queue, from which no other node takes, so an orphan waits for its node. A node that sees
a schedule for the first time has no fires to make up for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.firing import JOINED, Plan, plan_here
from tidemill.domain.job import NewJob
from tidemill.domain.timetable import ActiveJob, Definition, Fired, Schedule, Scope
from tidemill.engine.duties.fire import EVERY, TOPICS, FactsOf, Firing, no_facts
from tidemill.engine.duty import Done, Duty
from tidemill.engine.node import own_queue
from tidemill.ids import new_id
from tidemill.stores.base import Store

_NEWEST = 500  # fires of all nodes among which this one's living jobs are looked for


class FireHere(Firing):
    """All schedules of instance scope, for one node."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        node: str,
        facts_of: FactsOf = no_facts,
        *,
        pinned: bool = False,
        on_waiting: Callable[[Collection[NewJob]], None] | None = None,
    ) -> None:
        super().__init__(store, clock, facts_of, pinned=pinned)
        self._node, self._on_waiting = node, on_waiting
        self._began_at: datetime | None = None
        self._last: dict[UUID, Fired] = {}

    def __call__(self) -> Done:
        found = [
            each for each in self._store.schedules(tenant=ALL_TENANTS, scope=Scope.INSTANCE) if each.enabled
        ]
        if not found:
            self._began_at = self._began_at or self.now()
            return Done()
        now = self.now()
        self._began_at = self._began_at or now
        definitions = self.definitions(found)
        able = [each for each in found if _definition_allows(each, definitions)]
        self._join(able, now)
        plans, next_at = self._plans(able, definitions, now)
        written, lost = self.write(plans) if plans else ([], set())
        for each in written:
            if each.fires:
                self._last[each.schedule.id] = each.fires[-1]
        if self._on_waiting is not None:
            self._on_waiting([job for each in written for job in each.jobs if job.waiting is not None])
        return Done(sum(len(each.fires) for each in written), now if lost else next_at)

    def _join(self, schedules: Sequence[Schedule], now: datetime) -> None:
        """Find out where this node stands with each; where it is new, write down that it is."""
        unknown = [each for each in schedules if each.id not in self._last]
        if not unknown:
            return
        self._last |= self._store.last_fires([each.id for each in unknown], self._node)
        assert self._began_at is not None
        joined: dict[UUID, Fired] = {}
        for each in unknown:
            if each.id not in self._last:
                # A node that was here when the schedule was made has missed nothing of it.
                at = min(now, max(self._began_at, each.since_at or self._began_at))
                joined[each.id] = Fired(each.id, at, self._node, each.tenant, None, JOINED)
        if joined:
            self._store.note_fires(list(joined.values()), now=self.pin)
            self._last |= (
                joined  # only now: what was not written down is not known to the node's next process
            )

    def _plans(
        self, schedules: Sequence[Schedule], definitions: dict[UUID, Definition], now: datetime
    ) -> tuple[list[Plan], datetime | None]:
        """What is due here, and when the next one is. Living jobs are only asked for where something is due."""
        plans: list[Plan] = []
        ahead: list[datetime] = []
        for each in schedules:
            look = partial(self._look, each, definitions.get(each.definition_id or each.id), now)
            found, next_at = look([], set())
            if found.broken is not None:
                self.complain(each, found.broken)
            elif found.fires:
                living, parked = self._living(each) if each.overlap != "allow" else ([], set())
                if living:
                    found, next_at = look(living, parked)
                plans.append(found)
            if next_at is not None:
                ahead.append(next_at)
        return plans, min(ahead, default=None)

    def _look(
        self,
        schedule: Schedule,
        definition: Definition | None,
        now: datetime,
        living: list[ActiveJob],
        parked: set[UUID],
    ) -> tuple[Plan, datetime | None]:
        last, facts = self._last[schedule.id], self.facts_of(schedule.task)
        return plan_here(
            schedule, definition, living, last, now, facts, new_id, node=self._node, parked=parked
        )

    def _living(self, schedule: Schedule) -> tuple[list[ActiveJob], set[UUID]]:
        """This node's own among the schedule's living jobs."""
        active, parked = self.active([schedule], newest=_NEWEST)
        jobs = active.get(schedule.id, [])
        rows = self._store.get([job.job_id for job in jobs], tenant=ALL_TENANTS) if jobs else []
        mine = {row.id for row in rows if row.queue == own_queue(self._node)}
        return [job for job in jobs if job.job_id in mine], parked & mine

    def duty(self, every: timedelta = 3 * EVERY) -> Duty:
        """As a duty, also woken when a schedule is written."""
        return Duty("fire_here", every, self, TOPICS)


def _definition_allows(schedule: Schedule, definitions: dict[UUID, Definition]) -> bool:
    if schedule.definition_id is None:
        return True
    found = definitions.get(schedule.definition_id)
    return found is not None and found.enabled
