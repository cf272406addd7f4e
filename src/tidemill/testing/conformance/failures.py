"""Laws of recorded failures: groups, parts and series, marks, and what happens to old failures."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.failures import (
    ErrorMark,
    FailureCount,
    FailureGroup,
    FailurePart,
    MarkStatus,
    failure_of,
)
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import ErrorInfo, Finish, Move, Transition
from tidemill.domain.record import Keep
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.domain.stats import FAILURES
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    BOOM,
    ENDS,
    HOUR,
    T0,
    WORKER,
    asks,
    at,
    bring,
    claim_one,
    finish_all,
    get_one,
    ordered_lanes,
    put_one,
    retry,
)

S = JobState
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def raised(message: str, *, file: str = "/srv/shop/pay.py", name: str = "charge") -> ErrorInfo:
    """Return an error that was raised in this function."""
    return ErrorInfo("ValueError", message, f'  File "{file}", line 7, in {name}\nValueError: {message}')


OTHER_PLACE = raised("boom", name="refund")


def fail(
    store: Store,
    error: ErrorInfo | None = BOOM,
    *,
    state: JobState = S.FAILED,
    now: datetime = T0,
    keep: Keep = Keep.ALL,
    **fields: Any,
) -> UUID:
    """Run a job that fails then."""
    id = put_one(store, now=now, **fields)
    finish_all(store, [claim_one(store, id, now=now)], ENDS[state], now=now, error=error, keep=keep)
    return id


def group_of(error: ErrorInfo | None, task: str = "work", state: JobState = S.FAILED) -> str:
    """Return the fingerprint of a failure."""
    return failure_of(task, state, error, ENDS[state].reason).fingerprint


def groups(store: Store, **how: Any) -> list[FailureGroup]:
    """Return the groups of the last hour."""
    how.setdefault("tenant", ALL_TENANTS)
    how.setdefault("now", at(60))
    return store.failure_groups(how.pop("window", HOUR), **how)


def sizes(store: Store, **how: Any) -> dict[str, int]:
    """Return the number of failures by group."""
    return {group.fingerprint: group.jobs for group in groups(store, **how)}


class FailureGroupLaws:
    """Failures by group."""

    def test_failures_with_one_cause_are_one_group(self, store: Store) -> None:
        fail(store, raised("order 1 is unpaid"), tenant="a", task="pay", now=at(-9))
        last = fail(store, raised("order 2 is unpaid"), tenant="b", task="bill", now=at(1))
        fail(store, OTHER_PLACE)
        assert groups(store) == [
            FailureGroup(
                group_of(raised("x")), 2, 2, 2, at(-9), at(1),
                "bill", "ValueError", "shop/pay.py in charge", "order # is unpaid", last,
            ),
            FailureGroup(
                group_of(OTHER_PLACE), 1, 1, 1, T0, T0,
                "work", "ValueError", "shop/pay.py in refund", "boom", groups(store)[1].example,
            ),
        ]  # fmt: skip

    def test_only_ends_as_failures_are_recorded(self, store: Store) -> None:
        for state in sorted(ENDED):
            fail(store, state=state)
        again = put_one(store)
        finish_all(store, [claim_one(store, again)], AGAIN, error=BOOM)
        assert sum(sizes(store).values()) == len(FAILURES)

    def test_a_failure_without_a_frame_belongs_to_its_task(self, store: Store) -> None:
        fail(store, None, state=S.TIMED_OUT, task="a")
        fail(store, None, state=S.TIMED_OUT, task="b")
        fail(store, None, state=S.TIMED_OUT, task="b")
        assert [(group.jobs, group.task, group.type, group.place) for group in groups(store)] == [
            (2, "b", None, None),
            (1, "a", None, None),
        ]
        assert groups(store)[0].message == "exceeded timeout of # seconds"

    def test_failures_are_recorded_by_a_step_and_without_a_row(self, store: Store) -> None:
        ids = [put_one(store), put_one(store)]
        lanes = ordered_lanes(store)
        first = store.claim(asks(store, WORKER, lanes, 2), now=T0)
        done = [Finish(claim, ENDS[S.FAILED], error=BOOM, ended_ago=2.0) for claim in first]
        step = store.step(done, asks(store, WORKER, lanes, 2), now=at(2))
        assert (step.lost, sorted(claim.id for claim in first)) == (frozenset(), sorted(ids))
        (group,) = groups(store)
        assert (group.jobs, group.last_at) == (2, T0)
        fail(store, keep=Keep.NOTHING)
        assert sizes(store) == {group.fingerprint: 3}

    def test_failures_beside_successes_are_recorded(self, store: Store) -> None:
        for _ in range(3):
            put_one(store)
        claims = store.claim(asks(store, WORKER, ordered_lanes(store), 3), now=T0)
        ends = [ENDS[S.COMPLETED], ENDS[S.FAILED], ENDS[S.CANCELLED]]
        store.finish([Finish(*pair) for pair in zip(claims, ends, strict=True)], now=T0)
        assert sum(sizes(store).values()) == 1

    def test_a_late_cancel_request_does_not_hide_a_failure(self, store: Store) -> None:
        id = put_one(store)
        claim = claim_one(store, id)
        store.request_cancel([id], tenant="default", reason="no longer wanted")
        finish_all(store, [claim], ENDS[S.FAILED], error=BOOM)
        assert get_one(store, id).state is S.FAILED
        assert len(groups(store)) == 1

    def test_a_job_that_lost_its_claim_records_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        stale = claim._replace(token=claim.token + 1)
        assert store.finish([Finish(stale, ENDS[S.FAILED], error=BOOM)], now=T0) == {claim.id}
        assert groups(store) == []

    def test_a_rejected_review_is_no_failure(self, store: Store) -> None:
        job = bring(store, S.REVIEW_NEEDED)
        store.move([Move(job.id, job.tenant, frozenset({S.REVIEW_NEEDED}), S.FAILED, "rejected")], now=T0)
        assert groups(store) == []

    def test_retrying_and_deleting_change_no_count(self, store: Store) -> None:
        first, second = fail(store), fail(store)
        store.move([retry(get_one(store, first))], now=T0)
        store.delete([second], tenant=ALL_TENANTS)
        assert list(sizes(store).values()) == [2]

    def test_groups_respect_window_tenant_task_and_limit(self, store: Store) -> None:
        fail(store, now=at(-4000), tenant="a")
        fail(store, OTHER_PLACE, tenant="a", task="t")
        fail(store, OTHER_PLACE, tenant="b", now=at(1))
        fail(store, None, tenant="b", task="t", now=at(2))
        other, none = group_of(OTHER_PLACE), group_of(None, "t")
        for how, expected in (
            ({}, {other: 2, none: 1}),
            ({"tenant": "a"}, {other: 1}),
            ({"task": "t"}, {other: 1, none: 1}),
            ({"limit": 1}, {other: 2}),
            ({"limit": 0}, {}),
            ({"fingerprint": none}, {none: 1}),
            ({"fingerprint": "x'; --"}, {}),
            ({"window": 2 * HOUR, "tenant": "a"}, {other: 1, group_of(BOOM): 1}),
        ):
            assert sizes(store, **how) == expected

    def test_the_first_failure_is_also_found_before_the_window(self, store: Store) -> None:
        fail(store, now=at(-9000), tenant="b")
        fail(store, now=at(-8000), tenant="a")
        fail(store, tenant="a")
        assert [group.first_at for group in groups(store)] == [at(-9000)]
        assert [group.first_at for group in groups(store, tenant="a")] == [at(-8000)]

    @pytest.mark.parametrize(
        "message", ["", '"', "a\\", '"no"\n\tleft', "nul \x00 and \ud800 alone", "🦊" * 500]
    )
    def test_any_message_is_recorded(self, store: Store, message: str) -> None:
        error = ErrorInfo('a."b"\x00\ud800', message, f'  File "/srv/{message[:9]}.py", line 1, in f')
        fail(store, error)
        (group,) = groups(store)
        failure = failure_of("work", S.FAILED, error, None)
        assert (group.type, group.place, group.message) == (failure.type, failure.place, failure.message)

    def test_failures_are_counted_per_step(self, store: Store) -> None:
        fail(store, now=at(-3601))
        fail(store, now=at(-3600))
        fail(store, now=at(-1))
        fail(store, OTHER_PLACE, tenant="b")
        here, other = group_of(BOOM), group_of(OTHER_PLACE)
        series = store.failure_series(HOUR, 4, tenant=ALL_TENANTS, fingerprints=[here, other, "none"], now=T0)
        assert series == {here: [1, 0, 0, 1], other: [0, 0, 0, 1], "none": [0] * 4}
        assert store.failure_series(HOUR, 2, tenant="b", fingerprints=[here], now=T0) == {here: [0, 0]}
        assert store.failure_series(HOUR, 2, tenant="b", fingerprints=[], now=T0) == {}

    def test_the_parts_of_a_group_are_counted(self, store: Store) -> None:
        fail(store, raised("no stock"), tenant="a", task="t")
        fail(store, raised("order 5 is unpaid"), tenant="b", now=at(1))
        last = fail(store, raised("order 6 is unpaid"), tenant="a", now=at(2))
        fail(store, OTHER_PLACE)
        key = group_of(raised("x"))

        def parts(part: FailurePart, **how: Any) -> list[FailureCount]:
            how.setdefault("tenant", ALL_TENANTS)
            return store.failure_counts(key, part, HOUR, now=at(9), **how)

        variants = parts(FailurePart.VARIANT)
        assert [(row.jobs, row.message) for row in variants] == [(2, "order # is unpaid"), (1, "no stock")]
        assert variants[0][2:] == (at(2), "order # is unpaid", last)
        assert [(row.name, row.jobs) for row in parts(FailurePart.TASK)] == [("work", 2), ("t", 1)]
        assert [(row.name, row.jobs) for row in parts(FailurePart.TENANT)] == [("a", 2), ("b", 1)]
        assert [row.jobs for row in parts(FailurePart.VARIANT, tenant="b")] == [1]
        assert len(parts(FailurePart.VARIANT, limit=1)) == 1
        assert store.failure_counts(key, FailurePart.TASK, MINUTE, tenant="a", now=at(900)) == []

    def test_the_jobs_of_a_group_are_found(self, store: Store) -> None:
        first, second = fail(store), fail(store, tenant="b")
        fail(store, OTHER_PLACE)
        here = JobFilter(ALL_TENANTS, error_group=group_of(BOOM))
        assert {job.id for job in store.jobs(here).items} == {first, second}
        assert store.count(here) == {S.FAILED: 2}
        assert store.count(JobFilter("b", error_group=group_of(BOOM))) == {S.FAILED: 1}
        # A job is in the group of the failure that ended it last.
        store.move([retry(get_one(store, first))], now=at(1))
        assert [job.id for job in store.jobs(here).items] == [second]
        finish_all(store, [claim_one(store, first, now=at(1))], ENDS[S.FAILED], now=at(2), error=OTHER_PLACE)
        assert [job.id for job in store.jobs(here).items] == [second]

    def test_failures_are_rolled_back_with_their_transaction(self, store: Store) -> None:
        def work() -> None:
            with store.transaction():
                fail(store)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert groups(store) == []

    def test_a_failure_is_dated_by_the_stores_clock(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.finish([Finish(claim, Transition(S.FAILED, ExecutionState.FAILED), error=BOOM)])
        (group,) = store.failure_groups(HOUR, tenant=ALL_TENANTS)
        assert group.last_at == get_one(store, claim.id).finished_at


class FailureMergeLaws:
    """Old failures."""

    def test_failures_of_jobs_that_are_gone_are_merged(self, store: Store) -> None:
        times = [at(-7000), at(-6999), at(-6500)]
        gone = [fail(store, raised(f"for {n} “x”"), now=now) for n, now in enumerate(times)]
        stays = fail(store, raised("stays"), now=at(-6000))
        store.delete(gone, tenant=ALL_TENANTS)
        assert store.merge_failures(T0) == 3
        (group,) = groups(store, window=DAY)
        assert (group.jobs, group.first_at, group.last_at) == (4, at(-7000), at(-6000))
        counts = store.failure_counts(group.fingerprint, FailurePart.VARIANT, DAY, tenant=ALL_TENANTS, now=T0)
        assert {(row.jobs, row.message, row.example) for row in counts} == {
            (3, "", None),
            (1, "stays", stays),
        }

    def test_the_last_time_of_merged_failures_stays(self, store: Store) -> None:
        store.delete([fail(store, now=at(-7000)), fail(store, now=at(-6990))], tenant=ALL_TENANTS)
        assert store.merge_failures(T0) == 2
        (group,) = groups(store, window=DAY)
        assert (group.first_at, group.last_at, group.message) == (at(-7000), at(-6990), "")
        assert (group.type, group.example) == ("ValueError", None)

    def test_later_failures_are_not_merged(self, store: Store) -> None:
        store.delete([fail(store)], tenant=ALL_TENANTS)
        assert store.merge_failures(T0) == 0
        assert store.merge_failures(at(1)) == 1
        assert store.merge_failures(at(1)) == 0
        assert list(sizes(store).values()) == [1]

    def test_at_most_the_limit_is_merged(self, store: Store) -> None:
        store.delete([fail(store) for _ in range(3)], tenant=ALL_TENANTS)
        assert [store.merge_failures(at(1), limit=2) for _ in range(3)] == [2, 1, 0]
        assert list(sizes(store).values()) == [3]

    def test_tenants_tasks_and_groups_are_merged_apart(self, store: Store) -> None:
        ids = [
            fail(store, tenant="a"),
            fail(store, tenant="b"),
            fail(store, task="t"),
            fail(store, OTHER_PLACE),
        ]
        store.delete(ids, tenant=ALL_TENANTS)
        before = [group[:6] for group in groups(store)]
        assert store.merge_failures(at(1)) == 4
        assert [group[:6] for group in groups(store)] == before

    def test_the_oldest_failures_are_dropped(self, store: Store) -> None:
        fail(store, now=at(-90))
        fail(store)
        assert store.drop_failures(T0) == 1
        assert store.drop_failures(T0) == 0
        assert list(sizes(store).values()) == [1]


class ErrorMarkLaws:
    """Marks of groups: muted, resolved, open."""

    def test_a_mark_is_stored_and_replaced(self, store: Store) -> None:
        assert store.error_marks(tenant="a") == []
        store.put_error_marks([ErrorMark("a", "f", MarkStatus.MUTED, by="ann")], now=T0)
        assert store.error_marks(tenant="a") == [ErrorMark("a", "f", MarkStatus.MUTED, T0, "ann")]
        store.put_error_marks([ErrorMark("a", "f", MarkStatus.OPEN)], now=at(1))
        assert store.error_marks(tenant="a") == [ErrorMark("a", "f", MarkStatus.OPEN, at(1), None)]

    def test_a_tenant_sees_its_own_marks_and_those_about_all(self, store: Store) -> None:
        marks = [ErrorMark(tenant, "f", MarkStatus.RESOLVED, T0, "x") for tenant in ("*", "a", "b")]
        store.put_error_marks(marks, now=T0)
        store.put_error_marks([], now=T0)
        assert store.error_marks(tenant="a") == marks[:2]
        assert store.error_marks(tenant=ALL_TENANTS) == marks

    def test_marks_are_rolled_back_with_their_transaction(self, store: Store) -> None:
        def work() -> None:
            with store.transaction():
                store.put_error_marks([ErrorMark("a", "f", MarkStatus.MUTED)], now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert store.error_marks(tenant="a") == []
