"""Laws of transfers: a job leaves one store and comes to another one without a change, and without a second run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Change, Details, JobRow, Move, NewJob, UniqueHold
from tidemill.domain.schedules import Definition, ScheduleRow
from tidemill.domain.signals import NewSignal
from tidemill.domain.states import JobState
from tidemill.domain.transfers import LimitStart, TransferJob
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    HOUR,
    T0,
    a_job,
    at,
    claim_all,
    claim_one,
    finish_all,
    put,
)
from tidemill.testing.conformance.limited_claims import by_name, claim_within, in_time, use_of

_WHY = "moving from shard eu"


class TransferLaws:
    """Laws 43 and 44: jobs, definitions and counted starts that leave for another store."""

    def test_jobs_that_have_not_begun_go_in_their_order(self, store: Store) -> None:
        later = _job(run_at=T0 + 2 * HOUR)
        soon = _job(run_at=T0 + HOUR)
        first, second = _job(priority=-5), _job(priority=5)
        other = _job(tenant="blue")
        for new in (later, soon, first, second, other):
            store.enqueue([new], now=T0)
        order = [item.job.id for item in store.outgoing("default", limit=10)]
        assert order == [first.id, second.id, soon.id, later.id]
        assert [item.job.id for item in store.outgoing("default", limit=3)] == order[:3]
        assert store.outgoing("default", limit=0) == []

    def test_a_job_that_began_is_needed_or_has_a_signal_stays(self, store: Store) -> None:
        begun, tied, signalled = _job(), _job(tied=True), _job()
        store.enqueue([begun], now=T0)
        held = claim_one(store, begun.id)
        store.enqueue([tied, signalled], now=T0)
        store.post_signals([NewSignal(signalled.id, "default", "go", "1")], now=T0)
        assert held.token == 1
        assert store.outgoing("default", limit=10) == []
        rows = store.get([begun.id, tied.id, signalled.id], tenant="default")
        assert store.withdraw(rows, tenant="default") == frozenset()
        assert store.get([begun.id, tied.id, signalled.id], tenant="default") == rows

    def test_a_job_is_the_same_after_it_left_and_came_back(self, store: Store) -> None:
        details = Details(
            correlation_id="c-1", tags=("a",), metadata={"k": 1}, fire_at=T0, schedule_id=new_id()
        )
        full = _job(
            args='{"n":1}', priority=7, limits=("crm",), details=details, expires_at=T0 + HOUR,
            unique=UniqueHold("once", until_claimed=True, window=HOUR),
        )  # fmt: skip
        late = _job(run_at=T0 + HOUR, unique=UniqueHold("late"))
        store.enqueue([full, late], now=T0)
        before = store.get([full.id, late.id], tenant="default")
        lot = store.outgoing("default", limit=10)
        assert lot == [
            TransferJob(next(row for row in before if row.id == full.id), True, T0 + HOUR),
            TransferJob(next(row for row in before if row.id == late.id)),
        ]
        assert store.withdraw([item.job for item in lot], tenant="default") == {full.id, late.id}
        assert store.get([full.id, late.id], tenant="default") == []
        assert store.receive(lot, reason=_WHY, now=at(1)) == {full.id, late.id}
        copies = store.get([full.id, late.id], tenant="default")
        assert {(row.state, row.reason) for row in copies} == {(JobState.WAITING, _WHY)}
        assert claim_all(store, now=at(2)) == []
        held_by = store.enqueue([_job(unique=UniqueHold("once")), _job(unique=UniqueHold("late"))], now=at(2))
        assert [(answer.id, answer.created) for answer in held_by] == [(full.id, False), (late.id, False)]
        store.move([_release(row) for row in copies], now=at(2))
        assert store.get([full.id, late.id], tenant="default") == before
        assert store.outgoing("default", limit=10) == lot

    def test_a_withdrawn_job_releases_its_key_and_records_no_end(self, store: Store) -> None:
        one = _job(unique=UniqueHold("once", window=HOUR))
        store.enqueue([one], now=T0)
        rows = store.get([one.id], tenant="default")
        assert store.withdraw(rows, tenant="blue") == frozenset()
        assert store.withdraw(rows, tenant="default") == {one.id}
        assert store.withdraw(rows, tenant="default") == frozenset()
        (again,) = store.enqueue([_job(unique=UniqueHold("once"))], now=at(1))
        assert again.created
        assert store.fold_ends() == 0

    def test_a_changed_job_is_not_withdrawn(self, store: Store) -> None:
        one, two, three = _job(), _job(run_at=T0 + HOUR), _job()
        store.enqueue([one, two, three], now=T0)
        rows = store.get([one.id, two.id, three.id], tenant="default")
        store.change([Change(one.id, "default", frozenset({JobState.PENDING}), priority=9)])
        store.move([Move(two.id, "default", frozenset({JobState.SCHEDULED}), JobState.PENDING)], now=at(1))
        assert store.withdraw(rows, tenant="default") == {three.id}

    def test_a_copy_whose_key_is_held_comes_without_it(self, store: Store) -> None:
        one = _job(unique=UniqueHold("once"))
        store.enqueue([one], now=T0)
        lot = store.outgoing("default", limit=10)
        store.withdraw([item.job for item in lot], tenant="default")
        store.enqueue([holder := _job(unique=UniqueHold("once"))], now=T0)
        assert store.receive(lot, reason=_WHY, now=T0) == {one.id}
        (copy,) = store.get([one.id], tenant="default")
        assert copy.unique_key is None
        (answer,) = store.enqueue([_job(unique=UniqueHold("once"))], now=T0)
        assert (answer.id, answer.created) == (holder.id, False)

    def test_a_stored_job_is_not_received_again(self, store: Store) -> None:
        one = _job()
        store.enqueue([one], now=T0)
        lot = store.outgoing("default", limit=10)
        assert store.receive(lot, reason=_WHY, now=T0) == frozenset()
        assert store.count(JobFilter(ALL_TENANTS)) == {JobState.PENDING: 1}

    def test_a_copy_is_deleted_only_with_its_reason(self, store: Store) -> None:
        one = _job(unique=UniqueHold("once"))
        store.enqueue([one], now=T0)
        lot = store.outgoing("default", limit=10)
        store.withdraw([item.job for item in lot], tenant="default")
        store.receive(lot, reason=_WHY, now=T0)
        (copy,) = store.get([one.id], tenant="default")
        assert store.withdraw([copy], tenant="default") == frozenset()
        assert store.withdraw([copy], tenant="default", reason="another") == frozenset()
        assert store.withdraw([copy], tenant="default", reason=_WHY) == {one.id}
        (again,) = store.enqueue([_job(unique=UniqueHold("once"))], now=T0)
        assert again.created

    def test_definitions_are_forgotten_with_their_versions(self, store: Store) -> None:
        one = store.put_definition(Definition(new_id(), "a", "task"), now=T0)
        assert one is not None
        used = store.put_definition(Definition(new_id(), "b", "task"), now=T0)
        assert used is not None
        plan = ScheduleRow(
            new_id(), "nightly", "task", {"type": "every", "seconds": 60}, definition_id=used.id
        )
        assert store.put_schedules([plan], now=T0) == frozenset()
        ids = [one.id, used.id]
        assert store.forget_definitions(ids, tenant="blue") == frozenset()
        assert store.forget_definitions(ids, tenant="default") == {one.id}
        assert store.definition_versions(one.id, tenant="default") == []
        assert store.definitions(tenant="default", deleted=True) == [used]
        assert store.put_definition(replace(one, version=0), now=at(1)) is not None

    def test_starts_of_ended_jobs_leave_with_their_limits(self, store: Store) -> None:
        put(store, _job(limits=("mail", "crm")))
        finish_all(store, claim_within(store), AGAIN, now=at(1))
        finish_all(store, claim_within(store, now=at(10)), now=at(11))
        put(store, _job(limits=("mail",)), _job(), _job(limits=("mail",), tenant="blue"))
        finish_all(store, claim_within(store, now=at(20)), now=at(21))
        put(store, _job(limits=("mail",)))
        claim_within(store, now=at(40))
        assert store.outgoing_starts("default", since=at(-1)) == [
            LimitStart("crm", T0, 1),
            LimitStart("crm", at(10), 1),
            LimitStart("mail", T0, 1),
            LimitStart("mail", at(10), 1),
            LimitStart("mail", at(20), 1),
        ]
        assert store.outgoing_starts("default", since=at(10)) == [LimitStart("mail", at(20), 1)]

    def test_a_rate_counts_the_starts_of_another_store_once(self, store: Store) -> None:
        rule = in_time("mail", 5, HOUR)
        put(store, *[_job(limits=("mail",)) for _ in range(4)])
        starts = [LimitStart("mail", T0, 2), LimitStart("mail", at(1), 1), LimitStart("other", T0, 1)]
        for _ in range(2):
            assert store.receive_starts(starts, by_name(rule), now=at(2)) == {"mail"}
        use = use_of(store, "mail", rule, now=at(2))
        assert (use.begun, use.oldest_at, use.used) == (3, T0, 0)
        assert len(claim_within(store, rule, now=at(3))) == 2
        late = T0 + 2 * HOUR
        assert store.receive_starts(starts, by_name(rule), now=late) == frozenset()

    def test_a_token_bucket_is_as_full_as_in_the_store_that_counted(self, store: Store) -> None:
        rule = in_time("mail", 60, HOUR, burst=3)
        starts = [LimitStart("mail", T0, 2), LimitStart("mail", at(30), 1)]
        for _ in range(2):
            assert store.receive_starts(starts, by_name(rule), now=at(60)) == {"mail"}
        assert use_of(store, "mail", rule, now=at(60)).full_until_at == T0 + timedelta(minutes=3)
        store.receive_starts(starts[:1], by_name(rule), now=at(60))
        assert use_of(store, "mail", rule, now=at(60)).full_until_at == T0 + timedelta(minutes=3)

    def test_empty_transfers_change_nothing(self, store: Store) -> None:
        assert store.outgoing("default", limit=10) == []
        assert store.receive([], reason=_WHY) == frozenset()
        assert store.withdraw([], tenant="default") == frozenset()
        assert store.forget_definitions([], tenant="default") == frozenset()
        assert store.outgoing_starts("default", since=T0) == []
        assert store.receive_starts([], {}) == frozenset()


def _job(**fields: Any) -> NewJob:
    return a_job(**{"tenant": "default", **fields})


def _release(row: JobRow) -> Move:
    delay = row.run_at - at(2)
    state = JobState.SCHEDULED if delay > timedelta(0) else JobState.PENDING
    return Move(row.id, row.tenant, frozenset({JobState.WAITING}), state, delay=delay)
