"""Laws of schedules: revisions, unique keys, switching and deletion."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.schedules import Due, Scope, Source
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, ids_of, patiently, together
from tidemill.testing.conformance.planned_fires import (
    a_fire,
    a_schedule,
    define,
    plan,
    plan_one,
    schedule_of,
    step_of,
)

UNKNOWN = new_id()


class ScheduleLaws:
    """Writing, reading, switching and deleting schedules."""

    def test_a_new_schedule_is_revision_one_and_counts_from_now(self, store: Store) -> None:
        definition = define(store)
        new = a_schedule(
            definition_id=definition.id,
            timezone="Europe/Berlin",
            calendar={"holidays": ["2026-12-25"]},
            exclude={"days": [6]},
            args='{"size":1}',
            options={"queue": "slow", "jitter": 1.5},
            misfire={"kind": "all", "limit": 3},
            overlap="queue",
            scope=Scope.INSTANCE,
            source=Source.CODE,
            enabled=False,
            note="removed from the code",
            next_fire_at=at(9),
            created_at=at(-9),
            updated_at=at(-9),
            since_at=at(-9),
            last_fire_at=at(-9),
        )
        assert store.put_schedules([new], now=T0) == frozenset()
        stored = schedule_of(store, new.id)
        assert stored == replace(
            new, revision=1, created_at=T0, updated_at=T0, since_at=T0, last_fire_at=None
        )
        assert isinstance(stored.scope, Scope)
        assert isinstance(stored.source, Source)

    def test_a_schedule_needs_only_a_key_a_task_and_a_trigger(self, store: Store) -> None:
        stored = plan_one(store, next_fire_at=None)
        assert (stored.calendar, stored.exclude, stored.note, stored.definition_id) == (None,) * 4
        assert (stored.options, stored.misfire, stored.overlap) == ({}, "once", "skip")
        assert (stored.scope, stored.source, stored.enabled) == (Scope.CLUSTER, Source.STORED, True)
        assert (stored.timezone, stored.next_fire_at, stored.last_fire_at) == ("UTC", None, None)

    def test_a_write_must_name_the_current_revision(self, store: Store) -> None:
        first = plan_one(store)
        changed = replace(first, task="other", timezone="Asia/Tokyo", next_fire_at=at(5), enabled=False)
        assert store.put_schedules([changed], now=at(1)) == frozenset()
        second = replace(changed, revision=2, updated_at=at(1), since_at=at(1))
        assert schedule_of(store, first.id) == second
        for revision in (0, 1, 3):
            assert store.put_schedules([replace(first, revision=revision)], now=at(2)) == {first.id}
        assert schedule_of(store, first.id) == second

    def test_a_write_keeps_the_creation_and_last_fire_times(self, store: Store) -> None:
        first = plan_one(store)
        assert store.advance([step_of(first, last=at(1), then=at(2))]) == frozenset()
        assert store.put_schedules([replace(first, created_at=at(9), last_fire_at=at(9))], now=at(3)) == set()
        after = schedule_of(store, first.id)
        assert (after.created_at, after.last_fire_at) == (T0, at(1))
        assert (after.since_at, after.next_fire_at) == (at(3), T0)

    def test_a_key_belongs_to_one_schedule_per_tenant(self, store: Store) -> None:
        first, foreign = plan_one(store, "nightly"), plan_one(store, "nightly", tenant="other")
        second = a_schedule("nightly")
        assert store.put_schedules([second], now=at(1)) == {second.id}
        assert store.schedules(tenant=ALL_TENANTS) == [first, foreign]

    def test_the_first_schedule_of_a_batch_gets_a_free_key(self, store: Store) -> None:
        batch = [a_schedule("a"), a_schedule("b"), a_schedule("a"), a_schedule("a", tenant="other")]
        assert store.put_schedules(batch, now=T0) == {batch[2].id}
        assert {row.id for row in store.schedules(tenant=ALL_TENANTS)} == {batch[n].id for n in (0, 1, 3)}

    def test_a_batch_writes_what_it_can_and_returns_the_lost(self, store: Store) -> None:
        current, stale = plan(store, a_schedule("current"), a_schedule("stale"))
        gone, new = a_schedule("gone", revision=1), a_schedule("new")
        batch = [replace(current, task="x"), replace(stale, revision=4), gone, new]
        assert store.put_schedules(batch, now=at(1)) == {stale.id, gone.id}
        rows = {row.key: (row.task, row.revision) for row in store.schedules(tenant="default")}
        assert rows == {"current": ("x", 2), "new": ("work", 1), "stale": ("work", 1)}
        assert store.put_schedules([], now=T0) == frozenset()

    def test_a_schedule_key_can_be_changed_only_to_a_free_one(self, store: Store) -> None:
        a, b = plan(store, a_schedule("a"), a_schedule("b"))
        swapped = [replace(a, key="b"), replace(b, key="a")]
        assert store.put_schedules(swapped, now=at(1)) == {a.id, b.id}
        assert store.put_schedules([replace(a, key="c")], now=at(1)) == frozenset()
        assert [row.key for row in store.schedules(tenant="default")] == ["b", "c"]

    def test_another_tenant_cannot_overwrite_a_schedule(self, store: Store) -> None:
        first = plan_one(store)
        assert store.put_schedules([replace(first, tenant="other")], now=at(1)) == {first.id}
        assert store.schedules(tenant=ALL_TENANTS) == [first]

    def test_a_schedule_needs_a_live_definition_of_its_tenant(self, store: Store) -> None:
        dead, foreign = define(store, "dead"), define(store, tenant="other")
        store.drop_definitions([dead.id], tenant="default", now=T0)
        batch = [a_schedule(f"s{n}", definition_id=id) for n, id in enumerate([dead.id, foreign.id, UNKNOWN])]
        assert store.put_schedules(batch, now=T0) == set(ids_of(batch))
        assert store.schedules(tenant=ALL_TENANTS) == []

    def test_schedule_filters_are_combined(self, store: Store) -> None:
        definition = define(store)
        b, a, upper, foreign = plan(
            store,
            a_schedule("b", definition_id=definition.id),
            a_schedule("a", scope=Scope.INSTANCE),
            a_schedule("B", definition_id=definition.id, scope=Scope.INSTANCE),
            a_schedule("a", tenant="also"),
        )
        assert store.schedules(tenant="default") == [upper, a, b]
        assert store.schedules(tenant=ALL_TENANTS) == [foreign, upper, a, b]
        assert store.schedules(tenant="default", ids=[b.id, foreign.id, UNKNOWN]) == [b]
        assert store.schedules(tenant="default", keys=["a", "b", "x"]) == [a, b]
        assert store.schedules(tenant="default", definition_id=definition.id) == [upper, b]
        assert store.schedules(tenant="default", scope=Scope.INSTANCE) == [upper, a]
        assert store.schedules(tenant=ALL_TENANTS, scope=Scope.CLUSTER, keys=["a"]) == [foreign]
        assert store.schedules(tenant="default", ids=[]) == []
        assert store.schedules(tenant="default", keys=[]) == []

    def test_changing_a_returned_schedule_changes_nothing_stored(self, store: Store) -> None:
        trigger: dict[str, Any] = {"days": [1]}
        stored = plan_one(store, trigger=trigger)
        trigger["days"].append(2)
        stored.trigger["days"].append(3)  # type: ignore[attr-defined]
        assert schedule_of(store, stored.id).trigger == {"days": [1]}

    def test_disabling_returns_changed_schedules_and_stores_a_note(self, store: Store) -> None:
        on, off, foreign = plan(
            store, a_schedule("on"), a_schedule("off", enabled=False), a_schedule(tenant="other")
        )
        ids = [on.id, off.id, foreign.id, UNKNOWN]
        changed = store.enable_schedules(ids, tenant="default", enabled=False, note="why", now=at(1))
        assert changed == {on.id}
        assert schedule_of(store, on.id) == replace(
            on, enabled=False, note="why", revision=2, updated_at=at(1)
        )
        assert [schedule_of(store, row.id) for row in (off, foreign)] == [off, foreign]
        assert store.enable_schedules(ids, tenant=ALL_TENANTS, enabled=False, now=at(2)) == {foreign.id}
        assert store.enable_schedules([], tenant=ALL_TENANTS, enabled=True) == frozenset()

    def test_an_enabled_schedule_restarts_from_now(self, store: Store) -> None:
        off = plan_one(store, enabled=False, note="removed from the code", next_fire_at=at(99))
        assert store.due(10, now=at(5)) == Due([], None)
        assert store.enable_schedules([off.id], tenant="default", enabled=True, now=at(5)) == {off.id}
        on = replace(
            off, enabled=True, note=None, revision=2, updated_at=at(5), since_at=at(5), next_fire_at=at(5)
        )
        assert store.due(10, now=at(5)) == Due([on], None)

    def test_deleted_schedules_are_returned_and_keep_their_fires(self, store: Store) -> None:
        gone, stays = plan(store, a_schedule("gone"), a_schedule("stays"))
        store.note_fires([a_fire(gone)], now=T0)
        assert store.drop_schedules([gone.id, UNKNOWN], tenant="other") == frozenset()
        assert store.drop_schedules([gone.id, UNKNOWN], tenant="default") == {gone.id}
        assert store.drop_schedules([gone.id], tenant=ALL_TENANTS) == frozenset()
        assert store.drop_schedules([], tenant=ALL_TENANTS) == frozenset()
        assert store.schedules(tenant=ALL_TENANTS) == [stays]
        assert len(store.fires(gone.id, tenant="default")) == 1
        assert plan_one(store, "gone").revision == 1

    def test_one_of_two_concurrent_schedules_gets_a_new_key(self, store: Store) -> None:
        for n in range(10):
            both = [a_schedule(f"key-{n}"), a_schedule(f"key-{n}")]
            lost = together([partial(patiently, store.put_schedules, [one], now=T0) for one in both])
            assert sorted(map(len, lost)) == [0, 1]
            assert len(store.schedules(tenant="default", keys=[f"key-{n}"])) == 1

    def test_one_of_two_concurrent_schedules_gets_a_free_key(self, store: Store) -> None:
        for n in range(10):
            rows = plan(store, a_schedule(f"a-{n}"), a_schedule(f"b-{n}"))
            both = [replace(row, key=f"free-{n}") for row in rows]
            lost = together([partial(patiently, store.put_schedules, [one], now=T0) for one in both])
            assert sorted(map(len, lost)) == [0, 1]
            assert len(store.schedules(tenant="default", keys=[f"free-{n}"])) == 1

    def test_one_of_two_concurrent_writes_of_a_revision_wins(self, store: Store) -> None:
        stored = plan_one(store)
        for n in range(10):
            both = [replace(stored, task=f"{n}-{side}") for side in "ab"]
            lost = together([partial(patiently, store.put_schedules, [one], now=T0) for one in both])
            assert sorted(map(len, lost)) == [0, 1]
            stored = schedule_of(store, stored.id)
            assert (stored.revision, stored.task) == (n + 2, both[1 if lost[0] else 0].task)
