"""Laws of text search, bounded counts, pages bounded in bytes, and log tails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Details, ErrorInfo
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    FAILED,
    a_job,
    a_line,
    bring,
    claim_all,
    claim_one,
    finish_all,
    ids_of,
    put,
    put_one,
)

MEBIBYTE = 1024 * 1024
ERROR = ErrorInfo("shop.CardExpired", 'card of "Zoë" 50% off_season', 'File "/srv/shop/pay.py", line 7')


def _found(store: Store, text: str, **where: object) -> list[UUID]:
    return ids_of(
        store.jobs(replace(JobFilter("default"), text=text, **where), sort=Sort.OLDEST).items  # type: ignore[arg-type]
    )


class SearchLaws:
    """A text matches the id, the task's name, a tag, the arguments or the error."""

    @pytest.mark.parametrize("state", list(JobState))
    def test_a_text_is_found_in_every_state(self, store: Store, state: JobState) -> None:
        bring(store, state)
        job = bring(store, state, details=Details(tags=("North-East",)), args='{"to":"Ada Lovelace"}')
        for text in ("north-e", "NORTH", "lovelace", '"to":"ada', str(job.id), job.id.hex[-12:].upper()):
            assert _found(store, text) == [job.id], text
        assert _found(store, "babbage") == []

    def test_a_task_is_found_by_part_of_its_name(self, store: Store) -> None:
        first, second = put(store, a_job("shop.Send"), a_job("shop.resend"))
        put_one(store, "other")
        assert _found(store, "SEND") == [first, second]
        assert _found(store, "p.s") == [first]

    @pytest.mark.parametrize(
        "text",
        ["CARDEXPIRED", "shop.card", "Zoë", '"zoë"', "50% off_s", "pay.py", '"/srv/shop/pay.py"'],
    )
    def test_an_error_is_found_by_type_message_and_traceback(self, store: Store, text: str) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store, id)], FAILED, error=ERROR)
        bring(store, JobState.FAILED)
        assert _found(store, text) == [id]

    @pytest.mark.parametrize("text", ["%", "_", "a%c", "a_c", "\\", "'", '"x"', "a\\c", "*", "?", "[a]"])
    def test_a_search_text_has_no_wildcards(self, store: Store, text: str) -> None:
        put_one(store, details=Details(tags=("abc",)))
        id = put_one(store, details=Details(tags=(f"<{text}>",)))
        assert _found(store, text) == [id]

    def test_arguments_are_found_with_and_without_json_escapes(self, store: Store) -> None:
        plain, escaped = put(
            store, a_job(args='{"n":"Grüße"}'), a_job(args='{"n":"Gr\\u00fc\\u00dfe \\"x\\""}')
        )
        assert _found(store, "grüße") == [plain, escaped]
        assert _found(store, '"x"') == [escaped]
        assert _found(store, "GRÜSSE") == []

    def test_arguments_can_be_excluded_from_a_search(self, store: Store) -> None:
        put_one(store, args='{"password":"tops3cret"}')
        tagged = put_one(store, args='{"password":"tops3cret"}', details=Details(tags=("tops3cret",)))
        assert _found(store, "tops3", text_in_args=False) == [tagged]

    def test_fewer_than_eight_digits_match_no_id(self, store: Store) -> None:
        id = put_one(store)
        assert _found(store, id.hex[-8:]) == [id]
        assert _found(store, id.hex[-7:]) == []

    def test_an_id_suffix_of_any_length_finds_a_job(self, store: Store) -> None:
        first, second = put(store, a_job(), a_job())
        for digits in (6, 12, 32):
            where = JobFilter("default", id_suffix=first.hex[-digits:])
            assert ids_of(store.jobs(where).items) == [first], digits
        assert store.jobs(JobFilter("default", id_suffix=second.hex[:12])).items == []
        assert store.jobs(JobFilter("other", id_suffix=first.hex[-12:])).items == []

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('"42"', "42"),
            ("42", "42"),
            ("1.50", "1.50"),
            ("true", "true"),
            ("null", "null"),
            ('"a\\"é\\u00e9"', 'a"éé'),
        ],
    )
    def test_an_argument_is_compared_as_text_or_json(self, store: Store, text: str, value: str) -> None:
        id = put_one(store, args=f'{{"other":"x","account":{text}}}')
        put(store, a_job(args='{"account":"43","other":"42"}'), a_job(args='{"account":["42"]}'), a_job())
        put(store, a_job(args='{"account":"42\\u0000"}'), a_job(args='{"account":{"a":42}}'))
        where = JobFilter("default", args={"account": value, "other": "x"})
        assert ids_of(store.jobs(where).items) == [id]
        assert store.jobs(replace(where, args={"account": value.upper() + "."})).items == []

    def test_an_error_is_found_by_its_class_with_or_without_the_module(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store, id)], FAILED, error=ERROR)
        bring(store, JobState.FAILED)
        for name, found in (("CardExpired", [id]), (ERROR.type, [id]), ("Expired", []), ("card", [])):
            assert ids_of(store.jobs(JobFilter("default", error=name)).items) == found, name

    def test_a_job_is_found_by_the_worker_and_the_time_of_its_last_execution(self, store: Store) -> None:
        job = bring(store, JobState.COMPLETED)
        put_one(store)
        assert job.worker is not None
        assert job.started_at is not None
        assert job.finished_at is not None
        took = job.finished_at - job.started_at
        for where, found in (
            ({"workers": frozenset({job.worker})}, [job.id]),
            ({"workers": frozenset({job.id})}, []),
            ({"took_over": took - timedelta(microseconds=1)}, [job.id]),
            ({"took_over": took}, []),
        ):
            assert ids_of(store.jobs(replace(JobFilter("default"), **where)).items) == found, where

    def test_a_page_scans_a_bounded_number_of_jobs_for_an_id_suffix(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(6)])
        where = JobFilter("default", id_suffix=ids[0].hex[-12:], look=3)
        page = store.jobs(where)
        assert page.items == []
        assert page.next is not None
        assert ids_of(store.jobs(where, after=page.next).items) == [ids[0]]

    @pytest.mark.parametrize("digits", ["", "ABCDEF", "xyz", "0" * 33, "12-34"])
    def test_an_invalid_id_suffix_is_refused(self, digits: str) -> None:
        with pytest.raises(BadFilter):
            JobFilter("default", id_suffix=digits)

    def test_a_text_narrows_what_the_other_conditions_leave(self, store: Store) -> None:
        mail, other = put(store, a_job("send", queue="mail"), a_job("send", queue="other", tenant="b"))
        assert _found(store, "send", queues=frozenset({"mail"})) == [mail]
        assert _found(store, "send", tenant="b") == [other]
        assert _found(store, "send", tenant=ALL_TENANTS) == [mail, other]
        assert _found(store, "send", states=frozenset({JobState.RUNNING})) == []

    @pytest.mark.parametrize("sort", list(Sort))
    @pytest.mark.parametrize("look", [1, 4, 10, 24, 25, 100])
    def test_a_search_page_examines_a_bounded_number_of_jobs(
        self, store: Store, sort: Sort, look: int
    ) -> None:
        ids = put(store, *[a_job("red" if n in (3, 4, 5, 20) else "blue", queue="q") for n in range(24)])
        put(store, *[a_job("red", queue="another") for _ in range(5)])
        where = JobFilter("default", queues=frozenset({"q"}), text="red", look=look)
        matches: list[UUID] = []
        pages, after = 0, None
        while True:
            page = store.jobs(where, sort=sort, limit=2, after=after)
            assert len(page.items) <= 2
            matches += ids_of(page.items)
            pages, after = pages + 1, page.next
            if after is None:
                break
            assert pages < 40
        wanted = [ids[n] for n in (3, 4, 5, 20)]
        assert matches == (wanted if sort is Sort.OLDEST else wanted[::-1])
        assert pages >= 24 // max(look, 12)

    @pytest.mark.parametrize("text", ["", "x" * 201, "a\0b", "\ud800"])
    def test_an_invalid_search_text_is_refused(self, store: Store, text: str) -> None:
        with pytest.raises(BadFilter):
            store.jobs(JobFilter("default", text=text))


class CountLaws:
    """A count may be bounded, and a text or an id suffix cannot be counted."""

    def test_an_id_suffix_cannot_be_counted(self, store: Store) -> None:
        with pytest.raises(BadFilter, match="id suffix"):
            store.count(JobFilter("default", id_suffix="abcdef"))

    def test_a_count_is_bounded(self, store: Store) -> None:
        for state in (JobState.PENDING, JobState.FAILED, JobState.COMPLETED):
            for _ in range(3):
                bring(store, state)
        every = JobFilter("default")
        assert sum(store.count(every, most=5).values()) == 5
        assert store.count(every, most=9) == store.count(every, most=100) == store.count(every)
        assert store.count(replace(every, states=frozenset({JobState.FAILED})), most=2) == {
            JobState.FAILED: 2
        }
        assert store.count(every, most=0) == {}

    def test_a_count_with_a_text_is_refused(self, store: Store) -> None:
        for most in (None, 10):
            with pytest.raises(BadFilter):
                store.count(JobFilter("default", text="x"), most=most)


class PageSizeLaws:
    """A page of jobs is bounded in bytes."""

    @pytest.mark.parametrize("sort", list(Sort))
    @pytest.mark.parametrize("text", [None, "heavy"])
    def test_a_page_is_bounded_in_bytes(self, store: Store, sort: Sort, text: str | None) -> None:
        sizes = [100, MEBIBYTE, 100, 3 * MEBIBYTE, 4 * MEBIBYTE, 9 * MEBIBYTE, 100, 7 * MEBIBYTE, 100]
        args = ["x" * size for size in sizes]
        ids = put(store, *[a_job("heavy", args=text) for text in args])
        wanted = (
            [[0, 1, 2, 3], [4], [5], [6, 7, 8]]
            if sort is Sort.OLDEST
            else [[8, 7, 6], [5], [4, 3, 2], [1, 0]]
        )
        pages: list[list[int]] = []
        after = None
        while True:
            page = store.jobs(JobFilter("default", text=text), sort=sort, after=after)
            assert [job.args for job in page.items] == [args[ids.index(job.id)] for job in page.items]
            pages.append([ids.index(job.id) for job in page.items])
            after = page.next
            if after is None:
                break
        assert pages == wanted

    def test_the_page_size_includes_results_and_counts_bytes(self, store: Store) -> None:
        ids = put(store, *[a_job(args="é" * MEBIBYTE) for _ in range(5)])
        finish_all(store, claim_all(store), result="é" * MEBIBYTE)
        page = store.jobs(JobFilter("default"), sort=Sort.OLDEST)
        assert ids_of(page.items) == ids[:2]
        assert {(job.args, job.result) for job in page.items} == {("é" * MEBIBYTE, "é" * MEBIBYTE)}
        page = store.jobs(JobFilter("default"), sort=Sort.OLDEST, after=page.next)
        assert ids_of(page.items) == ids[2:4]


class LogEndLaws:
    """A log can be read from its end."""

    def test_the_last_log_lines_before_a_position_are_in_order(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(10)])
        lines = store.logs(claim.id, tenant="default")

        def ends(before: int, limit: int, tenant: str = "default") -> list[str]:
            lines = store.logs(claim.id, tenant=tenant, before=before, limit=limit)
            return [entry.message for _, entry in lines]

        last = lines[-1][0] + 1
        assert ends(last, 3) == ["line 7", "line 8", "line 9"]
        assert ends(lines[7][0], 3) == ["line 4", "line 5", "line 6"]
        assert ends(2**62, 100) == [f"line {n}" for n in range(10)]
        assert ends(lines[0][0], 3) == []
        assert ends(last, 3, "other") == []
