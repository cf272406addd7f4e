"""Laws of release records: one per app, written by compare-and-set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.domain.releases import Deploy, Deployment, ReleaseRecord
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, TICK, at, together

RECORD = ReleaseRecord("shop:app", Deployment(T0 + TICK, "2026.11.17-1"))


def _stored(store: Store) -> ReleaseRecord:
    record = store.release_of(RECORD.app)
    assert record is not None
    return record


class ReleaseLaws:
    """The deployment that wrote an app's schedules."""

    def test_a_new_app_has_no_release_record(self, store: Store) -> None:
        assert store.release_of("shop:app") is None

    def test_every_field_of_a_release_record_is_stored(self, store: Store) -> None:
        assert store.put_release(replace(RECORD, forced_at=at(-5), seen_at=at(-9)), now=T0)
        assert _stored(store) == replace(RECORD, revision=1, forced_at=at(-5), seen_at=T0)
        bare = ReleaseRecord("other “x” 🦊 '; --", Deployment(at(3)))
        assert store.put_release(bare, now=at(4))
        assert store.release_of(bare.app) == replace(bare, revision=1, seen_at=at(4))

    def test_a_release_record_is_written_over_its_revision_only(self, store: Store) -> None:
        store.put_release(RECORD, now=T0)
        first = _stored(store)
        newer = replace(first, deployment=Deployment(at(7)))
        assert store.put_release(newer, now=at(8))
        assert _stored(store) == replace(newer, revision=2, seen_at=at(8))
        assert not store.put_release(first, now=at(9))
        assert not store.put_release(RECORD, now=at(9))
        assert _stored(store) == replace(newer, revision=2, seen_at=at(8))

    def test_a_write_over_a_missing_release_record_is_refused(self, store: Store) -> None:
        assert not store.put_release(replace(RECORD, revision=3), now=T0)
        assert store.release_of(RECORD.app) is None

    def test_one_of_many_concurrent_release_writes_wins(self, store: Store) -> None:
        store.put_release(RECORD, now=T0)
        first = _stored(store)
        assert sum(together([lambda: store.put_release(first, now=at(1))] * 4)) == 1
        assert _stored(store).revision == 2

    def test_a_release_record_is_rolled_back_with_its_transaction(self, store: Store) -> None:
        def work() -> None:
            with store.transaction():
                store.put_release(RECORD, now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert store.release_of(RECORD.app) is None

    def test_a_release_record_is_dated_by_the_stores_clock(self, store: Store) -> None:
        before = store.now()
        store.put_release(RECORD)
        seen_at = _stored(store).seen_at
        assert seen_at is not None
        assert before <= seen_at <= store.now()

    def test_the_first_start_of_each_release_is_recorded(self, store: Store) -> None:
        assert store.deploys() == []
        assert store.note_deploy("shop:app", "1.1", now=at(5))
        assert store.note_deploy("shop:app", "1.0", now=T0)
        assert store.note_deploy("“x” '; --", "1.0", now=at(5))
        assert not store.note_deploy("shop:app", "1.0", now=at(9))
        assert store.deploys() == [
            Deploy("shop:app", "1.1", at(5)),
            Deploy("“x” '; --", "1.0", at(5)),
            Deploy("shop:app", "1.0", T0),
        ]
        assert store.deploys(limit=1) == [Deploy("shop:app", "1.1", at(5))]
