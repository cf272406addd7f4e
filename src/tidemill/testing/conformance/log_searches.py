"""Laws of the search for log lines of all jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.log_search import LogFilter
from tidemill.errors import BadFilter
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, a_line, claim_one, finish_all, put_one

MINUTE = timedelta(minutes=1)


def _lines(store: Store, task: str = "send", tenant: str = "default", number: int = 1, **fields: Any) -> Any:
    """Write lines of a new job, one minute apart, and return its claim."""
    claim = claim_one(store, put_one(store, task, tenant=tenant))
    store.log(
        [
            replace(a_line(claim, f"{task} {tenant} {n}", **fields), at=T0 + n * MINUTE)
            for n in range(1, number + 1)
        ]
    )
    return claim


def _found(store: Store, tenant: str = ALL_TENANTS, **where: Any) -> list[str]:
    return [line.entry.message for line in store.search_logs(LogFilter(tenant, **where)).items]


class LogSearchLaws:
    """A search finds the lines of all jobs by level, task, job, time, text and tenant."""

    def test_lines_of_all_jobs_are_listed_newest_first_with_their_job(self, store: Store) -> None:
        first = _lines(store, "send", number=2, stage="copy", details={"to": "ada"})
        _lines(store, "bill", tenant="acme", number=3)
        lines = store.search_logs(LogFilter(ALL_TENANTS)).items
        assert [line.entry.message for line in lines] == [
            "bill acme 3", "bill acme 2", "send default 2", "bill acme 1", "send default 1",
        ]  # fmt: skip
        line = lines[-1]
        assert (line.task, line.queue, line.tenant) == ("send", "default", "default")
        assert line.entry == replace(
            a_line(first, "send default 1", stage="copy", details={"to": "ada"}), at=T0 + MINUTE
        )

    def test_each_condition_restricts_the_lines(self, store: Store) -> None:
        claim = _lines(store, "send", number=2, level="warning")
        _lines(store, "bill", tenant="acme", number=2)
        assert _found(store, levels=frozenset({"warning", "error"})) == ["send default 2", "send default 1"]
        assert _found(store, levels=frozenset()) == []
        assert _found(store, tasks=frozenset({"bill", "other"})) == ["bill acme 2", "bill acme 1"]
        assert _found(store, job_id=claim.id) == ["send default 2", "send default 1"]
        assert _found(store, since=T0 + 2 * MINUTE) == ["bill acme 2", "send default 2"]
        assert _found(store, until=T0 + 2 * MINUTE) == ["bill acme 1", "send default 1"]
        assert _found(store, "acme") == ["bill acme 2", "bill acme 1"]
        assert _found(store, "acme", job_id=claim.id) == []
        assert _found(store, text="ACME 2") == ["bill acme 2"]

    def test_the_text_has_no_wildcards_and_only_ascii_letters_match_in_either_case(
        self, store: Store
    ) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, "50% Off_Season for Zoë")])
        for text in ("off_s", "50% o", "ZOë", "zoë"):
            assert _found(store, text=text) == ["50% Off_Season for Zoë"], text
        for text in ("50_", "off%season", "ZOË"):
            assert _found(store, text=text) == [], text

    def test_lines_of_one_instant_are_on_exactly_one_page(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(5)])
        seen: list[str] = []
        after = None
        for _ in range(3):
            page = store.search_logs(LogFilter("default"), limit=2, after=after)
            seen += [line.entry.message for line in page.items]
            after = page.next
        assert seen == [f"line {n}" for n in (4, 3, 2, 1, 0)]
        assert after is None

    def test_a_page_scans_a_bounded_number_of_lines(self, store: Store) -> None:
        _lines(store, "rare", number=1)
        _lines(store, "frequent", number=5)
        where = LogFilter("default", text="rare", look=3)
        first = store.search_logs(where)
        assert first.items == []
        second = store.search_logs(where, after=first.next)
        assert [line.entry.message for line in second.items] == ["rare default 1"]
        assert second.next is None or store.search_logs(where, after=second.next).items == []

    def test_lines_of_ended_jobs_are_found_and_those_of_deleted_ones_are_not(self, store: Store) -> None:
        claim = _lines(store)
        finish_all(store, [claim])
        assert _found(store) == ["send default 1"]
        store.delete([claim.id], tenant="default")
        assert _found(store) == []

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1.", "99999999999999999999.1", "999999999999999999.1"])
    def test_an_invalid_cursor_of_a_log_search_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(BadFilter, match="invalid cursor"):
            store.search_logs(LogFilter("default"), after=cursor)
