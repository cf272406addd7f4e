"""Laws of fires: one per instant of a schedule, kept for a while."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.schedules import ActiveJob, Fired, FireOutcome, ScheduleRow, runner_place
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    T0,
    TICK,
    a_job,
    at,
    bring,
    claim_one,
    finish_all,
    get_one,
    patiently,
    put_one,
    together,
)
from tidemill.testing.conformance.planned_fires import (
    a_fire,
    a_schedule,
    key_of,
    plan,
    plan_one,
    schedule_of,
    step_of,
)

S = JobState
SCHEDULE = new_id()


class FireLaws:
    """Law 17: a fire exists once."""

    def test_a_fire_is_stored_with_every_field(self, store: Store) -> None:
        job_id = new_id()
        fired = a_fire(SCHEDULE, at(1), tenant="ann", job_id=job_id)
        skipped = a_fire(SCHEDULE, at(2), "node-ü", tenant="ann", reason="overlap: one still runs")
        assert store.note_fires([fired, skipped], now=at(3)) == {key_of(fired), key_of(skipped)}
        fires = store.fires(SCHEDULE, tenant="ann")
        assert fires == [skipped._replace(created_at=at(3)), fired._replace(created_at=at(3))]
        assert [row.outcome for row in fires] == [FireOutcome.SKIPPED, FireOutcome.FIRED]

    def test_an_existing_fire_is_not_new_and_is_unchanged(self, store: Store) -> None:
        first = a_fire(SCHEDULE, job_id=new_id())
        assert store.note_fires([first], now=T0) == {key_of(first)}
        again, other = a_fire(SCHEDULE, reason="again"), a_fire(SCHEDULE, at(1))
        assert store.note_fires([again, other], now=at(5)) == {key_of(other)}
        assert store.note_fires([again, other], now=at(6)) == frozenset()
        assert store.fires(SCHEDULE, tenant="default") == [
            other._replace(created_at=at(5)),
            first._replace(created_at=T0),
        ]
        assert store.note_fires([], now=T0) == frozenset()

    def test_a_fire_is_identified_by_schedule_instant_and_scope_key(self, store: Store) -> None:
        other = new_id()
        fires = [a_fire(SCHEDULE), a_fire(SCHEDULE, T0 + TICK), a_fire(SCHEDULE, T0, "node"), a_fire(other)]
        for fire in fires:
            assert store.note_fires([fire], now=T0) == {key_of(fire)}
        assert store.note_fires(fires, now=T0) == frozenset()

    def test_a_fire_given_twice_in_one_batch_is_new_once(self, store: Store) -> None:
        twins = [a_fire(SCHEDULE, reason="first"), a_fire(SCHEDULE, reason="second")]
        assert store.note_fires(twins, now=T0) == {key_of(twins[0])}
        assert store.fires(SCHEDULE, tenant="default") == [twins[0]._replace(created_at=T0)]

    def test_each_fire_is_new_to_exactly_one_concurrent_writer(self, store: Store) -> None:
        fires = [a_fire(SCHEDULE, at(n)) for n in range(50)]
        orders = [fires, fires[::-1], fires[25:] + fires[:25], fires]
        new = together([partial(patiently, store.note_fires, order, now=T0) for order in orders])
        assert Counter(key for keys in new for key in keys) == Counter(map(key_of, fires))

    def test_fires_are_listed_newest_first_then_by_scope_key(self, store: Store) -> None:
        fires = [a_fire(SCHEDULE, at(n), node) for n in range(3) for node in ("b", "", "B", "a")]
        store.note_fires(fires, now=T0)
        ordered = [(row.fire_at, row.scope_key) for row in store.fires(SCHEDULE, tenant="default")]
        assert ordered == [(at(n), node) for n in (2, 1, 0) for node in ("", "B", "a", "b")]
        page = store.fires(SCHEDULE, tenant="default", limit=2, before=at(2))
        assert [(row.fire_at, row.scope_key) for row in page] == [(at(1), ""), (at(1), "B")]
        assert len(store.fires(SCHEDULE, tenant="default", before=at(0.5))) == 4
        assert store.fires(SCHEDULE, tenant="default", limit=0) == []
        assert store.fires(SCHEDULE, tenant="default", limit=2**40) == store.fires(SCHEDULE, tenant="default")

    def test_a_tenant_sees_only_its_own_fires(self, store: Store) -> None:
        store.note_fires([a_fire(SCHEDULE, tenant="ann")], now=T0)
        assert len(store.fires(SCHEDULE, tenant=ALL_TENANTS)) == 1
        assert store.fires(SCHEDULE, tenant="bob") == []
        assert store.fires(new_id(), tenant=ALL_TENANTS) == []

    def test_last_fires_returns_the_newest_fire_of_a_scope_key(self, store: Store) -> None:
        a, b, c = new_id(), new_id(), new_id()
        skipped = a_fire(a, at(5), tenant="ann", reason="skipped")
        here, other = a_fire(a, at(9), "node", job_id=new_id()), a_fire(b, at(20), "nodes")
        store.note_fires([a_fire(a, at(n), job_id=new_id()) for n in (3, 1)], now=T0)
        store.note_fires([skipped, here], now=T0)
        newest, *_ = later = [a_fire(b, at(n), "node", reason=f"number {n}") for n in (8, 7)]
        store.note_fires([*later, other], now=at(21))
        assert store.last_fires([a, b, c], "") == {a: skipped._replace(created_at=T0)}
        assert store.last_fires([a, b, c], "node") == {
            a: here._replace(created_at=T0),
            b: newest._replace(created_at=at(21)),
        }
        assert store.last_fires([b, b], "nodes") == {b: other._replace(created_at=at(21))}
        assert store.last_fires([a, b], "nowhere") == {}
        assert store.last_fires([], "") == {}

    def test_a_tick_is_atomic(self, store: Store) -> None:
        row = plan_one(store)
        job = a_job()

        def tick(fail: bool) -> None:
            with store.transaction():
                assert store.advance([step_of(row)]) == frozenset()
                assert store.note_fires([a_fire(row, job_id=job.id)], now=T0)
                store.enqueue([job], now=T0)
                if fail:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            tick(True)
        assert schedule_of(store, row.id) == row
        assert store.fires(row.id, tenant="default") == []
        assert store.count(JobFilter(ALL_TENANTS)) == {}
        tick(False)
        assert get_one(store, job.id).state is S.PENDING
        assert [fire.job_id for fire in store.fires(row.id, tenant="default")] == [job.id]
        assert schedule_of(store, row.id).last_fire_at == T0

    def test_concurrent_ticks_enqueue_each_fire_once(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(f"s{n}") for n in range(20)])

        def whole_tick(order: list[ScheduleRow]) -> int:
            with store.transaction():
                lost = store.advance([step_of(row) for row in order])
                fires = [a_fire(row, job_id=new_id()) for row in order if row.id not in lost]
                new = store.note_fires(fires, now=T0)
                jobs = [a_job(id=fire.job_id) for fire in fires if key_of(fire) in new]
                return len(store.enqueue(jobs, now=T0))

        made = together([partial(patiently, whole_tick, order) for order in (rows, rows[::-1])])
        assert sum(made) == 20
        assert store.count(JobFilter(ALL_TENANTS)) == {S.PENDING: 20}
        assert store.due(100, now=T0).schedules == []


class ActiveJobLaws:
    """Jobs of a schedule that have not ended."""

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_a_live_job_is_active(self, store: Store, state: JobState) -> None:
        row = plan_one(store, tenant="ann")
        job = bring(store, state, tenant="ann")
        store.note_fires([a_fire(row, job_id=job.id, tenant="ann")], now=T0)
        assert store.active_jobs([row.id]) == [ActiveJob(row.id, job.id, "ann", state)]

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_an_ended_job_is_not_active(self, store: Store, state: JobState) -> None:
        store.note_fires([a_fire(SCHEDULE, job_id=bring(store, state).id)], now=T0)
        assert store.active_jobs([SCHEDULE]) == []

    def test_a_job_that_ends_or_is_missing_is_not_active(self, store: Store) -> None:
        id = put_one(store)
        store.note_fires([a_fire(SCHEDULE, job_id=id), a_fire(SCHEDULE, at(1), job_id=new_id())], now=T0)
        store.note_fires([a_fire(SCHEDULE, at(2), reason="skipped")], now=T0)
        assert [row.job_id for row in store.active_jobs([SCHEDULE])] == [id]
        finish_all(store, [claim_one(store, id)], COMPLETED)
        assert store.active_jobs([SCHEDULE]) == []
        assert store.active_jobs([]) == []

    def test_active_jobs_are_ordered_by_schedule_and_fire(self, store: Store) -> None:
        schedules = sorted(new_id() for _ in range(2))
        jobs = {(id, n): put_one(store) for id in reversed(schedules) for n in (2, 0, 1)}
        store.note_fires([a_fire(id, at(n), job_id=job) for (id, n), job in jobs.items()], now=T0)
        active = store.active_jobs([*schedules[::-1], new_id()])
        assert [row.job_id for row in active] == [jobs[id, n] for id in schedules for n in range(3)]
        assert store.active_jobs([schedules[1]]) == active[3:]

    def test_active_jobs_are_taken_from_the_newest_fires(self, store: Store) -> None:
        jobs = [put_one(store) for _ in range(12)]
        store.note_fires([a_fire(SCHEDULE, at(n), job_id=job) for n, job in enumerate(jobs)], now=T0)
        store.note_fires([a_fire(SCHEDULE, at(50 + n), reason="skipped") for n in range(12)], now=T0)
        assert [row.job_id for row in store.active_jobs([SCHEDULE])] == jobs[2:]
        assert [row.job_id for row in store.active_jobs([SCHEDULE], newest=3)] == jobs[9:]
        assert len(store.active_jobs([SCHEDULE], newest=100)) == 12
        assert store.active_jobs([SCHEDULE], newest=0) == []

    def test_active_jobs_of_one_instant_are_ordered_by_scope_key(self, store: Store) -> None:
        jobs = {node: put_one(store) for node in ("b", "B", "a")}
        store.note_fires([a_fire(SCHEDULE, T0, node, job_id=job) for node, job in jobs.items()], now=T0)
        ordered = [jobs[node] for node in ("B", "a", "b")]
        assert [row.job_id for row in store.active_jobs([SCHEDULE])] == ordered
        assert [row.job_id for row in store.active_jobs([SCHEDULE], newest=2)] == ordered[1:]


class PruneLaws:
    """Old fires are purged, except those that are still needed."""

    def test_purging_keeps_the_newest_fire_of_each_scope_key(self, store: Store) -> None:
        row = plan_one(store)
        fires = [a_fire(row, at(n), node) for n in range(5) for node in ("", "a")]
        store.note_fires([*fires, a_fire(row, at(0), "gone")], now=T0)
        assert store.purge_fires(at(3), limit=100) == 6
        assert instants(store, row) == [(4, ""), (4, "a"), (3, ""), (3, "a"), (0, "gone")]
        assert store.purge_fires(at(99), limit=100) == 2
        assert instants(store, row) == [(4, ""), (4, "a"), (0, "gone")]
        assert store.purge_fires(at(99), limit=100) == 0

    def test_the_newest_fire_of_a_runner_goes_too(self, store: Store) -> None:
        row = plan_one(store)
        runner = runner_place("a", new_id())
        store.note_fires([a_fire(row, at(n), key) for n in range(2) for key in ("a", runner)], now=T0)
        store.note_fires([a_fire(row, at(5), f"{runner} by hand")], now=T0)
        assert store.purge_fires(at(1), limit=100) == 2
        assert store.purge_fires(at(99), limit=100) == 2
        assert instants(store, row) == [(1, "a")]

    def test_purging_deletes_the_oldest_fires_up_to_the_limit(self, store: Store) -> None:
        row = plan_one(store)
        store.note_fires([a_fire(row, at(n)) for n in range(6)], now=T0)
        assert store.purge_fires(at(99), limit=2) == 2
        assert instants(store, row) == [(n, "") for n in (5, 4, 3, 2)]
        assert store.purge_fires(at(99), limit=0) == 0

    def test_purging_deletes_all_old_fires_of_a_deleted_schedule(self, store: Store) -> None:
        row = plan_one(store)
        store.note_fires([a_fire(row, at(n)) for n in range(3)], now=T0)
        store.drop_schedules([row.id], tenant="default")
        assert store.purge_fires(at(2), limit=100) == 2
        assert store.purge_fires(at(3), limit=100) == 1
        assert store.fires(row.id, tenant="default") == []

    def test_purging_keeps_the_newest_fire_of_each_schedule(self, store: Store) -> None:
        rows = plan(store, a_schedule("a"), a_schedule("b"))
        store.note_fires([a_fire(row, at(n)) for n, row in enumerate(rows)], now=T0)
        assert store.purge_fires(at(99), limit=100) == 0
        assert [len(store.fires(row.id, tenant="default")) for row in rows] == [1, 1]


def instants(store: Store, row: ScheduleRow) -> list[tuple[int, str]]:
    """Return the fires of a schedule, as seconds and scope keys."""
    fires: list[Fired] = store.fires(row.id, tenant="default")
    return [(int((fire.fire_at - T0).total_seconds()), fire.scope_key) for fire in fires]
