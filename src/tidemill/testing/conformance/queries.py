"""Laws of queries: tenants, filters, pages and counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Details, NewJob
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    HOUR,
    T0,
    UNHELD,
    a_job,
    a_line,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    ids_of,
    put,
    put_one,
)

S = JobState
PARENT = UUID("0197a000-0000-7000-8000-0000000000aa")

DEFINITION = UUID("0197a000-0000-7000-8000-0000000000bb")
SCHEDULE = UUID("0197a000-0000-7000-8000-0000000000cc")

RICH = Details(
    correlation_id="c-1",
    parent_id=PARENT,
    definition_id=DEFINITION,
    definition_version=3,
    schedule_id=SCHEDULE,
    fire_at=T0 + timedelta(microseconds=1),
    reference=("order", "17"),
    tags=("red", "big"),
    metadata={"customer": "acme", "region": "eu", "size": 3},
)


def _found(store: Store, where: JobFilter) -> list[UUID]:
    return ids_of(store.jobs(where, sort=Sort.OLDEST).items)


def _walk(
    store: Store, where: JobFilter, sort: Sort, limit: int, between: Callable[[], object] = lambda: None
) -> list[list[UUID]]:
    """Return all pages of a listing; ``between`` is called between two of them."""
    pages: list[list[UUID]] = []
    after: str | None = None
    while True:
        page = store.jobs(where, sort=sort, limit=limit, after=after)
        pages.append(ids_of(page.items))
        if page.next is None:
            return pages
        assert len(pages) < 1000
        after = page.next
        between()


class GetLaws:
    """Jobs by id."""

    def test_get_returns_jobs_ordered_by_id(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(20)])
        assert ids_of(store.get(list(reversed(ids)), tenant="default")) == ids

    def test_unknown_ids_are_left_out(self, store: Store) -> None:
        id = put_one(store)
        assert ids_of(store.get([new_id(), id, new_id()], tenant="default")) == [id]
        assert store.get([new_id()], tenant="default") == []

    @pytest.mark.parametrize("state", list(JobState))
    def test_a_job_is_found_once_in_every_state(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert ids_of(store.get([job.id], tenant="default")) == [job.id]
        assert _found(store, JobFilter("default")) == [job.id]
        assert store.count(JobFilter("default")) == {state: 1}

    def test_get_accepts_a_thousand_ids(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(1000)])
        assert ids_of(store.get(ids, tenant="default")) == ids


class TenantLaws:
    """Every query is restricted to a tenant."""

    @pytest.mark.parametrize("state", list(JobState))
    def test_a_tenant_sees_only_its_own_jobs(self, store: Store, state: JobState) -> None:
        a, b = bring(store, state, tenant="a"), bring(store, state, tenant="b")
        both = [a.id, b.id]
        assert ids_of(store.get(both, tenant="a")) == [a.id]
        assert ids_of(store.get(both, tenant=ALL_TENANTS)) == both
        assert store.get(both, tenant="c") == []
        assert _found(store, JobFilter("b")) == [b.id]
        assert _found(store, JobFilter("b", ids=frozenset(both))) == [b.id]
        assert _found(store, JobFilter(ALL_TENANTS)) == both
        assert _found(store, JobFilter("c")) == []
        assert store.count(JobFilter("a")) == {state: 1}
        assert store.count(JobFilter(ALL_TENANTS)) == {state: 2}
        assert store.count(JobFilter("c")) == {}

    @pytest.mark.parametrize("state", [S.RUNNING, S.WAITING, S.COMPLETED, S.PENDING])
    def test_a_tenant_sees_only_its_own_executions(self, store: Store, state: JobState) -> None:
        a, b = bring(store, state, tenant="a"), bring(store, state, tenant="b")
        if state is S.PENDING:
            for job in (a, b):
                finish_all(store, [claim_one(store, job.id, queues=[job.queue])], AGAIN)
        assert [x.job_id for x in store.executions([a.id, b.id], tenant="a")] == [a.id]
        assert [x.job_id for x in store.executions([a.id, b.id], tenant=ALL_TENANTS)] == [a.id, b.id]
        assert store.executions([a.id, b.id], tenant="c") == []

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_tenant_sees_only_its_own_logs(self, store: Store, ended: bool) -> None:
        claim = claim_one(store, put_one(store, tenant="a"))
        store.log([a_line(claim, "secret")])
        if ended:
            finish_all(store, [claim])
        assert store.logs(claim.id, tenant="b") == []
        assert len(store.logs(claim.id, tenant="a")) == len(store.logs(claim.id, tenant=ALL_TENANTS)) == 1

    def test_tenant_names_are_compared_exactly(self, store: Store) -> None:
        names = ["a", "A", "a ", "a%", "a_", "ä", "'a'"]
        ids = {name: put_one(store, tenant=name) for name in names}
        for name in names:
            assert _found(store, JobFilter(name)) == [ids[name]]


class FilterLaws:
    """Every given condition must hold."""

    def test_jobs_can_be_filtered_by_state(self, store: Store) -> None:
        by_state = {state: bring(store, state).id for state in JobState}
        for state, id in by_state.items():
            assert _found(store, JobFilter("default", states=frozenset({state}))) == [id]
            assert store.count(JobFilter("default", states=frozenset({state}))) == {state: 1}
        for states in (ENDED, LIVE, frozenset({S.PENDING, S.COMPLETED})):
            assert _found(store, JobFilter("default", states=states)) == sorted(by_state[s] for s in states)
            assert store.count(JobFilter("default", states=states)) == dict.fromkeys(states, 1)

    @pytest.mark.parametrize("state", list(JobState))
    def test_each_condition_finds_the_job_in_every_state(self, store: Store, state: JobState) -> None:
        plain = bring(store, state, queue="other", now=at(-HOUR.total_seconds()))
        rich = bring(store, state, queue="mail", details=RICH)
        everything = JobFilter("default")
        conditions: list[dict[str, Any]] = [
            {"queues": frozenset({"mail", "none"})},
            {"ids": frozenset({rich.id, new_id()})},
            {"correlation_id": "c-1"},
            {"parent_id": PARENT},
            {"parent_ids": frozenset({PARENT, new_id()})},
            {"definition_id": DEFINITION},
            {"definition_id": DEFINITION, "definition_version": 3},
            {"schedule_id": SCHEDULE},
            {"schedule_id": SCHEDULE, "fire_at": T0 + timedelta(microseconds=1)},
            {"reference": ("order", "17")},
            {"tag": "red"},
            {"tag": "big"},
            {"metadata": {"customer": "acme"}},
            {"metadata": {"customer": "acme", "region": "eu"}},
            {"created_after": at(-60)},
        ]
        both = everything
        for condition in conditions:
            where = replace(everything, **condition)
            assert _found(store, where) == [rich.id], condition
            assert store.count(where) == {state: 1}, condition
            both = replace(both, **condition)
            assert _found(store, both) == [rich.id], both
            assert store.count(both) == {state: 1}, both
        assert _found(store, replace(everything, created_before=at(-60))) == [plain.id]
        assert _found(store, replace(everything, queues=frozenset({"other"}))) == [plain.id]

    def test_an_unmet_condition_finds_nothing(self, store: Store) -> None:
        put_one(store, queue="mail", details=RICH)
        nothing = [
            JobFilter("default", states=frozenset({S.RUNNING})),
            JobFilter("default", tasks=frozenset({"none"})),
            JobFilter("default", queues=frozenset({"none"})),
            JobFilter("default", ids=frozenset({new_id()})),
            JobFilter("default", correlation_id="c-2"),
            JobFilter("default", parent_id=new_id()),
            JobFilter("default", parent_ids=frozenset({new_id()})),
            JobFilter("default", definition_id=new_id()),
            JobFilter("default", definition_id=DEFINITION, definition_version=2),
            JobFilter("default", schedule_id=new_id()),
            JobFilter("default", schedule_id=SCHEDULE, fire_at=T0),
            JobFilter("default", reference=("order", "18")),
            JobFilter("default", reference=("invoice", "17")),
            JobFilter("default", tag="re"),
            JobFilter("default", tag="%"),
            JobFilter("default", metadata={"customer": "acm"}),
            JobFilter("default", metadata={"customer": "acme", "region": "us"}),
            JobFilter("default", metadata={"none": "acme"}),
            JobFilter("default", created_after=at(1)),
            JobFilter("default", created_before=at(-1)),
            JobFilter("default", tag="red", queues=frozenset({"none"})),
        ]
        for where in nothing:
            assert _found(store, where) == [], where
            assert store.count(where) == {}, where

    def test_jobs_can_be_filtered_by_task(self, store: Store) -> None:
        a, b, _ = put(store, a_job("a"), a_job("b"), a_job("c"))
        assert _found(store, JobFilter("default", tasks=frozenset({"a", "b", "z"}))) == [a, b]

    def test_jobs_can_be_filtered_by_creation_time(self, store: Store) -> None:
        ids = [put_one(store, now=at(n * 10)) for n in range(5)]
        where = JobFilter("default", created_after=at(5), created_before=at(35))
        assert _found(store, where) == ids[1:4]
        assert store.count(where) == {S.PENDING: 3}

    def test_odd_filter_values_are_compared_literally(self, store: Store) -> None:
        odd = ["%s", ":now", "'; drop table ready; --", '"', "\\", "🦊", "a.b", "$.x", "{}", "*"]
        jobs: list[NewJob] = [
            a_job(
                details=Details(odd_value, None, (odd_value, odd_value), (odd_value,), {odd_value: odd_value})
            )
            for odd_value in odd
        ]
        put(store, *jobs)
        for value, job in zip(odd, jobs, strict=True):
            assert _found(store, JobFilter("default", correlation_id=value)) == [job.id]
            assert _found(store, JobFilter("default", reference=(value, value))) == [job.id]
            assert _found(store, JobFilter("default", tag=value)) == [job.id]
            assert _found(store, JobFilter("default", metadata={value: value})) == [job.id]

    def test_counts_add_up_over_all_states(self, store: Store) -> None:
        for n, state in enumerate(JobState, start=1):
            for _ in range(n):
                bring(store, state)
        expected = {state: n for n, state in enumerate(JobState, start=1)}
        assert store.count(JobFilter("default")) == expected


class PageLaws:
    """Pages show each job once, in a stable order."""

    @pytest.mark.parametrize("sort", list(Sort))
    @pytest.mark.parametrize("limit", [1, 3, 9, 10, 100])
    def test_pages_show_everything_once_in_order(self, store: Store, sort: Sort, limit: int) -> None:
        ids = [bring(store, state).id for state in UNHELD]
        pages = _walk(store, JobFilter("default"), sort, limit)
        assert [id for page in pages for id in page] == (ids if sort is Sort.OLDEST else ids[::-1])
        assert all(len(page) == limit for page in pages[:-1])

    def test_jobs_are_listed_newest_first_by_default(self, store: Store) -> None:
        ids = put(store, a_job(), a_job())
        assert ids_of(store.jobs(JobFilter("default")).items) == ids[::-1]

    @pytest.mark.parametrize("sort", list(Sort))
    def test_the_last_page_has_no_cursor(self, store: Store, sort: Sort) -> None:
        put(store, *[a_job() for _ in range(4)])
        first = store.jobs(JobFilter("default"), sort=sort, limit=2)
        assert first.next is not None
        assert store.jobs(JobFilter("default"), sort=sort, limit=2, after=first.next).next is None
        assert store.jobs(JobFilter("none"), sort=sort).next is None

    @pytest.mark.parametrize("sort", list(Sort))
    def test_pages_are_stable_while_jobs_change(self, store: Store, sort: Sort) -> None:
        ids = put(store, *[a_job() for _ in range(30)])
        added: list[UUID] = []

        def change_jobs() -> None:
            if len(added) < 5:
                added.append(put_one(store))
                (claim,) = claim_all(store, limit=1)
                finish_all(store, [claim])

        seen = [id for page in _walk(store, JobFilter("default"), sort, 4, change_jobs) for id in page]
        assert len(seen) == len(set(seen))
        assert [id for id in seen if id in set(ids)] == (ids if sort is Sort.OLDEST else ids[::-1])
        assert seen == sorted(seen, reverse=sort is Sort.NEWEST)

    @pytest.mark.parametrize("sort", list(Sort))
    def test_a_filter_applies_to_every_page(self, store: Store, sort: Sort) -> None:
        put(store, *[a_job(f"task-{n % 3}", details=Details(tags=(f"t{n % 2}",))) for n in range(60)])
        where = JobFilter("default", tasks=frozenset({"task-1"}), tag="t0")
        pages = _walk(store, where, sort, 3)
        assert [len(page) for page in pages] == [3, 3, 3, 1]

    def test_an_invalid_cursor_is_refused(self, store: Store) -> None:
        put_one(store)
        for cursor in ("", "x", "../../etc", "MW4", "' or 1=1", "é"):
            with pytest.raises(BadFilter):
                store.jobs(JobFilter("default"), after=cursor)

    def test_a_cursor_of_another_order_is_refused(self, store: Store) -> None:
        put(store, a_job(), a_job())
        cursor = store.jobs(JobFilter("default"), sort=Sort.NEWEST, limit=1).next
        with pytest.raises(BadFilter):
            store.jobs(JobFilter("default"), sort=Sort.OLDEST, limit=1, after=cursor)

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    def test_an_invalid_page_size_is_refused(self, store: Store, limit: int) -> None:
        with pytest.raises(BadFilter):
            store.jobs(JobFilter("default"), limit=limit)

    def test_a_listing_shows_jobs_as_get_does(self, store: Store) -> None:
        ids = [bring(store, state, details=RICH, limits=("l",)).id for state in JobState]
        assert store.jobs(JobFilter("default"), sort=Sort.OLDEST).items == store.get(ids, tenant="default")
        assert T0 in {job.created_at for job in store.get(ids, tenant="default")}
