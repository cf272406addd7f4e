"""Laws of placements: written once for each epoch, and never back to an older one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemill.domain.tenant_placement import PlacementState, TenantPlacement
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at, together


class PlacementLaws:
    """The shards of tenants."""

    def test_a_tenant_without_a_placement_is_not_returned(self, store: Store) -> None:
        assert store.placed() == [] == store.placed(["acme"])

    def test_a_placement_is_inserted_with_the_first_epoch(self, store: Store) -> None:
        (row,) = store.place([TenantPlacement("acme", "eu", epoch=7)], now=T0)
        assert row == TenantPlacement("acme", "eu", epoch=1, changed_at=T0)
        assert store.placed(["acme", "blue"]) == [row]

    def test_of_two_callers_the_first_places_a_tenant(self, store: Store) -> None:
        (first,) = store.place([TenantPlacement("acme", "eu")], now=T0)
        rows = store.place([TenantPlacement("blue", "us"), TenantPlacement("acme", "us")], now=at(1))
        assert rows == [first, TenantPlacement("blue", "us", epoch=1, changed_at=at(1))]
        assert store.placed() == rows

    def test_threads_that_place_a_tenant_together_agree(self, store: Store) -> None:
        answers = together(
            [partial(store.place, [TenantPlacement("acme", shard)], now=T0) for shard in "abcd"]
        )
        assert len({row.shard for rows in answers for row in rows}) == 1

    def test_a_placement_changes_only_from_the_epoch_that_was_read(self, store: Store) -> None:
        (row,) = store.place([TenantPlacement("acme", "eu")], now=T0)
        moving = replace(row, state=PlacementState.MOVING, target="us")
        assert store.replace([moving], now=at(1)) == {"acme"}
        assert store.replace([replace(row, shard="us")], now=at(2)) == frozenset()
        assert store.placed() == [replace(moving, epoch=2, changed_at=at(1))]

    def test_every_field_of_a_placement_is_stored(self, store: Store) -> None:
        store.place([TenantPlacement("ünï “x” 🦊", "eu")], now=T0)
        full = TenantPlacement("ünï “x” 🦊", "us", PlacementState.DRAINING, "eu", ("eu", "old"), 1)
        assert store.replace([full], now=at(1)) == {full.tenant}
        assert store.placed() == [replace(full, epoch=2, changed_at=at(1))]

    def test_an_unknown_tenant_is_not_replaced(self, store: Store) -> None:
        assert store.replace([TenantPlacement("acme", "eu", epoch=1)], now=T0) == frozenset()
        assert store.placed() == []

    def test_a_copy_never_goes_back_to_an_older_epoch(self, store: Store) -> None:
        old = TenantPlacement("acme", "eu", epoch=3, changed_at=T0)
        new = replace(old, shard="us", epoch=4, changed_at=at(1))
        store.copy_placements([old])
        store.copy_placements([new])
        store.copy_placements([old, replace(new, shard="ap")])
        assert store.placed() == [new]

    def test_placements_are_undone_with_their_transaction(self, store: Store) -> None:
        try:
            with store.transaction():
                store.place([TenantPlacement("acme", "eu")], now=T0)
                raise RuntimeError
        except RuntimeError:
            pass
        assert store.placed() == []

    def test_empty_batches_change_nothing(self, store: Store) -> None:
        assert store.place([]) == []
        assert store.replace([]) == frozenset()
        assert store.placed([]) == []
        store.copy_placements([])
