"""Laws of the store's own clock, which applies where no ``now`` is given."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish, Move, Progress, ProgressReport, UniqueHold
from tidemill.domain.records import AuditEntry, Pause, PauseKind, Setting, first_break
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    HOUR,
    LATER,
    OTHER,
    WORKER,
    a_job,
    due,
    executions_of,
    get_one,
    ids_of,
    retry,
    wants,
)
from tidemill.testing.conformance.planned_fires import (
    a_definition,
    a_fire,
    a_schedule,
    definition_of,
    schedule_of,
)

S = JobState
MINUTE = timedelta(minutes=1)
TOLERANCE = timedelta(minutes=10)
"""How far a database's clock may be off from this machine's."""


def _near(instant: datetime | None, ahead: timedelta = timedelta(0)) -> bool:
    """Return whether an instant is about now, or ``ahead`` of it, in UTC."""
    assert instant is not None
    return abs(instant - ahead - SystemClock().now()) < TOLERANCE and instant.utcoffset() == timedelta(0)


class OwnClockLaws:
    """``now=None`` means the store's own clock."""

    def test_now_is_the_clock_that_dates_jobs(self, store: Store) -> None:
        before, job = store.now(), a_job()
        store.enqueue([job])
        assert _near(before)
        assert before <= get_one(store, job.id).created_at <= store.now()

    def test_a_job_is_dated_by_the_stores_clock(self, store: Store) -> None:
        job = a_job()
        assert store.enqueue([job])[0].created
        (claim,) = store.claim(wants(store, start=False))
        assert store.start([claim]) == frozenset()
        assert store.report([ProgressReport(claim.id, 1, claim.worker, Progress(0.5))]) == frozenset()
        running = get_one(store, job.id)
        assert running.progress is not None
        assert _near(running.progress.at)
        assert store.finish([Finish(claim, COMPLETED)]) == frozenset()
        done = get_one(store, job.id)
        assert done.claimed_at is not None
        assert done.started_at is not None
        assert done.finished_at is not None
        assert done.created_at <= done.claimed_at <= done.started_at <= done.finished_at
        assert all(
            map(_near, (done.created_at, done.run_at, done.claimed_at, done.started_at, done.finished_at))
        )

    def test_ages_are_subtracted_from_the_stores_clock(self, store: Store) -> None:
        store.enqueue([a_job()])
        (claim,) = store.claim(wants(store))
        store.finish([Finish(claim, COMPLETED, started_ago=7200.0, ended_ago=3600.0)])
        (execution,) = executions_of(store, claim.id)
        assert _near(execution.started_at, -2 * HOUR)
        assert _near(execution.finished_at, -HOUR)

    def test_delays_and_instants_follow_the_stores_clock(self, store: Store) -> None:
        here = SystemClock().now()
        late, future, past = a_job(delay=HOUR), a_job(run_at=here + HOUR), a_job(run_at=here - HOUR)
        store.enqueue([late, future, past])
        assert [get_one(store, job.id).state for job in (late, future, past)] == [
            *(S.SCHEDULED, S.SCHEDULED, S.PENDING)
        ]
        assert _near(get_one(store, late.id).run_at, HOUR)
        promoted = store.promote(10)
        assert promoted.moved == 0
        assert _near(promoted.next_run_at, HOUR)

    def test_a_retry_delay_follows_the_stores_clock(self, store: Store) -> None:
        store.enqueue([a_job()])
        (claim,) = store.claim(wants(store))
        step = store.step([Finish(claim, LATER)], wants(store))
        assert step == (frozenset(), [])
        assert _near(get_one(store, claim.id).run_at, HOUR)
        assert store.promote(10).moved == 0

    def test_moves_are_dated_by_the_stores_clock(self, store: Store) -> None:
        job = a_job()
        store.enqueue([job])
        assert store.move([Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)]) == {job.id}
        assert _near(get_one(store, job.id).finished_at)
        assert store.move([retry(get_one(store, job.id))]) == {job.id}
        assert _near(get_one(store, job.id).run_at)

    def test_a_window_is_measured_by_the_stores_clock(self, store: Store) -> None:
        held = UniqueHold("key", until_claimed=True, window=HOUR)
        store.enqueue([a_job(unique=held)])
        claim = store.claim(wants(store))[0]
        assert store.enqueue([a_job(unique=held)]) == [(claim.id, False)]

    def test_leases_expire_by_the_stores_clock(self, store: Store) -> None:
        alive = store.register(Worker(WORKER, "alive"), lease=HOUR)
        store.register(Worker(OTHER, "gone"), lease=MINUTE, now=SystemClock().now() - HOUR)
        assert _near(alive.started_at)
        assert _near(alive.expires_at, HOUR)
        left = {beat.worker: beat.left for beat in store.heartbeats()}
        assert left[WORKER] > timedelta(0) > left[OTHER]
        store.enqueue([a_job()])
        assert store.claim(wants(store, worker=OTHER)) == []
        assert len(store.claim(wants(store, worker=WORKER))) == 1
        assert store.beat([WORKER, OTHER], lease=HOUR).alive == {WORKER, OTHER}
        store.retire([WORKER])
        assert store.declare_gone([(OTHER, 1)]) == {OTHER}
        assert store.beat([WORKER, OTHER], lease=HOUR).alive == frozenset()
        assert store.sweep(HOUR) == 0

    def test_a_running_job_is_overdue_by_the_stores_clock(self, store: Store) -> None:
        quick, slow = a_job(timeout=MINUTE), a_job(timeout=2 * HOUR)
        store.enqueue([quick, slow])
        store.claim(wants(store), now=SystemClock().now() - HOUR)
        assert ids_of(store.overdue(10)) == [quick.id]

    def test_named_leases_expire_by_the_stores_clock(self, store: Store) -> None:
        lease = store.acquire("duty", WORKER, ttl=HOUR)
        assert lease is not None
        assert _near(lease.expires_at, HOUR)
        assert store.acquire("duty", OTHER, ttl=HOUR) is None
        assert store.renew("duty", WORKER, lease.term, ttl=HOUR)
        past = store.acquire("other", WORKER, ttl=MINUTE, now=SystemClock().now() - HOUR)
        assert past is not None
        assert not store.renew("other", WORKER, past.term, ttl=HOUR)
        assert store.acquire("other", OTHER, ttl=HOUR) is not None

    def test_records_are_dated_by_the_stores_clock(self, store: Store) -> None:
        (record,) = store.record([AuditEntry("ada", "x", "y", "default")])
        (pause,) = store.pause([Pause(PauseKind.ALL, "")])
        store.put_settings([Setting("a", 1)])
        assert all(map(_near, (record.at, pause.paused_at, store.settings()[0].updated_at)))
        assert first_break(store.audit(tenant=ALL_TENANTS)) is None

    def test_the_archive_is_dated_by_the_stores_clock(self, store: Store) -> None:
        store.enqueue([a_job()])
        (claim,) = store.claim(wants(store))
        store.finish([Finish(claim, COMPLETED, ended_ago=7200.0)])
        assert due(store, ArchivePolicy("p", max_age=3 * HOUR), store.now()) == []
        documents = due(store, ArchivePolicy("p", max_age=HOUR), store.now())
        store.put_archive(documents)
        assert _near(store.archived([claim.id], tenant="default")[0].archived_at)
        assert store.forget(documents) == {claim.id}

    def test_jobs_expire_by_the_stores_clock(self, store: Store) -> None:
        here = SystemClock().now()
        late, later = a_job(expires_at=here - HOUR), a_job(expires_at=here + HOUR, waiting="its turn")
        store.enqueue([late, later])
        assert ids_of(store.expired(10)) == [late.id]
        assert _near(get_one(store, later.id).run_at)

    def test_definitions_are_dated_by_the_stores_clock(self, store: Store) -> None:
        stored = store.put_definition(a_definition())
        assert stored is not None
        assert stored.created_at == stored.updated_at
        assert _near(stored.created_at)
        (version,) = store.definition_versions(stored.id, tenant="default")
        assert version.created_at == stored.created_at
        store.put_schedules([a_schedule(definition_id=stored.id)])
        store.enable_definitions([stored.id], tenant="default", enabled=False)
        store.enable_definitions([stored.id], tenant="default", enabled=True)
        (schedule,) = store.schedules(tenant="default")
        assert all(map(_near, (schedule.since_at, schedule.next_fire_at)))
        store.drop_definitions([stored.id], tenant="default")
        assert _near(definition_of(store, stored.id).deleted_at)

    def test_schedules_are_dated_and_due_by_the_stores_clock(self, store: Store) -> None:
        here = SystemClock().now()
        late = a_schedule("late", next_fire_at=here - HOUR)
        store.put_schedules([late, a_schedule("later", next_fire_at=here + HOUR)])
        due = store.due(10)
        assert ids_of(due.schedules) == [late.id]
        assert _near(due.next_fire_at, HOUR)
        assert all(
            map(_near, (due.schedules[0].created_at, due.schedules[0].updated_at, due.schedules[0].since_at))
        )
        store.enable_schedules([late.id], tenant="default", enabled=False)
        store.enable_schedules([late.id], tenant="default", enabled=True)
        assert _near(schedule_of(store, late.id).next_fire_at)
        store.note_fires([a_fire(late, here)])
        assert _near(store.fires(late.id, tenant="default")[0].created_at)
