"""Laws of fires: an instant of a schedule exists once, becomes a job or not, and is kept for a while."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.domain.timetable import ActiveJob, Fired, FireOutcome, Schedule
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
from tidemill.testing.conformance.planned import (
    a_fire,
    a_schedule,
    key_of,
    plan,
    plan_one,
    schedule_of,
    step_of,
)

S = JobState
NOBODY = new_id()


class FireLaws:
    """Law 17: a fire exists once."""

    def test_a_fire_is_kept_as_it_was_told(self, store: Store) -> None:
        job_id = new_id()
        fired = a_fire(NOBODY, at(1), tenant="ann", job_id=job_id)
        skipped = a_fire(NOBODY, at(2), "node-ü", tenant="ann", reason="overlap: one still runs")
        assert store.note_fires([fired, skipped], now=at(3)) == {key_of(fired), key_of(skipped)}
        found = store.fires(NOBODY, tenant="ann")
        assert found == [skipped._replace(created_at=at(3)), fired._replace(created_at=at(3))]
        assert [row.outcome for row in found] == [FireOutcome.SKIPPED, FireOutcome.FIRED]

    def test_a_fire_that_is_there_is_not_new_and_stays_as_it_was(self, store: Store) -> None:
        first = a_fire(NOBODY, job_id=new_id())
        assert store.note_fires([first], now=T0) == {key_of(first)}
        again, other = a_fire(NOBODY, reason="again"), a_fire(NOBODY, at(1))
        assert store.note_fires([again, other], now=at(5)) == {key_of(other)}
        assert store.note_fires([again, other], now=at(6)) == frozenset()
        assert store.fires(NOBODY, tenant="default") == [
            other._replace(created_at=at(5)),
            first._replace(created_at=T0),
        ]
        assert store.note_fires([], now=T0) == frozenset()

    def test_schedule_instant_and_scope_key_make_a_fire(self, store: Store) -> None:
        other = new_id()
        fires = [a_fire(NOBODY), a_fire(NOBODY, T0 + TICK), a_fire(NOBODY, T0, "node"), a_fire(other)]
        for fire in fires:
            assert store.note_fires([fire], now=T0) == {key_of(fire)}
        assert store.note_fires(fires, now=T0) == frozenset()

    def test_a_fire_told_twice_in_one_batch_is_new_once(self, store: Store) -> None:
        twins = [a_fire(NOBODY, reason="first"), a_fire(NOBODY, reason="second")]
        assert store.note_fires(twins, now=T0) == {key_of(twins[0])}
        assert store.fires(NOBODY, tenant="default") == [twins[0]._replace(created_at=T0)]

    def test_of_many_that_note_the_same_fires_each_is_new_to_exactly_one(self, store: Store) -> None:
        fires = [a_fire(NOBODY, at(n)) for n in range(50)]
        orders = [fires, fires[::-1], fires[25:] + fires[:25], fires]
        new = together([partial(patiently, store.note_fires, order, now=T0) for order in orders])
        assert Counter(key for each in new for key in each) == Counter(map(key_of, fires))

    def test_fires_are_shown_newest_first_and_of_one_instant_by_scope_key(self, store: Store) -> None:
        fires = [a_fire(NOBODY, at(n), node) for n in range(3) for node in ("b", "", "B", "a")]
        store.note_fires(fires, now=T0)
        ordered = [(row.fire_at, row.scope_key) for row in store.fires(NOBODY, tenant="default")]
        assert ordered == [(at(n), node) for n in (2, 1, 0) for node in ("", "B", "a", "b")]
        page = store.fires(NOBODY, tenant="default", limit=2, before=at(2))
        assert [(row.fire_at, row.scope_key) for row in page] == [(at(1), ""), (at(1), "B")]
        assert len(store.fires(NOBODY, tenant="default", before=at(0.5))) == 4
        assert store.fires(NOBODY, tenant="default", limit=0) == []
        assert store.fires(NOBODY, tenant="default", limit=2**40) == store.fires(NOBODY, tenant="default")

    def test_fires_are_shown_to_their_tenant(self, store: Store) -> None:
        store.note_fires([a_fire(NOBODY, tenant="ann")], now=T0)
        assert len(store.fires(NOBODY, tenant=ALL_TENANTS)) == 1
        assert store.fires(NOBODY, tenant="bob") == []
        assert store.fires(new_id(), tenant=ALL_TENANTS) == []

    def test_the_newest_fire_of_a_scope_key_is_known_whatever_became_of_it(self, store: Store) -> None:
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

    def test_a_tick_is_all_or_nothing(self, store: Store) -> None:
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

    def test_two_schedulers_at_one_tick_enqueue_each_fire_once(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(f"s{n}") for n in range(20)])

        def whole_tick(order: list[Schedule]) -> int:
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
    """Which jobs of a schedule have not ended."""

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_a_job_that_has_not_ended_is_active(self, store: Store, state: JobState) -> None:
        row = plan_one(store, tenant="ann")
        job = bring(store, state, tenant="ann")
        store.note_fires([a_fire(row, job_id=job.id, tenant="ann")], now=T0)
        assert store.active_jobs([row.id]) == [ActiveJob(row.id, job.id, "ann", state)]

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_a_job_that_has_ended_is_not_active(self, store: Store, state: JobState) -> None:
        store.note_fires([a_fire(NOBODY, job_id=bring(store, state).id)], now=T0)
        assert store.active_jobs([NOBODY]) == []

    def test_a_job_that_ends_or_is_gone_is_not_active_any_more(self, store: Store) -> None:
        id = put_one(store)
        store.note_fires([a_fire(NOBODY, job_id=id), a_fire(NOBODY, at(1), job_id=new_id())], now=T0)
        store.note_fires([a_fire(NOBODY, at(2), reason="skipped")], now=T0)
        assert [row.job_id for row in store.active_jobs([NOBODY])] == [id]
        finish_all(store, [claim_one(store, id)], COMPLETED)
        assert store.active_jobs([NOBODY]) == []
        assert store.active_jobs([]) == []

    def test_active_jobs_come_by_schedule_and_fire_the_oldest_first(self, store: Store) -> None:
        schedules = sorted(new_id() for _ in range(2))
        jobs = {(id, n): put_one(store) for id in reversed(schedules) for n in (2, 0, 1)}
        store.note_fires([a_fire(id, at(n), job_id=job) for (id, n), job in jobs.items()], now=T0)
        found = store.active_jobs([*schedules[::-1], new_id()])
        assert [row.job_id for row in found] == [jobs[id, n] for id in schedules for n in range(3)]
        assert store.active_jobs([schedules[1]]) == found[3:]

    def test_only_the_newest_fires_that_became_jobs_are_looked_at(self, store: Store) -> None:
        jobs = [put_one(store) for _ in range(12)]
        store.note_fires([a_fire(NOBODY, at(n), job_id=job) for n, job in enumerate(jobs)], now=T0)
        store.note_fires([a_fire(NOBODY, at(50 + n), reason="skipped") for n in range(12)], now=T0)
        assert [row.job_id for row in store.active_jobs([NOBODY])] == jobs[2:]
        assert [row.job_id for row in store.active_jobs([NOBODY], newest=3)] == jobs[9:]
        assert len(store.active_jobs([NOBODY], newest=100)) == 12
        assert store.active_jobs([NOBODY], newest=0) == []

    def test_jobs_of_one_instant_on_several_nodes_come_by_scope_key(self, store: Store) -> None:
        jobs = {node: put_one(store) for node in ("b", "B", "a")}
        store.note_fires([a_fire(NOBODY, T0, node, job_id=job) for node, job in jobs.items()], now=T0)
        ordered = [jobs[node] for node in ("B", "a", "b")]
        assert [row.job_id for row in store.active_jobs([NOBODY])] == ordered
        assert [row.job_id for row in store.active_jobs([NOBODY], newest=2)] == ordered[1:]


class PruneLaws:
    """Old fires go, but for what is still needed."""

    def test_fires_before_an_instant_go_but_for_the_newest_of_each_scope_key(self, store: Store) -> None:
        row = plan_one(store)
        fires = [a_fire(row, at(n), node) for n in range(5) for node in ("", "a")]
        store.note_fires([*fires, a_fire(row, at(0), "gone")], now=T0)
        assert store.purge_fires(at(3), limit=100) == 6
        assert instants(store, row) == [(4, ""), (4, "a"), (3, ""), (3, "a"), (0, "gone")]
        assert store.purge_fires(at(99), limit=100) == 2
        assert instants(store, row) == [(4, ""), (4, "a"), (0, "gone")]
        assert store.purge_fires(at(99), limit=100) == 0

    def test_no_more_than_the_limit_go_at_once_the_oldest_first(self, store: Store) -> None:
        row = plan_one(store)
        store.note_fires([a_fire(row, at(n)) for n in range(6)], now=T0)
        assert store.purge_fires(at(99), limit=2) == 2
        assert instants(store, row) == [(n, "") for n in (5, 4, 3, 2)]
        assert store.purge_fires(at(99), limit=0) == 0

    def test_every_old_fire_of_a_schedule_that_is_gone_goes(self, store: Store) -> None:
        row = plan_one(store)
        store.note_fires([a_fire(row, at(n)) for n in range(3)], now=T0)
        store.drop_schedules([row.id], tenant="default")
        assert store.purge_fires(at(2), limit=100) == 2
        assert store.purge_fires(at(3), limit=100) == 1
        assert store.fires(row.id, tenant="default") == []

    def test_one_schedule_s_newest_fire_does_not_stand_for_another_s(self, store: Store) -> None:
        rows = plan(store, a_schedule("a"), a_schedule("b"))
        store.note_fires([a_fire(row, at(n)) for n, row in enumerate(rows)], now=T0)
        assert store.purge_fires(at(99), limit=100) == 0
        assert [len(store.fires(row.id, tenant="default")) for row in rows] == [1, 1]


def instants(store: Store, row: Schedule) -> list[tuple[int, str]]:
    """What there is of a schedule's fires, as seconds and scope keys."""
    found: list[Fired] = store.fires(row.id, tenant="default")
    return [(int((fire.fire_at - T0).total_seconds()), fire.scope_key) for fire in found]
