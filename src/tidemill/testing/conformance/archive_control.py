"""Laws of restoring and erasing archived jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Details, JobRow, Move, UniqueHold
from tidemill.domain.retention import ArchivedJob, RestoredJob, Selection, Selector
from tidemill.domain.states import LIVE, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    CRASHED,
    ENDS,
    HOUR,
    OTHER,
    SECOND,
    T0,
    a_job,
    a_line,
    bring,
    claim_one,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    retry,
    snapshot,
)

S = JobState


def restored(store: Store, job: JobRow) -> RestoredJob:
    """Return a job as its archived document describes it."""
    executions = store.executions([job.id], tenant=ALL_TENANTS)
    lines = [entry for _, entry in store.logs(job.id, tenant=ALL_TENANTS)]
    return RestoredJob(job, tuple(executions), tuple(lines))


def archived(store: Store) -> list[ArchivedJob]:
    documents = store.archivable(Selection(Selector()), policy="old", tier="archive")
    store.put_archive(documents, now=T0 + HOUR)
    return documents


class RestoreLaws:
    """A restored job is what it was before it was archived."""

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_a_restored_job_is_unchanged(self, store: Store, state: JobState) -> None:
        about = Details("c-1", new_id(), ("order", "17"), ("red",), {"a": [1, None, "“x” 🦊"]}, {"h": "v"})
        id = put_one(store, tenant="t", queue="q", args='{"a": 1}', details=about, limits=("l",))
        for transition in (CRASHED, ENDS[state]):
            claim = claim_one(store, id, worker=OTHER)
            store.log([a_line(claim, "one", details={"n": 1}, duration=SECOND), a_line(claim, "two")])
            finish_all(store, [claim], transition, result="1", started_ago=0.5)
        before = snapshot(store, id)
        copy = restored(store, get_one(store, id))
        assert store.forget(archived(store)) == {id}
        assert store.restore([copy]) == {id}
        after = snapshot(store, id)
        assert after[:2] == before[:2]
        assert [entry for _, entry in store.logs(id, tenant="t")] == list(copy.logs)
        assert store.count(JobFilter("t")) == {state: 1}

    def test_a_job_that_ended_without_a_worker_is_unchanged(self, store: Store) -> None:
        job = bring(store, S.CANCELLED)
        store.move([retry(job)], now=T0)
        store.move([Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0 + SECOND)
        before = snapshot(store, job.id)
        copy = restored(store, get_one(store, job.id))
        store.forget(archived(store))
        assert store.restore([copy]) == {job.id}
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("state", sorted(LIVE | set(ENDS)))
    def test_a_live_job_is_not_replaced(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        before = snapshot(store, job.id)
        assert (
            store.restore([RestoredJob(replace(job, state=S.FAILED, finished_at=T0, reason="other"))])
            == set()
        )
        assert snapshot(store, job.id) == before

    def test_a_restored_job_can_be_retried(self, store: Store) -> None:
        job = bring(store, S.FAILED)
        copy = restored(store, job)
        store.forget(archived(store))
        store.restore([copy])
        assert store.move([retry(get_one(store, job.id))], now=T0) == {job.id}
        claim = claim_one(store, job.id)
        assert claim.token == job.token + 1
        finish_all(store, [claim])
        assert len(store.executions([job.id], tenant=ALL_TENANTS)) == len(copy.executions) + 1

    def test_a_restored_job_takes_its_unique_key_when_it_is_retried(self, store: Store) -> None:
        id = put_one(store, unique=UniqueHold("k"))
        finish_all(store, [claim_one(store, id)], ENDS[S.FAILED])
        copy = restored(store, get_one(store, id))
        store.forget(archived(store))
        store.restore([copy])
        (other,) = put(store, a_job(unique=UniqueHold("k")))
        assert store.move([retry(get_one(store, id))], now=T0) == frozenset()
        finish_all(store, [claim_one(store, other)])
        assert store.move([retry(get_one(store, id))], now=T0) == {id}

    def test_nothing_is_restored_from_an_empty_batch(self, store: Store) -> None:
        assert store.restore([]) == frozenset()


class EraseLaws:
    """Erased documents are gone, and only those of the tenant."""

    def test_documents_are_erased_by_id_and_tenant(self, store: Store) -> None:
        jobs = [bring(store, S.COMPLETED, tenant=tenant) for tenant in ("a", "b", "a")]
        store.forget(archived(store))
        ids = ids_of(jobs)
        assert store.erase_archived(ids[:2], tenant="a") == {ids[0]}
        assert ids_of(store.archived(ids, tenant=ALL_TENANTS)) == ids[1:]
        assert store.erase_archived(ids, tenant=ALL_TENANTS) == set(ids[1:])
        assert store.erase_archived([], tenant=ALL_TENANTS) == frozenset()

    def test_erasing_frees_the_unique_key_that_the_job_still_holds(self, store: Store) -> None:
        rule = UniqueHold("k", window=1000 * HOUR)
        id = put_one(store, unique=rule)
        finish_all(store, [claim_one(store, id)])
        store.forget(archived(store))
        assert [enqueued.created for enqueued in store.enqueue([a_job(unique=rule)], now=T0)] == [False]
        store.erase_archived([id], tenant=ALL_TENANTS)
        assert [enqueued.created for enqueued in store.enqueue([a_job(unique=rule)], now=T0)] == [True]

    def test_scrubbing_and_months_change_no_job(self, store: Store) -> None:
        job = bring(store, S.COMPLETED)
        (document,) = archived(store)
        before = snapshot(store, job.id)
        store.make_archive_months(now=T0)
        assert store.make_archive_months(now=T0) == 0
        assert store.drop_archive_months("archive", T0 - HOUR) == 0
        store.scrub()
        assert snapshot(store, job.id) == before
        assert ids_of(store.archived([document.id], tenant=ALL_TENANTS)) == [job.id]
