"""Laws of streams: only the holder writes, each item once, and readers get all items in order."""

from __future__ import annotations

import pytest

from tidemill.archive.contents import read_restored
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish
from tidemill.domain.record import Keep
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.states import JobState
from tidemill.domain.streams import START, StreamEntry, StreamPosition
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    FAILED,
    OTHER,
    T0,
    UNHELD,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    held,
    put,
    put_one,
)


def _items(claim: Claim, *values: str, name: str = "tokens", first: int = 1) -> list[StreamEntry]:
    return [
        StreamEntry(claim.id, claim.token, claim.worker, name, n, value)
        for n, value in enumerate(values, start=first)
    ]


def _data(store: Store, claim: Claim, name: str = "tokens", after: StreamPosition = START) -> list[str]:
    return [entry.data for entry in store.stream(claim.id, name, tenant="default", after=after)]


class StreamLaws:
    """Values that a running job writes for live readers."""

    def test_items_are_read_in_order_as_they_were_written(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        odd = '"“🦊” \\u0000\n\t\'; -- %s :id"'
        written = _items(claim, '"a"', odd, "{}")
        assert store.write_streams([]) == store.write_streams(written) == frozenset()
        assert store.stream(claim.id, "tokens", tenant="default") == [
            entry._replace(worker=None) for entry in written
        ]

    def test_items_follow_in_the_order_of_their_indexes(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.write_streams(_items(claim, "3", "4", first=3))
        store.write_streams(list(reversed(_items(claim, "1", "2"))))
        assert _data(store, claim) == ["1", "2", "3", "4"]

    def test_an_item_that_is_written_twice_is_stored_once(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.write_streams(_items(claim, "1", "2"))
        assert store.write_streams([*_items(claim, "1", "2"), *_items(claim, "3", first=3)]) == frozenset()
        assert _data(store, claim) == ["1", "2", "3"]

    def test_a_reader_resumes_after_any_position(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.write_streams(_items(claim, *(str(n) for n in range(1, 8))))
        assert _data(store, claim, after=StreamPosition(1, 4)) == ["5", "6", "7"]
        assert _data(store, claim, after=StreamPosition(1, 7)) == []
        page = store.stream(claim.id, "tokens", tenant="default", limit=3)
        assert [entry.n for entry in page] == [1, 2, 3]
        with pytest.raises(BadFilter):
            store.stream(claim.id, "tokens", tenant="default", limit=1001)

    def test_streams_of_names_and_jobs_do_not_mix(self, store: Store) -> None:
        put(store, a_job(), a_job())
        one, two = claim_all(store)
        store.write_streams([*_items(one, "1"), *_items(two, "2"), *_items(one, "3", name="ödd ':name")])
        assert _data(store, one) == ["1"]
        assert _data(store, two) == ["2"]
        assert _data(store, one, "ödd ':name") == ["3"]
        assert store.stream_names(one.id, tenant="default") == {"tokens": 1, "ödd ':name": 1}

    def test_the_items_of_a_later_execution_follow_those_of_the_earlier_ones(self, store: Store) -> None:
        id = put_one(store)
        first = claim_one(store, id)
        store.write_streams(_items(first, "1", "2"))
        finish_all(store, [first], AGAIN)
        second = claim_one(store, id, now=at(1))
        store.write_streams(_items(second, "3"))
        entries = store.stream(id, "tokens", tenant="default")
        assert [(entry.number, entry.n) for entry in entries] == [(1, 1), (1, 2), (2, 1)]
        assert _data(store, second, after=StreamPosition(1, 2)) == ["3"]

    def test_a_worker_that_lost_its_job_writes_nothing(self, store: Store) -> None:
        id = put_one(store)
        stale = claim_one(store, id)
        finish_all(store, [stale], CRASHED)
        assert store.write_streams(_items(stale, "0")) == {id}
        fresh = claim_one(store, id, now=at(1))
        assert store.write_streams([*_items(stale, "1"), *_items(fresh, "2")]) == {id}
        assert store.write_streams(_items(fresh._replace(worker=OTHER), "3", first=2)) == {id}
        assert _data(store, fresh) == ["2"]

    @pytest.mark.parametrize("state", UNHELD)
    def test_nobody_writes_to_a_job_that_is_not_held(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        claim = held(job) if job.worker is not None else None
        stale = StreamEntry(job.id, job.token, None if claim is None else claim.worker, "tokens", 1, "1")
        assert store.write_streams([stale]) == {job.id}
        assert store.stream(job.id, "tokens", tenant=ALL_TENANTS) == []

    def test_a_stream_of_another_tenant_is_not_read(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, tenant="acme"))
        store.write_streams(_items(claim, "1"))
        for tenant, count in {"acme": 1, ALL_TENANTS: 1, "other": 0}.items():
            assert len(store.stream(claim.id, "tokens", tenant=tenant)) == count
            assert len(store.stream_names(claim.id, tenant=tenant)) == count
        assert store.stream(new_id(), "tokens", tenant=ALL_TENANTS) == []

    def test_a_stream_is_deleted_with_its_job(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.write_streams(_items(claim, "1"))
        finish_all(store, [claim], COMPLETED)
        assert _data(store, claim) == ["1"]
        store.delete([claim.id], tenant="default")
        put(store, a_job(id=claim.id))
        assert _data(store, claim) == []

    def test_a_finish_that_keeps_nothing_deletes_the_streams(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.write_streams(_items(claim, "1"))
        assert store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=at(1)) == frozenset()
        put(store, a_job(id=claim.id))
        assert _data(store, claim) == []

    def test_a_stream_is_archived_and_restored_with_its_job(self, store: Store) -> None:
        id = put_one(store)
        for transition in (AGAIN, FAILED):
            claim = claim_one(store, id)
            store.write_streams([*_items(claim, '"a"', '"b"'), *_items(claim, "1", name="other")])
            finish_all(store, [claim], transition)
        before = store.stream(id, "tokens", tenant="default")
        (document,) = store.archivable(Selection(Selector()), policy="old", tier="archive")
        assert document.sound
        assert store.forget([document]) == {id}
        put_one(store, now=T0)
        assert store.restore([read_restored(document)]) == {id}
        assert store.stream(id, "tokens", tenant="default") == before
        assert store.stream_names(id, tenant="default") == {"other": 2, "tokens": 4}
        assert get_one(store, id).state is JobState.FAILED
