"""Laws of job logs, and of the audit's hash chain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import LogEntry
from tidemill.domain.records import AuditEntry, first_break
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    T0,
    TICK,
    a_job,
    a_line,
    at,
    claim_all,
    claim_one,
    finish_all,
    messages,
    patiently,
    put,
    put_one,
    retry,
    together,
)
from tidemill.testing.conformance.kit import FAILED as FAIL
from tidemill.testing.conformance.kit import get_one as get_job


def _entry(number: int = 0, tenant: str = "default") -> AuditEntry:
    return AuditEntry(
        "ada", "job.cancel", f"job:{number}", tenant, {"state": "pending"}, {"state": "cancelled"}
    )


class LogLaws:
    """Log lines stay in the order in which they were written."""

    def test_log_lines_keep_their_order(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(5)])
        store.log([a_line(claim, f"line {n}") for n in range(5, 10)])
        assert messages(store, claim.id) == [f"line {n}" for n in range(10)]

    def test_log_lines_are_ordered_by_write_not_by_time(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        late, early = a_line(claim, "first"), a_line(claim, "second")
        store.log([replace(late, at=at(9)), replace(early, at=at(3))])
        assert messages(store, claim.id) == ["first", "second"]

    def test_every_field_of_a_log_line_is_stored(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        full = LogEntry(
            claim.id,
            claim.token,
            T0 + TICK,
            "read — “all”\n\t🦊",
            level="warning",
            stage="reading",
            details={"rows": 12, "file": "a\\b", "nested": {"x": [1, None, 2.5, True, "%s"]}},
            duration=timedelta(seconds=1, microseconds=250_001),
            worker=claim.worker,
        )
        bare = a_line(claim, "")
        store.log([full, bare])
        assert [entry for _, entry in store.logs(claim.id, tenant="default")] == [full, bare]

    def test_logs_can_be_read_from_any_position(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(7)])
        everything = store.logs(claim.id, tenant="default")
        positions = [position for position, _ in everything]
        assert positions == sorted(set(positions))
        for index, position in enumerate(positions):
            assert store.logs(claim.id, tenant="default", after=position) == everything[index + 1 :]

    def test_lines_can_be_read_by_level(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        levels = ("info", "error", "debug", "warning", "error")
        store.log([replace(a_line(claim, f"{n}"), level=level) for n, level in enumerate(levels)])
        wanted = frozenset({"error", "warning"})
        lines = store.logs(claim.id, tenant="default", levels=wanted)
        assert [entry.message for _, entry in lines] == ["1", "3", "4"]
        assert store.logs(claim.id, tenant="default", levels=wanted, limit=1) == lines[:1]
        assert store.logs(claim.id, tenant="default", levels=wanted, after=lines[0][0]) == lines[1:]
        assert (
            store.logs(claim.id, tenant="default", levels=wanted, before=lines[2][0], limit=1) == lines[1:2]
        )
        assert store.logs(claim.id, tenant="default", levels=frozenset()) == []

    def test_logs_can_be_read_in_pages(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, f"line {n}") for n in range(7)])
        seen: list[str] = []
        after = 0
        while lines := store.logs(claim.id, tenant="default", after=after, limit=3):
            assert len(lines) <= 3
            seen += [entry.message for _, entry in lines]
            assert len(seen) <= 7
            after = lines[-1][0]
        assert seen == [f"line {n}" for n in range(7)]

    @pytest.mark.parametrize("limit", [-1, 0, 1001])
    def test_an_invalid_log_page_size_is_refused(self, store: Store, limit: int) -> None:
        claim = claim_one(store, put_one(store))
        for before in (None, 9):
            with pytest.raises(BadFilter, match="1 to 1000"):
                store.logs(claim.id, tenant="default", before=before, limit=limit)
        with pytest.raises(BadFilter, match="1 to 1000"):
            store.logs(new_id(), tenant="default", limit=limit)

    def test_logs_of_different_jobs_do_not_mix(self, store: Store) -> None:
        put(store, a_job(), a_job())
        one, two = claim_all(store)
        store.log([a_line(one, "a"), a_line(two, "b"), a_line(one, "c")])
        assert (messages(store, one.id), messages(store, two.id)) == (["a", "c"], ["b"])
        assert messages(store, new_id()) == []

    def test_logs_survive_every_execution_and_the_end(self, store: Store) -> None:
        id = put_one(store)
        for message, transition in (("one", AGAIN), ("two", FAIL)):
            claim = claim_one(store, id)
            store.log([a_line(claim, message)])
            finish_all(store, [claim], transition)
        store.move([retry(get_job(store, id))], now=T0)
        claim = claim_one(store, id)
        store.log([a_line(claim, "three")])
        assert [(x.number, x.message) for _, x in store.logs(id, tenant="default")] == [
            *((1, "one"), (2, "two"), (3, "three"))
        ]


class AuditLaws:
    """Audit records are numbered without gaps, chained and immutable."""

    def test_records_are_numbered_dated_and_chained(self, store: Store) -> None:
        first = store.record([_entry(1), _entry(2)], now=T0)
        second = store.record([_entry(3)], now=at(1))
        assert [(record.number, record.at) for record in first + second] == [(1, T0), (2, T0), (3, at(1))]
        assert [record.entry for record in first + second] == [_entry(1), _entry(2), _entry(3)]
        assert first_break(first + second) is None

    def test_nothing_that_protects_the_audit_log_is_missing(self, store: Store) -> None:
        assert store.audit_gaps() == []

    def test_audit_entries_are_stored_verbatim(self, store: Store) -> None:
        odd = AuditEntry(
            "ödön “x” 🦊",
            "%s",
            "a\\b'; --",
            "t",
            {"a": [1, 2.5, None, {"é": True}], "": "", "text": '{"x":"\\u0000"}'},
            None,
        )
        written = store.record([odd, _entry()], now=T0 + TICK)
        assert store.audit(tenant=ALL_TENANTS) == written
        assert first_break(store.audit(tenant=ALL_TENANTS)) is None

    def test_a_tenant_reads_its_own_records_with_global_numbers(self, store: Store) -> None:
        store.record([_entry(n, tenant="ab"[n % 2]) for n in range(6)], now=T0)
        assert [record.number for record in store.audit(tenant="a")] == [1, 3, 5]
        assert {record.entry.tenant for record in store.audit(tenant="b")} == {"b"}
        assert store.audit(tenant="c") == []
        assert len(store.audit(tenant=ALL_TENANTS)) == 6

    def test_the_audit_can_be_read_in_pages(self, store: Store) -> None:
        store.record([_entry(n) for n in range(5)], now=T0)
        assert [record.number for record in store.audit(tenant="default", after=2)] == [3, 4, 5]
        assert [record.number for record in store.audit(tenant="default", after=1, limit=2)] == [2, 3]
        assert store.audit(tenant="default", after=5) == []

    @pytest.mark.parametrize("limit", [-1, 0, 1001])
    def test_an_invalid_audit_page_size_is_refused(self, store: Store, limit: int) -> None:
        for newest in (False, True):
            with pytest.raises(BadFilter, match="1 to 1000"):
                store.audit(tenant="default", newest=newest, limit=limit)

    def test_the_audit_can_be_read_backwards(self, store: Store) -> None:
        store.record([_entry(n) for n in range(5)], now=T0)

        def numbers(after: int = 0, before: int | None = None) -> list[int]:
            records = store.audit(tenant="default", after=after, before=before, limit=2, newest=True)
            return [record.number for record in records]

        assert numbers() == [5, 4]
        assert numbers(before=4) == [3, 2]
        assert numbers(before=2) == [1]
        assert numbers(after=2, before=4) == [3]
        assert numbers(before=1) == numbers(before=0) == []

    def test_records_can_be_filtered_by_actor_action_and_subject(self, store: Store) -> None:
        entries = [
            AuditEntry(who, action, subject, "default")
            for who in ("ada", "bob")
            for action in ("cancel", "retry")
            for subject in ("job:1", "job:2")
        ]
        store.record(entries, now=T0)

        def numbers(**where: str) -> list[int]:
            records = store.audit(
                tenant="default",
                who=where.get("who"),
                action=where.get("action"),
                subject=where.get("subject"),
            )
            return [record.number for record in records]

        assert numbers(who="bob") == [5, 6, 7, 8]
        assert numbers(action="retry") == [3, 4, 7, 8]
        assert numbers(subject="job:2") == [2, 4, 6, 8]
        assert numbers(who="ada", action="retry", subject="job:1") == [3]
        assert numbers(who="eve") == []

    def test_concurrent_writes_keep_the_audit_chain_intact(self, store: Store) -> None:
        def write() -> None:
            for n in range(10):
                patiently(store.record, [_entry(n), _entry(-n)], now=T0)

        together([write] * 4)
        records = store.audit(tenant=ALL_TENANTS)
        assert [record.number for record in records] == [*range(1, 81)]
        assert first_break(records) is None
