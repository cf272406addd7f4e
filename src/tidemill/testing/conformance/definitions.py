"""Laws of definitions: versions, unique keys, and soft deletion."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.schedules import DefinitionVersion
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, patiently, together
from tidemill.testing.conformance.planned_fires import (
    a_definition,
    a_schedule,
    define,
    definition_of,
    plan_one,
    schedule_of,
)

UNKNOWN = new_id()


class DefinitionLaws:
    """Writing and reading definitions."""

    def test_a_new_definition_is_version_one_and_dated_now(self, store: Store) -> None:
        new = a_definition(
            name="Report",
            args='{"size":1}',
            settings={"queue": "slow", "tags": ["a", "ü"], "retry": {"max": 2}},
            notifications={"failed": ["ops@example.org"]},
            owner="ann",
            enabled=False,
            created_at=at(-99),
            created_by="bob",
            updated_at=at(-99),
            deleted_at=at(-99),
        )
        stored = store.put_definition(new, by="eve", now=T0)
        assert stored == replace(
            new, version=1, created_at=T0, created_by="eve", updated_at=T0, deleted_at=None
        )
        assert store.definitions(tenant="default") == [stored]

    def test_a_definition_needs_only_a_key_and_a_task(self, store: Store) -> None:
        stored = store.put_definition(a_definition(), now=T0)
        assert stored is not None
        assert (stored.name, stored.args, stored.settings, stored.notifications) == ("", "{}", {}, {})
        assert (stored.owner, stored.created_by, stored.enabled) == (None, None, True)
        assert definition_of(store, stored.id) == stored

    def test_definitions_and_schedules_are_counted_by_tenant_and_state(self, store: Store) -> None:
        first, gone = define(store, "a"), define(store, "gone")
        define(store, "b")
        define(store, "c", tenant="other")
        store.enable_definitions([first.id], tenant="default", enabled=False, now=at(1))
        store.drop_definitions([gone.id], tenant="default", now=at(1))
        off = plan_one(store, key="d")
        plan_one(store, key="e", tenant="other")
        store.enable_schedules([off.id], tenant="default", enabled=False, now=at(1))
        assert store.declared(tenant="default") == (1, 1, 0, 1)
        assert store.declared(tenant="other") == (1, 0, 1, 0)
        assert store.declared(tenant=ALL_TENANTS) == (2, 1, 1, 1)

    def test_a_write_must_name_the_current_version(self, store: Store) -> None:
        first = define(store)
        second = store.put_definition(replace(first, name="Second", task="other"), by="bob", now=at(1))
        assert second == replace(first, name="Second", task="other", version=2, updated_at=at(1))
        assert store.put_definition(replace(first, name="Late"), now=at(2)) is None
        assert store.put_definition(replace(first, version=3), now=at(2)) is None
        assert store.put_definition(replace(first, version=0), now=at(2)) is None
        assert store.definitions(tenant="default") == [second]

    def test_a_write_keeps_the_creator_and_the_enabled_flag(self, store: Store) -> None:
        first = define(store)
        store.enable_definitions([first.id], tenant="default", enabled=False, now=at(1))
        changed = replace(first, enabled=True, created_at=at(9), created_by="eve", owner="eve")
        second = store.put_definition(changed, by="eve", now=at(2))
        assert second is not None
        assert (second.enabled, second.created_at, second.created_by) == (False, T0, "ann")
        assert (second.owner, second.updated_at) == ("eve", at(2))

    def test_a_key_belongs_to_one_live_definition_per_tenant(self, store: Store) -> None:
        first = define(store, "report")
        assert store.put_definition(a_definition("report"), now=T0) is None
        other = define(store, "report", tenant="other")
        assert store.definitions(tenant=ALL_TENANTS) == [first, other]

    def test_a_key_can_be_changed_only_to_a_free_one(self, store: Store) -> None:
        first, second = define(store, "a"), define(store, "b")
        assert store.put_definition(replace(second, key="a"), now=at(1)) is None
        renamed = store.put_definition(replace(second, key="c"), now=at(1))
        assert renamed is not None
        assert [row.key for row in store.definitions(tenant="default")] == ["a", "c"]
        assert define(store, "b").version == 1
        assert definition_of(store, first.id) == first

    def test_another_tenant_cannot_overwrite_a_definition(self, store: Store) -> None:
        first = define(store)
        assert store.put_definition(replace(first, tenant="other"), now=at(1)) is None
        assert store.definitions(tenant=ALL_TENANTS) == [first]

    def test_a_write_over_an_unknown_definition_is_refused(self, store: Store) -> None:
        assert store.put_definition(a_definition(version=1), now=T0) is None
        assert store.definitions(tenant=ALL_TENANTS, deleted=True) == []

    def test_definition_filters_are_combined(self, store: Store) -> None:
        b, a = define(store, "b"), define(store, "a", task="other")
        upper, foreign = define(store, "B"), define(store, "a", tenant="also")
        assert store.definitions(tenant="default") == [upper, a, b]
        assert store.definitions(tenant=ALL_TENANTS) == [foreign, upper, a, b]
        assert store.definitions(tenant="default", ids=[a.id, foreign.id, UNKNOWN]) == [a]
        assert store.definitions(tenant="default", keys=["b", "a", "x"]) == [a, b]
        assert store.definitions(tenant="default", task="work") == [upper, b]
        assert store.definitions(tenant="default", keys=["a", "b"], task="work", ids=[b.id, a.id]) == [b]
        assert store.definitions(tenant="default", ids=[]) == []
        assert store.definitions(tenant="default", keys=[]) == []
        assert store.definitions(tenant="nobody") == []

    def test_every_version_is_kept_as_it_was(self, store: Store) -> None:
        first = define(store, "a", settings={"n": [1]}, owner="ann")
        store.enable_definitions([first.id], tenant="default", enabled=False, now=at(1))
        second = store.put_definition(replace(first, key="b", settings={"n": 2}), by="bob", now=at(2))
        assert second is not None
        store.drop_definitions([first.id], tenant="default", now=at(3))
        expected = [DefinitionVersion(first, T0, "ann"), DefinitionVersion(second, at(2), "bob")]
        assert store.definition_versions(first.id, tenant="default") == expected
        assert store.definition_versions(first.id, tenant=ALL_TENANTS) == expected
        assert store.definition_versions(first.id, tenant="other") == []
        assert store.definition_versions(UNKNOWN, tenant=ALL_TENANTS) == []

    def test_a_refused_write_leaves_no_version(self, store: Store) -> None:
        first = define(store)
        store.put_definition(replace(first, version=7), now=at(1))
        assert [row.definition for row in store.definition_versions(first.id, tenant="default")] == [first]

    def test_changing_a_returned_definition_changes_nothing_stored(self, store: Store) -> None:
        settings = {"tags": ["a"]}
        stored = define(store, settings=settings)
        settings["tags"].append("b")
        stored.settings["tags"].append("c")  # type: ignore[attr-defined]
        assert definition_of(store, stored.id).settings == {"tags": ["a"]}

    def test_one_of_two_concurrent_writes_of_a_new_key_wins(self, store: Store) -> None:
        for n in range(10):
            both = [a_definition(f"key-{n}"), a_definition(f"key-{n}")]
            wrote = together([partial(patiently, store.put_definition, one, now=T0) for one in both])
            assert [row is None for row in wrote].count(True) == 1
            assert len(store.definitions(tenant="default", keys=[f"key-{n}"], deleted=True)) == 1

    def test_one_of_two_concurrent_changes_to_a_free_key_wins(self, store: Store) -> None:
        for n in range(10):
            both = [replace(define(store, f"{side}-{n}"), key=f"free-{n}") for side in "ab"]
            wrote = together([partial(patiently, store.put_definition, one, now=T0) for one in both])
            assert [row is None for row in wrote].count(True) == 1
            assert len(store.definitions(tenant="default", keys=[f"free-{n}"])) == 1

    def test_one_of_two_concurrent_writes_of_a_version_wins(self, store: Store) -> None:
        stored = define(store)
        for n in range(10):
            both = [replace(stored, name=f"{n}-{side}") for side in "ab"]
            wrote = together([partial(patiently, store.put_definition, one, now=T0) for one in both])
            (stored,) = [row for row in wrote if row is not None]
            assert stored.version == n + 2
            assert definition_of(store, stored.id) == stored
        assert len(store.definition_versions(stored.id, tenant="default")) == 11


class DefinitionSwitchLaws:
    """Enabling, disabling and deleting definitions."""

    def test_enabling_returns_only_changed_definitions(self, store: Store) -> None:
        on, off, foreign = define(store, "on"), define(store, "off", enabled=False), define(store, tenant="x")
        ids = [on.id, off.id, foreign.id, UNKNOWN]
        assert store.enable_definitions(ids, tenant="default", enabled=False, now=at(1)) == {on.id}
        assert definition_of(store, on.id) == replace(on, enabled=False, updated_at=at(1))
        assert [definition_of(store, row.id) for row in (off, foreign)] == [off, foreign]
        assert store.enable_definitions(ids, tenant="default", enabled=True, now=at(2)) == {on.id, off.id}
        assert definition_of(store, off.id) == replace(off, enabled=True, updated_at=at(2))
        changed = store.enable_definitions(ids, tenant=ALL_TENANTS, enabled=False, now=at(3))
        assert changed == {on.id, off.id, foreign.id}
        assert store.enable_definitions([], tenant=ALL_TENANTS, enabled=True) == frozenset()

    def test_enabling_creates_no_version(self, store: Store) -> None:
        stored = define(store)
        store.enable_definitions([stored.id], tenant="default", enabled=False, now=at(1))
        assert definition_of(store, stored.id).version == 1
        assert len(store.definition_versions(stored.id, tenant="default")) == 1

    def test_enabling_a_definition_restarts_its_schedules(self, store: Store) -> None:
        ours, same = define(store, "ours"), define(store, "same", enabled=False)
        mine = plan_one(store, "mine", definition_id=ours.id, next_fire_at=at(9))
        idle = plan_one(store, "idle", definition_id=same.id)
        free = plan_one(store, "free")
        ids = [ours.id, same.id]
        store.enable_definitions(ids, tenant="default", enabled=False, now=at(1))
        disabled = replace(mine, revision=2, updated_at=at(1), since_at=at(1), next_fire_at=None)
        assert schedule_of(store, mine.id) == disabled
        assert [schedule_of(store, row.id) for row in (idle, free)] == [idle, free]
        store.enable_definitions([ours.id], tenant="default", enabled=True, now=at(2))
        enabled = replace(mine, revision=3, updated_at=at(2), since_at=at(2), next_fire_at=at(2))
        assert schedule_of(store, mine.id) == enabled

    def test_a_deleted_definition_is_marked_and_its_schedules_are_removed(self, store: Store) -> None:
        gone, stays = define(store, "gone"), define(store, "stays")
        plan_one(store, "one", definition_id=gone.id)
        plan_one(store, "two", definition_id=gone.id)
        kept = [plan_one(store, "kept", definition_id=stays.id), plan_one(store, "own")]
        ids = [gone.id, UNKNOWN]
        assert store.drop_definitions(ids, tenant="default", now=at(1)) == {gone.id}
        assert store.drop_definitions(ids, tenant="default", now=at(2)) == frozenset()
        deleted = replace(gone, updated_at=at(1), deleted_at=at(1))
        assert store.definitions(tenant="default") == [stays]
        assert store.definitions(tenant="default", deleted=True) == [deleted, stays]
        assert store.schedules(tenant=ALL_TENANTS) == kept
        assert store.drop_definitions([], tenant=ALL_TENANTS) == frozenset()

    def test_only_the_own_tenant_deletes_a_definition(self, store: Store) -> None:
        stored = define(store)
        schedule = plan_one(store, definition_id=stored.id)
        assert store.drop_definitions([stored.id], tenant="other", now=at(1)) == frozenset()
        assert definition_of(store, stored.id) == stored
        assert schedule_of(store, schedule.id) == schedule
        assert store.drop_definitions([stored.id], tenant=ALL_TENANTS, now=at(1)) == {stored.id}

    def test_a_deleted_definition_cannot_be_written_or_enabled(self, store: Store) -> None:
        stored = define(store, enabled=False)
        store.drop_definitions([stored.id], tenant="default", now=at(1))
        assert store.put_definition(stored, now=at(2)) is None
        assert store.put_definition(replace(stored, version=0), now=at(2)) is None
        assert store.enable_definitions([stored.id], tenant="default", enabled=True, now=at(2)) == frozenset()

    def test_the_key_of_a_deleted_definition_is_free_again(self, store: Store) -> None:
        gone = []
        for n in range(3):
            stored = define(store, now=at(n))
            store.drop_definitions([stored.id], tenant="default", now=at(n))
            gone.append(definition_of(store, stored.id))
        living = define(store, now=at(9))
        assert store.definitions(tenant="default") == [living]
        assert store.definitions(tenant="default", deleted=True) == [living, *reversed(gone)]

    def test_no_schedule_outlives_its_deleted_definition(self, store: Store) -> None:
        for n in range(10):
            stored = define(store, f"key-{n}")
            schedule = a_schedule(f"schedule-{n}", definition_id=stored.id)
            together(
                [
                    partial(patiently, store.put_schedules, [schedule], now=T0),
                    partial(patiently, store.drop_definitions, [stored.id], tenant="default", now=at(1)),
                ]
            )
            assert store.schedules(tenant=ALL_TENANTS) == []
