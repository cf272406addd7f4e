"""Fire: creates the jobs of due schedules.

``domain.schedule_fires`` decides what is due; this module only reads and writes. One transaction advances a batch of schedules,
records their fires and enqueues their jobs. A fire happens only once because of the schedule's compare-and-set and the
fire's key, independent of leadership.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import Action, expected
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Move, NewJob
from tidemill.domain.job_requests import TaskData
from tidemill.domain.schedule_fires import LEAP, OVERLAP, FirePlan, plan, revised, rewound, room_of
from tidemill.domain.schedules import ActiveJob, Definition, Due, ScheduleRow, Scope
from tidemill.domain.states import HELD, LIVE, JobState
from tidemill.engine.duties.schedule_locks import ScheduleLocks
from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.engine.fire_hooks import NO_FIRE_HOOKS, FireHooks, error_text
from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.occurrences import tied_if_followed

_log = logging.getLogger("tidemill.engine")

EVERY = timedelta(seconds=10)
BATCH = 500
TOPICS = frozenset({"schedules", "change"})
KEEP = timedelta(days=90)
_SELDOM, _SOON = 3600.0, 1.0  # seconds between two purges of old fires, and while more of them are left
_JOBS = 1_000  # maximum jobs per statement
_ASK = 20.0  # seconds between two readings of the store's clock while nothing is due
_AWAY = 60.0  # seconds without a call: another leader may have fired with a clock that leapt

_LOOK = 1.0  # seconds until the next look at schedules that other processes have locked
_LOCKED = 5_000  # maximum locked schedules to look behind

TaskDataOf = Callable[[str], TaskData | None]
"""Returns a task's options as plain data; None for a task that is unknown here."""


def no_task_data(_task: str) -> TaskData | None:
    """Return None: no task is known."""
    return None


class Firing:
    """Shared parts of firing for the cluster and for one node: reads, and the write of plans.

    ``pinned`` passes the local time to the store instead of using the store's time; tests with a manual clock use it.
    ``fire_hooks`` passes the jobs through the hooks of the app and publishes their events.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        task_data_of: TaskDataOf,
        fire_hooks: FireHooks,
        *,
        pinned: bool = False,
    ) -> None:
        self._store, self._clock, self._task_data_of = store, clock, task_data_of
        self._fire_hooks, self._pinned = fire_hooks, pinned
        self._complained: set[tuple[UUID, int]] = set()

    @property
    def pin(self) -> datetime | None:
        """The time to pass to the store, if pinned."""
        return self._clock.now() if self._pinned else None

    def now(self) -> datetime:
        """The store's own time, which also determines what is due."""
        return self._clock.now() if self._pinned else self._store.now()

    def definitions(self, schedules: Iterable[ScheduleRow]) -> dict[UUID, Definition]:
        """The definitions of these schedules."""
        ids = {schedule.definition_id for schedule in schedules if schedule.definition_id is not None}
        if not ids:
            return {}
        return {
            definition.id: definition for definition in self._store.definitions(tenant=ALL_TENANTS, ids=ids)
        }

    def active(
        self, schedules: Iterable[ScheduleRow], newest: int = 10
    ) -> tuple[dict[UUID, list[ActiveJob]], set[UUID]]:
        """The live jobs of each schedule with an overlap policy, and the ids of those that wait for an earlier job."""
        caring = {schedule.id: schedule.overlap for schedule in schedules if schedule.overlap != "allow"}
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

    def task_data_of(self, task: str) -> TaskData | None:
        """The options of a task."""
        return self._task_data_of(task)

    def busy(self, schedule: ScheduleRow, definition: Definition | None, living: int) -> str | None:
        """Why the schedule's definition has no capacity for another job.

        Only checked if the schedule would then skip a fire.
        """
        if definition is None or schedule.overlap != "skip" or living:
            return None
        room = room_of(definition)
        if not room:
            return None
        where = JobFilter(definition.tenant, states=LIVE, definition_id=definition.id)
        busy = sum(self._store.count(where, most=room).values())
        return None if busy < room else f"definition {definition.key} has {busy} of {room} jobs under way"

    def complain(self, schedule: ScheduleRow, why: str) -> None:
        """Log once what is wrong with a schedule."""
        mark = schedule.id, schedule.revision
        if mark not in self._complained:
            self._complained.add(mark)
            _log.error("schedule %s of tenant %s does not fire: %s", schedule.key, schedule.tenant, why)

    def write(self, plans: Sequence[FirePlan]) -> tuple[list[FirePlan], set[UUID]]:
        """Pass the jobs through the app's hooks, and write all plans.

        Return the written plans, and the schedules that are due again at once: another process has changed or advanced
        them since, or their hooks have not ended yet.
        """
        # The hooks end before the transaction begins: user code holds no lock.
        hooked = self._fire_hooks.apply(plans, lambda task: self._task_data_of(task) is not None)
        lost = set(hooked.unanswered)
        for refused, error in hooked.refused:
            lost |= self._put_off(refused, error)[1]
        written, more = self._write_all(hooked.plans) if hooked.plans else ([], set())
        return written, lost | more

    def _write_all(self, plans: Sequence[FirePlan]) -> tuple[list[FirePlan], set[UUID]]:
        """Write all plans at once. If the store rejects them, write them in halves to isolate the rejected ones."""
        try:
            return self._write(plans)
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001  (one bad schedule must not stop the others)
            if len(plans) == 1:
                return self._put_off(plans[0], error_text(error))
            half = len(plans) // 2
            first, lost = self._write_all(plans[:half])
            second, more = self._write_all(plans[half:])
            return first + second, lost | more

    def _write(self, plans: Sequence[FirePlan]) -> tuple[list[FirePlan], set[UUID]]:
        held: dict[UUID, UUID] = {}
        while True:
            try:
                return self._attempt([plan.without(held) for plan in plans])
            except _Held as answer:
                held |= answer.holders

    def _attempt(self, plans: Sequence[FirePlan]) -> tuple[list[FirePlan], set[UUID]]:
        topics: set[str] = set()
        with self._store.transaction():
            lost = set(self._store.advance([plan.advance for plan in plans]))
            won = [plan for plan in plans if plan.schedule.id not in lost]
            fires = [fire for plan in won for fire in plan.fires]
            new = self._store.note_fires(fires, now=self.pin) if fires else frozenset()
            fresh = {fire.job_id for fire in fires if fire.key in new}
            jobs = tied_if_followed(
                self._store, [job for plan in won for job in plan.jobs if job.id in fresh]
            )
            for at in range(0, len(jobs), _JOBS):
                topics |= self._enqueue(jobs[at : at + _JOBS])
            topics |= self._cancel([job for plan in won for job in plan.cancels])
            if used := [key for plan in won for key in plan.used]:
                self._store.drop_occurrences(used)
        wake(self._store, topics)
        self._fire_hooks.publish(jobs, self._clock.now())
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
        """Cancel jobs to make room for the next one of their schedule.

        Held jobs are asked to stop; the others end at once.
        """
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

    def _put_off(self, schedule: FirePlan, error: str) -> tuple[list[FirePlan], set[UUID]]:
        self.complain(schedule.schedule, f"its jobs cannot be written: {error}")
        later = schedule.advance._replace(
            last_fire_at=schedule.advance.expected_fire_at, next_fire_at=self.now() + timedelta(minutes=1)
        )
        lost = self._store.advance([later])
        return [], set(lost)


class _Held(Exception):
    """Other jobs hold the unique keys of these jobs. The transaction is rolled back and repeated without them."""

    def __init__(self, holders: dict[UUID, UUID]) -> None:
        super().__init__("unique keys are held")
        self.holders = holders


class FireDuty(Firing):
    """Fires one batch of due schedules, the longest due first. It is next needed when the next schedule is due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        task_data_of: TaskDataOf = no_task_data,
        fire_hooks: FireHooks = NO_FIRE_HOOKS,
        *,
        batch: int = BATCH,
        pinned: bool = False,
        on_waiting: Callable[[Collection[NewJob]], None] | None = None,
        locks: ScheduleLocks | None = None,
    ) -> None:
        super().__init__(store, clock, task_data_of, fire_hooks, pinned=pinned)
        self._batch, self._on_waiting, self._locks = batch, on_waiting, locks
        self._locked = 0  # due schedules that other processes had locked
        self._unrevised: list[ScheduleRow] | None = None
        self._purge_at = self._asked_at = self._called_at = float("-inf")
        self._ahead: float | None = None  # how far the store's clock was ahead of our monotonic one
        self._went_back = False

    def __call__(self) -> Done:
        done = self._fire()
        self._purge()
        return done

    def _fire(self) -> Done:
        self._watch_clock()
        if self._unrevised is None or self._unrevised:
            self._revise()
        # Schedules that stay locked must not hide those behind them.
        due = self._store.due(self._batch + self._locked, now=self.pin)
        if not due.schedules:
            self._locked = 0
            return Done(0, due.next_fire_at, more=bool(self._unrevised))
        if self._locks is None:
            return self._fire_due(due, 0)
        mine = self._locks.take(due.schedules)
        self._locked = min(len(due.schedules) - len(mine), _LOCKED)
        try:
            return self._fire_due(due._replace(schedules=mine), self._locked)
        finally:
            self._locks.release()

    def _fire_due(self, due: Due, locked: int) -> Done:
        plans = self._plans(due, self._read_clock())
        written, lost = self.write(plans)
        if self._on_waiting is not None:
            self._on_waiting([job for plan in written for job in plan.jobs if job.waiting is not None])
        ahead = [due.next_fire_at, *(plan.advance.next_fire_at for plan in written)]
        if lost:
            ahead.append(self._clock.now())  # the process that was faster may have left work
        if locked:
            ahead.append(self._clock.now() + timedelta(seconds=_LOOK))
        fires = sum(len(plan.fires) for plan in written)
        return Done(
            fires,
            min((at for at in ahead if at is not None), default=None),
            more=bool(self._unrevised) or (len(due.schedules) >= self._batch and bool(written)),
        )

    def _plans(self, due: Due, now: datetime) -> list[FirePlan]:
        definitions = self.definitions(due.schedules)
        active, parked = self.active(due.schedules)
        plans: list[FirePlan] = []
        for schedule in due.schedules:
            definition = None
            if schedule.definition_id is not None:
                definition = definitions.get(schedule.definition_id)
                if definition is None:
                    continue  # it was just deleted, and its schedule with it
            living = active.get(schedule.id, [])
            planned = plan(
                schedule,
                definition,
                living,
                now,
                self.task_data_of(schedule.task),
                new_id,
                parked=[job.job_id for job in living if job.job_id in parked],
                busy=self.busy(schedule, definition, len(living)),
            )
            if planned.broken is not None:
                self.complain(schedule, planned.broken)
            plans.append(planned)
        return plans

    def _purge(self) -> None:
        """Delete old fires from time to time, even if every call finds due schedules.

        A pinned store keeps all of them, so that tests can check them.
        """
        now = self._clock.monotonic()
        if not self._pinned and now >= self._purge_at:
            self._purge_at = now + _SELDOM  # set first: a failing purge must not fail every later call
            if self._store.purge_fires(self.now() - KEEP, limit=_JOBS) >= _JOBS:
                self._purge_at = now + _SOON

    def _watch_clock(self) -> None:
        """Revise every schedule if the store's clock was set back, or may have been while another process led."""
        at = self._clock.monotonic()
        away, self._called_at = at - self._called_at > _AWAY, at
        if self._pinned:
            return
        if at >= self._asked_at + _ASK:
            self._read_clock()
        if self._went_back or away:
            self._went_back, self._unrevised = False, None

    def _read_clock(self) -> datetime:
        """Read the store's time and check whether it was set back.

        Every reading is compared: fires made during a short leap forward are far in the future after the step back.
        """
        now, at = self.now(), self._clock.monotonic()
        ahead = now.timestamp() - at
        before, self._ahead, self._asked_at = self._ahead, ahead, at
        self._went_back |= before is not None and before - ahead > LEAP.total_seconds()
        return now

    def _revise(self) -> None:
        """Recompute the next fires once per process, and after the store's clock was set back, batch by batch.

        The rules of a time zone may have changed since the next fire was computed, or that fire is too far in the
        future.
        """
        if self._unrevised is None:
            self._unrevised = [
                schedule
                for schedule in self._store.schedules(tenant=ALL_TENANTS, scope=Scope.CLUSTER)
                if schedule.enabled and schedule.next_fire_at is not None
            ]
        some, self._unrevised = self._unrevised[: self._batch], self._unrevised[self._batch :]
        now = self.now()
        moved = [
            advance
            for schedule in some
            if (advance := rewound(schedule, now) or revised(schedule)) is not None
        ]
        if moved:
            self._store.advance(moved)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A written schedule also wakes it."""
        return Duty("fire", every, self, TOPICS)
