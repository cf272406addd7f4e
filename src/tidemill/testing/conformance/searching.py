"""Laws of looking for a text, of counting no more than so many, and of reading a log from its end."""

from __future__ import annotations

from dataclasses import replace
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
    claim_one,
    finish_all,
    ids_of,
    put,
    put_one,
)

ERROR = ErrorInfo("shop.CardExpired", 'card of "Zoë" 50% off_season', 'File "/srv/shop/pay.py", line 7')


def _found(store: Store, text: str, **where: object) -> list[UUID]:
    return ids_of(
        store.jobs(replace(JobFilter("default"), text=text, **where), sort=Sort.OLDEST).items  # type: ignore[arg-type]
    )


class SearchLaws:
    """A text is in the id, the task's name, a tag, the arguments or the error."""

    @pytest.mark.parametrize("state", list(JobState))
    def test_a_text_is_found_in_every_state(self, store: Store, state: JobState) -> None:
        bring(store, state)
        job = bring(store, state, details=Details(tags=("North-East",)), args='{"to":"Ada Lovelace"}')
        for text in ("north-e", "NORTH", "lovelace", '"to":"ada', str(job.id), job.id.hex[-12:].upper()):
            assert _found(store, text) == [job.id], text
        assert _found(store, "babbage") == []

    def test_a_task_is_found_by_a_part_of_its_name(self, store: Store) -> None:
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
    def test_nothing_in_a_text_is_a_wildcard(self, store: Store, text: str) -> None:
        put_one(store, details=Details(tags=("abc",)))
        id = put_one(store, details=Details(tags=(f"<{text}>",)))
        assert _found(store, text) == [id]

    def test_arguments_are_found_as_text_and_as_json_writes_it(self, store: Store) -> None:
        plain, escaped = put(
            store, a_job(args='{"n":"Grüße"}'), a_job(args='{"n":"Gr\\u00fc\\u00dfe \\"x\\""}')
        )
        assert _found(store, "grüße") == [plain, escaped]
        assert _found(store, '"x"') == [escaped]
        assert _found(store, "GRÜSSE") == []

    def test_arguments_are_left_out_where_that_is_asked(self, store: Store) -> None:
        put_one(store, args='{"password":"tops3cret"}')
        tagged = put_one(store, args='{"password":"tops3cret"}', details=Details(tags=("tops3cret",)))
        assert _found(store, "tops3", text_in_args=False) == [tagged]

    def test_few_digits_are_no_part_of_an_id(self, store: Store) -> None:
        id = put_one(store)
        assert _found(store, id.hex[-8:]) == [id]
        assert _found(store, id.hex[-7:]) == []

    def test_a_text_narrows_what_the_other_conditions_leave(self, store: Store) -> None:
        mail, other = put(store, a_job("send", queue="mail"), a_job("send", queue="other", tenant="b"))
        assert _found(store, "send", queues=frozenset({"mail"})) == [mail]
        assert _found(store, "send", tenant="b") == [other]
        assert _found(store, "send", tenant=ALL_TENANTS) == [mail, other]
        assert _found(store, "send", states=frozenset({JobState.RUNNING})) == []

    @pytest.mark.parametrize("sort", list(Sort))
    @pytest.mark.parametrize("look", [1, 4, 10, 24, 25, 100])
    def test_a_page_looks_at_so_many_jobs_and_the_next_goes_on(
        self, store: Store, sort: Sort, look: int
    ) -> None:
        ids = put(store, *[a_job("red" if n in (3, 4, 5, 20) else "blue", queue="q") for n in range(24)])
        put(store, *[a_job("red", queue="another") for _ in range(5)])
        where = JobFilter("default", queues=frozenset({"q"}), text="red", look=look)
        found: list[UUID] = []
        pages, after = 0, None
        while True:
            page = store.jobs(where, sort=sort, limit=2, after=after)
            assert len(page.items) <= 2
            found += ids_of(page.items)
            pages, after = pages + 1, page.next
            if after is None:
                break
            assert pages < 40
        wanted = [ids[n] for n in (3, 4, 5, 20)]
        assert found == (wanted if sort is Sort.OLDEST else wanted[::-1])
        assert pages >= 24 // max(look, 12)

    @pytest.mark.parametrize("text", ["", "x" * 201, "a\0b", "\ud800"])
    def test_a_text_that_no_job_can_hold_is_refused(self, store: Store, text: str) -> None:
        with pytest.raises(BadFilter):
            store.jobs(JobFilter("default", text=text))


class CountLaws:
    """A count may be bounded, and a text is not counted."""

    def test_no_more_than_so_many_are_counted(self, store: Store) -> None:
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

    def test_a_text_is_not_counted(self, store: Store) -> None:
        for most in (None, 10):
            with pytest.raises(BadFilter):
                store.count(JobFilter("default", text="x"), most=most)


class LogEndLaws:
    """A log can be read from its end."""

    def test_the_last_lines_before_a_position_come_in_order(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(10)])
        lines = store.logs(claim.id, tenant="default")

        def ends(before: int, limit: int, tenant: str = "default") -> list[str]:
            found = store.logs(claim.id, tenant=tenant, before=before, limit=limit)
            return [entry.message for _, entry in found]

        last = lines[-1][0] + 1
        assert ends(last, 3) == ["line 7", "line 8", "line 9"]
        assert ends(lines[7][0], 3) == ["line 4", "line 5", "line 6"]
        assert ends(2**62, 100) == [f"line {n}" for n in range(10)]
        assert ends(lines[0][0], 3) == []
        assert ends(last, 3, "other") == []
