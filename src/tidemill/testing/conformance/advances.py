"""Laws of due schedules and their advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tidemill.domain.schedules import Advance, Due, ScheduleRow, Scope
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, TICK, at, ids_of, patiently, together
from tidemill.testing.conformance.planned_fires import (
    a_fire,
    a_schedule,
    define,
    plan,
    plan_one,
    schedule_of,
    step_of,
)


class DueLaws:
    """Which schedules are due, and when the next one is."""

    def test_an_empty_store_has_no_due_schedules(self, store: Store) -> None:
        assert store.due(10, now=T0) == Due([], None)

    def test_due_schedules_come_oldest_first_with_the_next_fire_time(self, store: Store) -> None:
        late, now, soon, later = plan(
            store, *[a_schedule(f"s{n}", next_fire_at=at(n)) for n in (-5, 0, 0.000001, 60)]
        )
        assert store.due(10, now=T0) == Due([late, now], at(0.000001))
        assert store.due(10, now=at(-5) - TICK) == Due([], at(-5))
        assert store.due(10, now=at(60)) == Due([late, now, soon, later], None)

    def test_schedules_beyond_the_limit_are_the_next(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(f"s{n}", next_fire_at=at(n)) for n in range(5)])
        assert store.due(2, now=at(9)) == Due(rows[:2], at(2))
        assert store.due(5, now=at(9)) == Due(rows, None)
        assert store.due(0, now=at(9)) == Due([], at(0))

    def test_schedules_due_at_one_instant_are_ordered_by_id(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(f"s{n}") for n in range(6)])
        ordered = sorted(ids_of(rows))
        assert ids_of(store.due(4, now=T0).schedules) == ordered[:4]
        assert store.due(4, now=T0).next_fire_at == T0

    def test_only_enabled_schedules_of_cluster_scope_with_a_next_fire_are_due(self, store: Store) -> None:
        due, *_ = plan(
            store,
            a_schedule("due"),
            a_schedule("disabled", enabled=False),
            a_schedule("instance", scope=Scope.INSTANCE),
            a_schedule("over", next_fire_at=None),
        )
        assert store.due(10, now=T0) == Due([due], None)
        assert store.due(10, now=T0 - TICK) == Due([], T0)

    @pytest.mark.parametrize("enabled", [True, False])
    def test_a_schedule_is_due_only_if_its_definition_is_enabled(self, store: Store, enabled: bool) -> None:
        definition = define(store, enabled=enabled)
        schedule = plan_one(store, definition_id=definition.id)
        assert store.due(10, now=T0) == (Due([schedule], None) if enabled else Due([], None))
        store.enable_definitions([definition.id], tenant="default", enabled=not enabled, now=at(1))
        assert len(store.due(10, now=at(1)).schedules) == (0 if enabled else 1)

    def test_schedules_of_all_tenants_are_due_together(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(tenant=f"tenant-{n}", next_fire_at=at(n)) for n in range(3)])
        assert store.due(10, now=at(9)).schedules == rows


class AdvanceLaws:
    """Law 16: a schedule advances only from the state in which it was read."""

    def test_an_advanced_schedule_has_a_last_and_a_next_fire(self, store: Store) -> None:
        first = plan_one(store)
        assert store.advance([Advance(first.id, 1, None, at(1), at(60))]) == frozenset()
        second = replace(first, last_fire_at=at(1), next_fire_at=at(60))
        assert schedule_of(store, first.id) == second
        assert store.due(10, now=at(2)) == Due([], at(60))
        assert store.advance([Advance(first.id, 1, at(1), at(60), None)]) == frozenset()
        assert schedule_of(store, first.id) == replace(second, last_fire_at=at(60), next_fire_at=None)

    def test_a_schedule_can_be_postponed_without_a_fire(self, store: Store) -> None:
        first = plan_one(store)
        assert store.advance([Advance(first.id, 1, None, None, at(60))]) == frozenset()
        assert schedule_of(store, first.id) == replace(first, next_fire_at=at(60))

    def test_a_schedule_advances_once_from_one_state(self, store: Store) -> None:
        first = plan_one(store)
        assert store.advance([step_of(first)]) == frozenset()
        after = schedule_of(store, first.id)
        assert store.advance([step_of(first, last=at(5))]) == {first.id}
        assert store.advance([Advance(first.id, 1, T0 - TICK, at(5), None)]) == {first.id}
        assert schedule_of(store, first.id) == after

    @pytest.mark.parametrize("revision", [0, 1, 3])
    def test_a_schedule_does_not_advance_from_another_revision(self, store: Store, revision: int) -> None:
        first = plan_one(store)
        plan(store, first, now=at(1))
        before = schedule_of(store, first.id)
        assert store.advance([step_of(replace(first, revision=revision))]) == {first.id}
        assert schedule_of(store, first.id) == before
        assert store.advance([step_of(before)]) == frozenset()

    def test_a_deleted_or_disabled_schedule_does_not_advance(self, store: Store) -> None:
        gone, off = plan(store, a_schedule("gone"), a_schedule("off", enabled=False))
        store.drop_schedules([gone.id], tenant="default")
        assert store.advance([step_of(gone), step_of(off)]) == {gone.id, off.id}
        assert schedule_of(store, off.id) == off

    def test_a_schedule_that_was_disabled_and_enabled_does_not_advance(self, store: Store) -> None:
        first = plan_one(store)
        for enabled in (False, True):
            store.enable_schedules([first.id], tenant="default", enabled=enabled, now=at(1))
        assert store.advance([step_of(first)]) == {first.id}

    def test_a_schedule_of_a_disabled_definition_does_not_advance(self, store: Store) -> None:
        definition = define(store, enabled=False)
        schedule = plan_one(store, definition_id=definition.id)
        assert store.advance([step_of(schedule)]) == {schedule.id}
        assert schedule_of(store, schedule.id) == schedule

    def test_a_schedule_with_a_switched_definition_does_not_advance(self, store: Store) -> None:
        definition = define(store)
        schedule = plan_one(store, definition_id=definition.id)
        for enabled in (False, True):
            store.enable_definitions([definition.id], tenant="default", enabled=enabled, now=at(1))
            assert store.advance([step_of(schedule)]) == {schedule.id}
        assert store.advance([step_of(schedule_of(store, schedule.id))]) == frozenset()

    def test_a_batch_advances_what_it_can_and_returns_the_others(self, store: Store) -> None:
        rows = plan(store, *[a_schedule(f"s{n}") for n in range(4)])
        store.advance([step_of(rows[1])])
        assert store.advance([step_of(row) for row in rows]) == {rows[1].id}
        assert store.due(10, now=T0).schedules == []
        assert store.advance([]) == frozenset()

    def test_one_of_two_concurrent_advances_wins(self, store: Store) -> None:
        row = plan_one(store)
        for n in range(10):
            steps = [Advance(row.id, 1, row.last_fire_at, at(n), at(n + side)) for side in (1, 2)]
            lost = together([partial(patiently, store.advance, [step]) for step in steps])
            assert sorted(map(len, lost)) == [0, 1]
            row = schedule_of(store, row.id)
            assert row.next_fire_at == steps[1 if lost[0] else 0].next_fire_at

    def test_batches_in_opposite_order_advance_each_schedule_once(self, store: Store) -> None:
        steps = [step_of(row) for row in plan(store, *[a_schedule(f"s{n}") for n in range(60)])]
        orders = [steps, steps[::-1], steps[30:] + steps[:30]]
        lost = together([partial(patiently, store.advance, order) for order in orders])
        assert sum(map(len, lost)) == 120

    @pytest.mark.parametrize("what", ["schedule", "definition"])
    def test_a_schedule_that_is_disabled_first_does_not_fire(self, store: Store, what: str) -> None:
        """A fire is committed with its advance; no fire follows once the schedule is disabled."""
        for n in range(10):
            definition = define(store, f"d{n}")
            schedule = plan_one(store, f"s{n}", definition_id=definition.id)
            off = (
                partial(store.enable_schedules, [schedule.id])
                if what == "schedule"
                else partial(store.enable_definitions, [definition.id])
            )
            fired, seen = together(
                [partial(patiently, fire, store, schedule), partial(disable, store, off, schedule)]
            )
            assert seen == fired
            assert bool(store.fires(schedule.id, tenant="default")) == fired


def fire(store: Store, schedule: ScheduleRow) -> bool:
    """Run one tick of a schedule; return whether it fired."""
    with store.transaction():
        if store.advance([step_of(schedule)]):
            return False
        store.note_fires([a_fire(schedule)], now=T0)
    return True


def disable(store: Store, off: Callable[..., object], schedule: ScheduleRow) -> bool:
    """Disable a schedule or its definition; return whether it had fired by then."""
    patiently(partial(off, tenant="default", enabled=False, now=at(1)))
    return bool(patiently(store.fires, schedule.id, tenant="default"))
