"""Fire: schedules whose time has come make their jobs. What is due is judged by ``domain.firing``; this only reads and writes.

One transaction moves a batch of schedules on, writes their fires down and enqueues their jobs. That a fire happens once rests
on the schedule's compare-and-set and on the fire's key, never on who leads.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import Action, expected
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.firing import OVERLAP, Plan, plan, revised
from tidemill.domain.job import Move, NewJob
from tidemill.domain.requests import Facts
from tidemill.domain.states import HELD, JobState
from tidemill.domain.timetable import ActiveJob, Definition, Due, Schedule, Scope
from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(seconds=10)
BATCH = 500
TOPICS = frozenset({"schedules", "change"})
KEEP = timedelta(days=90)
_SELDOM, _SOON = 3600.0, 1.0  # seconds between two looks for older fires; while there are more
_JOBS = 1_000  # of one statement

FactsOf = Callable[[str], Facts | None]
"""A task's options as plain data; None for one that is not known here."""


def no_facts(_task: str) -> Facts | None:
    """Nothing is known of any task."""
    return None


class Firing:
    """What firing for the cluster and firing for one node have in common: reading around, and writing plans.

    ``pinned`` tells the store the time instead of asking for its own; for clocks that are moved by hand.
    """

    def __init__(self, store: Store, clock: Clock, facts_of: FactsOf, *, pinned: bool = False) -> None:
        self._store, self._clock, self._facts_of = store, clock, facts_of
        self._pinned = pinned
        self._complained: set[tuple[UUID, int]] = set()

    @property
    def pin(self) -> datetime | None:
        """The time to tell the store."""
        return self._clock.now() if self._pinned else None

    def now(self) -> datetime:
        """The store's own time: it is the one by which something was found to be due."""
        return self._clock.now() if self._pinned else self._store.now()

    def definitions(self, schedules: Iterable[Schedule]) -> dict[UUID, Definition]:
        """The definitions of these schedules."""
        ids = {found.definition_id for found in schedules if found.definition_id is not None}
        if not ids:
            return {}
        return {found.id: found for found in self._store.definitions(tenant=ALL_TENANTS, ids=ids)}

    def active(
        self, schedules: Iterable[Schedule], newest: int = 10
    ) -> tuple[dict[UUID, list[ActiveJob]], set[UUID]]:
        """The living jobs of each schedule that cares about them, and which of them wait for an earlier one."""
        caring = {found.id: found.overlap for found in schedules if found.overlap != "allow"}
        living: dict[UUID, list[ActiveJob]] = defaultdict(list)
        if not caring:
            return living, set()
        unsure: list[UUID] = []
        for job in self._store.active_jobs(list(caring), newest=newest):
            living[job.schedule_id].append(job)
            if job.state is JobState.WAITING and caring[job.schedule_id] == "queue":
                unsure.append(job.job_id)
        waiting = self._store.get(unsure, tenant=ALL_TENANTS) if unsure else []
        return living, {job.id for job in waiting if (job.reason or "").startswith(OVERLAP)}

    def facts_of(self, task: str) -> Facts | None:
        """What is known of a task."""
        return self._facts_of(task)

    def complain(self, schedule: Schedule, why: str) -> None:
        """Say once what is wrong with a schedule."""
        mark = schedule.id, schedule.revision
        if mark not in self._complained:
            self._complained.add(mark)
            _log.error("schedule %s of tenant %s does not fire: %s", schedule.key, schedule.tenant, why)

    def write(self, plans: Sequence[Plan]) -> tuple[list[Plan], set[UUID]]:
        """Write plans all at once; if the store refuses them, in halves, so that only what it refuses is left.

        What was written, and the schedules that somebody else changed or advanced meanwhile.
        """
        try:
            return self._write(plans)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001  (one bad schedule must not stop the others)
            if len(plans) == 1:
                return self._put_off(plans[0], error)
            half = len(plans) // 2
            first, lost = self.write(plans[:half])
            second, more = self.write(plans[half:])
            return first + second, lost | more

    def _write(self, plans: Sequence[Plan]) -> tuple[list[Plan], set[UUID]]:
        held: dict[UUID, UUID] = {}
        while True:
            try:
                return self._attempt([found.without(held) for found in plans])
            except _Held as answer:
                held |= answer.holders

    def _attempt(self, plans: Sequence[Plan]) -> tuple[list[Plan], set[UUID]]:
        topics: set[str] = set()
        with self._store.transaction():
            lost = set(self._store.advance([found.advance for found in plans]))
            won = [found for found in plans if found.schedule.id not in lost]
            fires = [fire for found in won for fire in found.fires]
            new = self._store.note_fires(fires, now=self.pin) if fires else frozenset()
            fresh = {fire.job_id for fire in fires if fire.key in new}
            jobs = [job for found in won for job in found.jobs if job.id in fresh]
            for at in range(0, len(jobs), _JOBS):
                topics |= self._enqueue(jobs[at : at + _JOBS])
            topics |= self._cancel([job for found in won for job in found.cancels])
        wake(self._store, topics)
        return won, lost

    def _enqueue(self, jobs: Sequence[NewJob]) -> set[str]:
        written = self._store.enqueue(jobs, now=self.pin)
        holders = {job.id: answer.id for job, answer in zip(jobs, written, strict=True) if not answer.created}
        if holders:
            raise _Held(holders)
        late = self._clock.now()
        return {
            "scheduled" if job.run_at is not None and job.run_at > late else f"ready:{job.queue}"
            for job in jobs
            if job.waiting is None
        }

    def _cancel(self, jobs: Sequence[ActiveJob]) -> set[str]:
        """Jobs that make room for the next one of their schedule: held ones are asked to stop, the others end."""
        if not jobs:
            return set()
        reason = f"{OVERLAP} the next job of its schedule takes its place"
        free = expected(Action.CANCEL)
        moves = [
            Move(job.job_id, job.tenant, free, JobState.CANCELLED, reason)
            for job in jobs
            if job.state in free
        ]
        if moves:
            self._store.move(moves, now=self.pin)
        held = [job.job_id for job in jobs if job.state in HELD]
        if held:
            self._store.request_cancel(held, tenant=ALL_TENANTS, reason=reason)
        return {"ended", "cancel"}

    def _put_off(self, found: Plan, error: Exception) -> tuple[list[Plan], set[UUID]]:
        self.complain(found.schedule, f"its jobs cannot be written: {type(error).__name__}: {error}")
        later = found.advance._replace(
            last_fire_at=found.advance.expected_fire_at, next_fire_at=self.now() + timedelta(minutes=1)
        )
        lost = self._store.advance([later])
        return [], set(lost)


class _Held(Exception):
    """Unique keys of these jobs are held by others: what was begun is undone, and done again without them."""

    def __init__(self, holders: dict[UUID, UUID]) -> None:
        super().__init__("unique keys are held")
        self.holders = holders


class Fire(Firing):
    """One batch of schedules that are due, the longest due first. It is next needed when the next one is due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        facts_of: FactsOf = no_facts,
        *,
        batch: int = BATCH,
        pinned: bool = False,
        on_waiting: Callable[[Collection[NewJob]], None] | None = None,
    ) -> None:
        super().__init__(store, clock, facts_of, pinned=pinned)
        self._batch, self._on_waiting = batch, on_waiting
        self._unrevised: list[Schedule] | None = None
        self._purge_at = float("-inf")

    def __call__(self) -> Done:
        done = self._fire()
        self._purge()
        return done

    def _fire(self) -> Done:
        if self._unrevised is None or self._unrevised:
            self._revise()
        due = self._store.due(self._batch, now=self.pin)
        if not due.schedules:
            return Done(0, due.next_fire_at, more=bool(self._unrevised))
        plans = self._plans(due, self.now())
        written, lost = self.write(plans)
        if self._on_waiting is not None:
            self._on_waiting([job for found in written for job in found.jobs if job.waiting is not None])
        ahead = [due.next_fire_at, *(found.advance.next_fire_at for found in written)]
        if lost:
            ahead.append(self._clock.now())  # who was quicker may have left something to do
        fires = sum(len(found.fires) for found in written)
        return Done(
            fires,
            min((at for at in ahead if at is not None), default=None),
            more=bool(self._unrevised) or (len(due.schedules) >= self._batch and bool(written)),
        )

    def _plans(self, due: Due, now: datetime) -> list[Plan]:
        definitions = self.definitions(due.schedules)
        active, parked = self.active(due.schedules)
        plans: list[Plan] = []
        for schedule in due.schedules:
            definition = None
            if schedule.definition_id is not None:
                definition = definitions.get(schedule.definition_id)
                if definition is None:
                    continue  # it was deleted this moment, and the schedule goes with it
            living = active.get(schedule.id, [])
            found = plan(
                schedule,
                definition,
                living,
                now,
                self.facts_of(schedule.task),
                new_id,
                parked=[job.job_id for job in living if job.job_id in parked],
            )
            if found.broken is not None:
                self.complain(schedule, found.broken)
            plans.append(found)
        return plans

    def _purge(self) -> None:
        """Now and then, also where something is due at every look: old fires go. Of a store that is told the time, a test looks
        at all of them.
        """
        now = self._clock.monotonic()
        if not self._pinned and now >= self._purge_at:
            self._purge_at = now + _SELDOM  # also where it fails: firing goes on all the same
            if self._store.purge_fires(self.now() - KEEP, limit=_JOBS) >= _JOBS:
                self._purge_at = now + _SOON

    def _revise(self) -> None:
        """Once in a life, batch by batch: the rules of a time zone may have changed since the next fire was worked out."""
        if self._unrevised is None:
            self._unrevised = [
                found
                for found in self._store.schedules(tenant=ALL_TENANTS, scope=Scope.CLUSTER)
                if found.enabled and found.next_fire_at is not None
            ]
        some, self._unrevised = self._unrevised[: self._batch], self._unrevised[self._batch :]
        moved = [advance for found in some if (advance := revised(found)) is not None]
        if moved:
            self._store.advance(moved)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty, also woken when a schedule is written."""
        return Duty("fire", every, self, TOPICS)
