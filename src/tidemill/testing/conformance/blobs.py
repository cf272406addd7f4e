"""Laws of blobs."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.large_values import BlobKey
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    FAILED,
    HOUR,
    REVIEW,
    T0,
    at,
    bring,
    claim_one,
    due,
    finish_all,
    get_one,
    put_one,
    retry,
)

ALL = timedelta(0)
POLICY = ArchivePolicy("all", max_age=ALL)


def orphans(
    store: Store, *, seconds: float = 10, older_than: timedelta = ALL
) -> list[tuple[BlobKey, str | None]]:
    """Return the keys and places of the orphans."""
    return [(orphan.key, orphan.place) for orphan in store.orphan_blobs(older_than, 100, now=at(seconds))]


class BlobLaws:
    """A blob belongs to one job, and lives as long as something refers to it."""

    def test_a_blob_is_read_in_the_parts_in_which_it_was_written(self, store: Store) -> None:
        key = BlobKey(new_id(), 0)
        store.put_blob(key, (part for part in ["a", "ö\u2028", "", "d"]), now=T0)
        assert store.blob_parts(key, limit=100) == ["a", "ö\u2028", "", "d"]
        assert store.blob_parts(key, first=1, limit=2) == ["ö\u2028", ""]
        assert store.blob_parts(key, first=4) == []

    def test_an_unknown_blob_has_no_parts(self, store: Store) -> None:
        assert store.blob_parts(BlobKey(new_id(), 0)) == []

    def test_writing_a_blob_again_replaces_all_its_parts(self, store: Store) -> None:
        key, other = BlobKey(new_id(), 1), BlobKey(new_id(), 1)
        store.put_blob(key, ["a", "b", "c"], now=T0)
        store.put_blob(other, ["x"], now=T0)
        store.put_blob(key, ["d"], now=T0)
        assert store.blob_parts(key, limit=100) == ["d"]
        assert store.blob_parts(other) == ["x"]

    def test_a_failed_write_leaves_nothing(self, store: Store) -> None:
        key = BlobKey(new_id(), 1)

        def parts() -> object:
            yield "a"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.put_blob(key, parts(), now=T0)  # type: ignore[arg-type]
        assert store.blob_parts(key) == []

    def test_a_blob_commits_with_the_job_that_refers_to_it(self, store: Store) -> None:
        key = BlobKey(new_id(), 0)
        with suppress(ZeroDivisionError), store.transaction():
            put_one(store, id=key.job_id)
            store.put_blob(key, ["a"], now=T0)
            raise ZeroDivisionError
        assert store.blob_parts(key) == []

    def test_deleting_a_job_deletes_its_blobs(self, store: Store) -> None:
        job, other = bring(store, JobState.FAILED), bring(store, JobState.FAILED)
        for id in (job.id, other.id):
            store.put_blob(BlobKey(id, 0), ["a"], now=T0)
            store.put_blob(BlobKey(id, 1), ["r"], now=T0)
        store.delete([job.id], tenant=ALL_TENANTS)
        assert store.blob_parts(BlobKey(job.id, 0)) == store.blob_parts(BlobKey(job.id, 1)) == []
        assert store.blob_parts(BlobKey(other.id, 0)) == ["a"]

    def test_the_place_of_an_object_outlives_its_job_until_the_sweep(self, store: Store) -> None:
        job = bring(store, JobState.FAILED)
        key = BlobKey(job.id, 0)
        store.put_blob(key, (), place="file:///x", now=T0)
        assert store.blob_parts(key) == []
        assert orphans(store) == []
        store.delete([job.id], tenant=ALL_TENANTS)
        assert orphans(store) == [(key, "file:///x")]
        store.delete_blobs([key])
        assert orphans(store) == []

    @pytest.mark.parametrize("state", sorted(JobState))
    def test_the_arguments_of_a_stored_job_are_no_orphan(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        store.put_blob(BlobKey(job.id, 0), ["a"], now=T0)
        assert orphans(store) == []

    def test_a_blob_without_a_job_is_an_orphan_once_it_is_old(self, store: Store) -> None:
        old, new = BlobKey(new_id(), 0), BlobKey(new_id(), 3)
        store.put_blob(new, ["b"], now=at(5))
        store.put_blob(old, ["a", "b"], now=T0)
        assert orphans(store, seconds=4, older_than=5 * timedelta(seconds=1)) == []
        assert orphans(store, seconds=5, older_than=5 * timedelta(seconds=1)) == [(old, None)]
        assert orphans(store) == [(old, None), (new, None)]
        assert len(store.orphan_blobs(ALL, 1, now=at(10))) == 1
        store.delete_blobs([old, new])
        assert orphans(store) == []
        assert store.blob_parts(old) == []

    def test_only_the_result_of_the_last_execution_is_needed(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.put_blob(BlobKey(claim.id, 1), ["r1"], now=T0)
        assert orphans(store) == []
        finish_all(store, [claim], AGAIN)
        again = claim_one(store, claim.id)
        assert orphans(store) == [(BlobKey(claim.id, 1), None)]
        store.put_blob(BlobKey(claim.id, 2), ["r2"], now=T0)
        finish_all(store, [again], COMPLETED)
        assert orphans(store) == [(BlobKey(claim.id, 1), None)]

    def test_the_output_of_a_review_is_needed_until_the_job_runs_again(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.put_blob(BlobKey(claim.id, 1), ["draft"], now=T0)
        finish_all(store, [claim], REVIEW)
        assert orphans(store) == []

    def test_the_result_of_a_retried_job_becomes_an_orphan(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.put_blob(BlobKey(claim.id, 1), ["r"], now=T0)
        finish_all(store, [claim], FAILED)
        assert orphans(store) == []
        store.move([retry(get_one(store, claim.id))], now=T0)
        claim_one(store, claim.id)
        assert orphans(store) == [(BlobKey(claim.id, 1), None)]

    def test_the_blobs_of_an_archived_job_stay_until_its_document_is_purged(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        key = BlobKey(claim.id, 1)
        store.put_blob(key, ["r"], now=T0)
        store.finish([Finish(claim, COMPLETED, "blob:{}")], now=T0)
        documents = due(store, POLICY, at(1))
        store.put_archive(documents, now=at(1))
        assert store.forget(documents) == {claim.id}
        assert store.blob_parts(key) == ["r"]
        assert orphans(store) == []
        assert store.remove_archived(documents) == {claim.id}
        assert orphans(store) == []
        store.release_blobs([claim.id])
        assert orphans(store) == [(key, None)]

    def test_a_purge_does_not_orphan_the_blobs_of_a_job_that_is_stored(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        key = BlobKey(claim.id, 1)
        store.put_blob(key, ["r"], now=T0)
        store.finish([Finish(claim, COMPLETED, "blob:{}")], now=T0)
        store.release_blobs([claim.id])
        assert orphans(store) == []

    def test_dropping_the_blobs_of_deleted_documents_leaves_their_objects_to_the_sweep(
        self, store: Store
    ) -> None:
        claim = claim_one(store, put_one(store))
        outside, inside = BlobKey(claim.id, 0), BlobKey(claim.id, 1)
        store.put_blob(outside, (), place="s3://bucket", now=T0)
        store.put_blob(inside, ["r"], now=T0)
        store.finish([Finish(claim, COMPLETED, "blob:{}")], now=T0)
        store.forget(due(store, POLICY, at(1)))
        assert orphans(store) == []
        store.drop_blobs([claim.id])
        assert store.blob_parts(inside) == []
        assert orphans(store) == [(outside, "s3://bucket")]
        store.drop_blobs([])

    def test_the_oldest_orphans_come_first(self, store: Store) -> None:
        keys = [BlobKey(new_id(), 1) for _ in range(3)]
        for seconds, key in zip((2, 0, 1), keys, strict=True):
            store.put_blob(key, ["x"], now=at(seconds))
        assert [key for key, _ in orphans(store)] == [keys[1], keys[2], keys[0]]
        assert orphans(store, older_than=HOUR) == []
