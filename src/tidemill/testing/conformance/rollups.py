"""Laws of rollups: what is counted, folding, compaction and expiry."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tidemill.domain import decide
from tidemill.domain.decide import COMPLETED, Action
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.record import Keep
from tidemill.domain.rollups import (
    BOUNDS,
    Compaction,
    EverEnded,
    EverExecuted,
    Expiry,
    RollupScope,
    Unit,
    bucket_of,
    compactions,
    expiries,
    floored,
)
from tidemill.domain.states import JobState
from tidemill.domain.stats import Group
from tidemill.stores.base import Store
from tidemill.testing.conformance.archive_control import archived, restored
from tidemill.testing.conformance.kit import (
    AGAIN,
    HOUR,
    OTHER,
    SECOND,
    T0,
    WORKER,
    at,
    bring,
    claim_one,
    finish_all,
    get_one,
    put_one,
    retry,
)
from tidemill.testing.conformance.stats import by, end, times

S = JobState
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def figures(store: Store, **how: Any) -> list[Any]:
    """Return every figure that is computed from rollups, for the last day."""
    how.setdefault("tenant", ALL_TENANTS)
    how.setdefault("now", at(600))
    groups = [store.ended_by(group, DAY, **how).rows for group in Group]
    named = [store.times_by(group, DAY, **how) for group in (Group.TASK, Group.TENANT, Group.QUEUE)]
    grouped = [store.series_by(group, DAY, HOUR, **how) for group in (Group.TASK, Group.QUEUE)]
    series = [store.series(DAY, HOUR, **how), *grouped]
    return [*groups, *named, *series, store.ended_ever()]


def various(store: Store) -> None:
    """End jobs of several tasks, tenants, queues, workers and minutes in several ways."""
    for n, state in enumerate(
        (S.COMPLETED, S.FAILED, S.CANCELLED, S.TIMED_OUT, S.DEAD_LETTERED, S.COMPLETED)
    ):
        end(store, state, task=f"t{n % 2}", tenant="ab"[n % 2], queue=f"q{n % 3}", waits=n, takes=20 * n)
        end(store, state, worker=OTHER, due=T0 + n * MINUTE, takes=0.001 * 3**n)
    job = bring(store, S.PENDING)
    store.move([decide.move(job, Action.CANCEL, "no")], now=at(5))


class RollupLaws:
    """Counts of all ends."""

    def test_a_series_by_group_has_the_largest_groups_and_the_sums_of_the_series(self, store: Store) -> None:
        various(store)
        for fold in (False, True):
            if fold:
                store.fold_ends()
            where: dict[str, Any] = {"tenant": ALL_TENANTS, "now": at(600)}
            whole = store.series(HOUR, MINUTE, **where).slots
            grouped = store.series_by(Group.TASK, HOUR, MINUTE, **where)
            assert grouped.steps == [slot.at for slot in whole]
            columns = list(zip(*grouped.groups.values(), strict=True))
            assert [sum(total for total, _ in column) for column in columns] == [slot.total for slot in whole]
            assert [sum(failed for _, failed in column) for column in columns] == [
                slot.failed for slot in whole
            ]
            first = next(iter(grouped.groups))
            assert first == store.ended_by(Group.TASK, HOUR, **where).rows[0].name
            assert list(store.series_by(Group.TASK, HOUR, MINUTE, limit=1, **where).groups) == [first]
            own = store.series_by(Group.QUEUE, HOUR, MINUTE, tenant="a", now=at(600))
            assert set(own.groups) == {
                row.name for row in store.ended_by(Group.QUEUE, HOUR, tenant="a", now=at(600)).rows
            }

    def test_every_end_of_a_job_is_counted_even_if_it_is_reopened(self, store: Store) -> None:
        job = get_one(store, end(store, S.FAILED))
        assert store.move([retry(job)], now=at(1)) == {job.id}
        finish_all(store, [claim_one(store, job.id, now=at(2))], COMPLETED, now=at(3))
        row = by(store, Group.TASK)["work"]
        assert (row.total, row.failed, row.completed) == (2, 1, 1)

    def test_deleting_archiving_and_restoring_change_no_count(self, store: Store) -> None:
        deleted, moved = end(store), end(store)
        before = figures(store)
        copy = restored(store, get_one(store, moved))
        assert store.delete([deleted], tenant=ALL_TENANTS) == {deleted}
        assert store.forget(archived(store)) == {moved}
        assert store.restore([copy]) == {moved}
        assert figures(store) == before

    def test_a_job_that_keeps_no_row_is_counted(self, store: Store) -> None:
        claims = [claim_one(store, put_one(store)) for _ in range(2)]
        finishes = [Finish(claims[0], COMPLETED, keep=Keep.NOTHING), Finish(claims[1], AGAIN)]
        assert store.finish(finishes, now=at(2)) == frozenset()
        row = by(store, Group.TASK)["work"]
        assert (row.total, row.completed, row.ran, row.run_time) == (1, 1, 1, 2 * SECOND)

    def test_a_rolled_back_end_is_not_counted(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        with suppress(ZeroDivisionError), store.transaction():
            finish_all(store, [claim], COMPLETED, now=at(1))
            raise ZeroDivisionError
        assert by(store, Group.TASK) == {}
        assert store.fold_ends() == 0

    def test_a_refused_finish_is_not_counted(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], COMPLETED, now=at(1))
        assert store.finish([Finish(claim, COMPLETED)], now=at(2)) == {claim.id}
        assert by(store, Group.TASK)["work"].total == 1

    def test_a_reported_end_counts_at_its_own_time(self, store: Store) -> None:
        finish_all(store, [claim_one(store, put_one(store))], COMPLETED, now=at(600), ended_ago=540)
        slots = store.series(HOUR, MINUTE, tenant=ALL_TENANTS, now=at(600)).slots
        assert [slot.at for slot in slots if slot.total] == [at(60).replace(second=0, microsecond=0)]

    def test_times_are_counted_in_buckets_with_inclusive_bounds(self, store: Store) -> None:
        for micros in (BOUNDS[3], BOUNDS[3] + 1, BOUNDS[-1] + 1):
            end(store, takes=micros / 1_000_000, due=T0 - 10 * HOUR)
        measured = store.times_by(Group.TASK, DAY, tenant=ALL_TENANTS, now=at(60))["work"]
        assert [bucket.number for bucket in measured.run.buckets] == [3, 4, len(BOUNDS)]
        assert [bucket.time for bucket in measured.run.buckets] == [8_000, 8_001, BOUNDS[-1] + 1]
        assert [tuple(bucket) for bucket in measured.wait.buckets] == [(0, 3, 0)]

    @pytest.mark.parametrize("power", range(26))
    def test_every_bound_separates_two_buckets(self, store: Store, power: int) -> None:
        micros = [BOUNDS[power] - 1, BOUNDS[power], BOUNDS[power] + 1]
        for micro in micros:
            claim = claim_one(store, put_one(store), now=T0)
            finish_all(store, [claim], COMPLETED, now=T0 + timedelta(microseconds=micro))
        for _ in range(2):
            measured = store.times_by(Group.TASK, DAY, tenant=ALL_TENANTS, now=at(40_000))["work"].run
            assert {bucket.number for bucket in measured.buckets} == {bucket_of(micro) for micro in micros}
            store.fold_ends()

    def test_times_belong_to_their_group_and_tenant(self, store: Store) -> None:
        end(store, task="a", tenant="x", queue="q", waits=1, takes=2)
        end(store, task="b", tenant="y", queue="q", waits=3, takes=4)
        how: Any = {"now": at(60), "tenant": ALL_TENANTS}
        both = times((1, 2), (3, 4))
        assert store.times_by(Group.TASK, DAY, **how) == {"a": times((1, 2)), "b": times((3, 4))}
        assert store.times_by(Group.QUEUE, DAY, **how) == {"q": both}
        assert store.times_by(Group.TASK, DAY, names=["b", "c"], **how) == {"b": times((3, 4))}
        assert store.times_by(Group.QUEUE, DAY, tenant="x", now=at(60)) == {"q": times((1, 2))}

    def test_all_ends_and_executions_are_added_up(self, store: Store) -> None:
        id = put_one(store, queue="mail")
        finish_all(store, [claim_one(store, id)], AGAIN, now=at(1))
        finish_all(store, [claim_one(store, id, now=at(5))], COMPLETED, now=at(7))
        pending = get_one(store, put_one(store, queue="default"))
        store.move([decide.move(pending, Action.CANCEL, "no")], now=at(8))
        for _ in range(2):
            totals = store.ended_ever()
            assert list(totals.ended) == [
                EverEnded("work", "default", S.CANCELLED, 1, 0),
                EverEnded("work", "mail", S.COMPLETED, 1, 1),
            ]
            assert list(totals.executed) == [
                EverExecuted("work", "mail", "failed", 1),
                EverExecuted("work", "mail", "succeeded", 1),
            ]
            assert totals.times == {"work": times((4, 2))}
            assert store.fold_ends() in (0, 3)


class FoldLaws:
    """Moving ends from the journal into rollups, and rollups into longer units."""

    @pytest.mark.parametrize("tenant", [ALL_TENANTS, "a", "default"])
    def test_folding_changes_no_figure(self, store: Store, tenant: str) -> None:
        various(store)
        before = figures(store, tenant=tenant)
        assert store.fold_ends(limit=5) == 5
        assert figures(store, tenant=tenant) == before
        assert store.fold_ends() > 0
        assert store.fold_ends() == 0
        assert figures(store, tenant=tenant) == before

    def test_later_ends_are_added_to_the_rollups(self, store: Store) -> None:
        various(store)
        store.fold_ends()
        various(store)
        before = figures(store)
        store.fold_ends()
        assert figures(store) == before
        assert by(store, Group.STATE)["completed"].total == 2 * 4

    def test_compaction_keeps_all_sums_and_the_minutes_that_are_young(self, store: Store) -> None:
        for hours in (0, 1, 2, 4, 20):
            end(store, due=T0 - hours * HOUR, waits=1, takes=1)
            end(store, S.FAILED, due=T0 - hours * HOUR - MINUTE)
        store.fold_ends()
        before = figures(store)
        merged = sum(_compact(store, compaction) for compaction in compactions(at(600)))
        assert merged > 0
        assert figures(store) == before
        young = store.series(2 * HOUR, MINUTE, tenant=ALL_TENANTS, now=at(60))
        assert {slot.at.minute for slot in young.slots if slot.total} == {29, 30}

    def test_a_late_end_joins_its_compacted_slot(self, store: Store) -> None:
        for _ in range(2):
            end(store, due=T0 - 4 * HOUR)
            store.fold_ends()
            for compaction in compactions(T0):
                _compact(store, compaction)
        (slot,) = [
            slot for slot in store.series(DAY, HOUR, tenant=ALL_TENANTS, now=at(60)).slots if slot.total
        ]
        assert (slot.total, slot.times) == (2, times((0, 0), (0, 0)))

    def test_one_call_compacts_one_slot_and_nothing_after_the_bound(self, store: Store) -> None:
        for minutes in (0, 1, 15, 16, 30):
            end(store, due=T0 + minutes * MINUTE)
        store.fold_ends()
        compaction = Compaction(Unit.MINUTE, Unit.QUARTER, floored(T0, HOUR) + HOUR)
        merged = [store.compact_rollups(compaction) for _ in range(3)]
        assert merged == [6, 6, 0]

    def test_expired_rollups_are_deleted_but_totals_stay(self, store: Store) -> None:
        end(store, due=T0 - timedelta(days=500), worker=WORKER)
        end(store)
        store.fold_ends()
        assert [store.drop_rollups(expiry) for expiry in expiries(T0)] == [1, 1, 1]
        assert store.drop_rollups(Expiry(RollupScope.DETAIL, T0 - DAY)) == 0
        assert by(store, Group.TASK)["work"].total == 1
        (ever,) = store.ended_ever().ended
        assert ever.jobs == 2


def _compact(store: Store, compaction: Compaction) -> int:
    rows = 0
    while merged := store.compact_rollups(compaction):
        rows += merged
    return rows
