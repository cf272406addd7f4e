"""Tests of ``app.audit``: listing entries and detecting tampering."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tidemill import App
from tidemill.client import access as module
from tidemill.client.access import acting
from tidemill.domain.records import GENESIS, AuditEntry

CHANGES = {
    "an entry that was changed": "update {audit} set who = 'eve' where number = 7",
    "an entry whose facts were changed": "update {audit} set after = '{{}}' where number = 7",
    "an entry whose facts cannot be read": "update {audit} set after = '{{' where number = 7",
    "an entry that was removed": "delete from {audit} where number = 7",
    "an entry that was moved in time": "update {audit} set at = (select at from {audit} where number = 1) where number = 7",
}


def fill(app: App, count: int = 12) -> None:
    for number in range(count):
        tenant = ("acme", "bolt")[number % 2]
        who, action = ("ann", "bob")[number % 3 == 0], f"job.{('cancelled', 'retried')[number % 4 == 0]}"
        app.store.record([AuditEntry(who, action, f"job:{number}", tenant, None, {"number": number})])


def numbers(app: App, **where: object) -> list[int]:
    return [record.number for record in app.audit.list(**where)]  # type: ignore[arg-type]


def test_entries_are_listed_by_number_or_newest_first(app: App) -> None:
    fill(app)
    assert numbers(app, tenant="*", limit=3) == [1, 2, 3]
    assert numbers(app, tenant="*", limit=3, after=3) == [4, 5, 6]
    assert numbers(app, tenant="*", limit=3, newest=True) == [12, 11, 10]
    assert numbers(app, tenant="*", limit=3, newest=True, before=10) == [9, 8, 7]
    assert numbers(app, tenant="*", subject="job:4") == [5]
    assert numbers(app, tenant="*", who="bob") == [1, 4, 7, 10]
    assert numbers(app, tenant="*", action="job.retried", who="bob") == [1]


def test_a_tenant_sees_the_entries_of_its_own_objects(app: App) -> None:
    fill(app, 4)
    app.control.pause("queue", "mail")
    with app.tenant("acme"):
        assert numbers(app) == [1, 3]
        assert [record.number for record in asyncio.run(app.audit.alist())] == [1, 3]
    assert numbers(app, tenant="bolt") == [2, 4]
    assert numbers(app) == []
    assert numbers(app, tenant="*") == [1, 2, 3, 4, 5]


def test_an_untouched_audit_log_verifies_with_any_batch_size(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.audit.verify() == (True, 0, None, GENESIS, None)
    fill(app)
    whole = app.audit.verify()
    assert whole == (True, 12, None, app.audit.list(tenant="*")[-1].hash, None)
    for batch in (1, 5, 6, 12, 13):
        monkeypatch.setattr(module, "BATCH", batch)
        assert app.audit.verify() == whole
        assert app.audit.verify(expect_head=whole.head) == (*whole[:4], True)
        assert app.audit.verify(expect_head="0" * 63 + "1") == (False, *whole[1:4], False)
    assert asyncio.run(app.audit.averify()) == whole


@pytest.mark.parametrize("batch", [1, 6, 7, 1000])
@pytest.mark.parametrize("change", CHANGES)
def test_verify_reports_the_first_tampered_entry_in_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, batch: int
) -> None:
    monkeypatch.setattr(module, "BATCH", batch)
    with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        fill(app)
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as raw:
            for trigger in ("no_update", "no_delete"):
                raw.execute(f"drop trigger tidemill_audit_{trigger}")
            raw.execute(CHANGES[change].format(audit="tidemill_audit"))
            raw.commit()
        found = app.audit.verify()
        assert (found.ok, found.entries, found.broken_at) == (False, 6, 7)


def test_verify_reports_the_first_tampered_entry_in_postgres(
    fresh_postgres_url: str,
) -> None:
    with App(fresh_postgres_url, migrate=True) as app:
        fill(app)
        with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:
            raw.execute("set session_replication_role = replica")
            for place, change in ((9, "delete from tidemill.audit where number = 9"),
                                  (7, CHANGES["an entry whose facts cannot be read"].format(audit="tidemill.audit")),
                                  (3, "update tidemill.audit set tenant = 'eve' where number = 3")):  # fmt: skip
                raw.execute(change.encode())
                assert app.audit.verify()[:3] == (False, place - 1, place)


def test_concurrent_entries_form_an_unbroken_chain(app: App) -> None:
    async def turn(who: str) -> None:
        for number in range(5):
            with acting(who):
                await app.control.apause("queue", f"{who}{number}")

    async def story() -> None:
        await asyncio.gather(*(turn(who) for who in ("ann", "bob", "eve")))

    asyncio.run(story())
    assert app.audit.verify()[:2] == (True, 15)
    for who in ("ann", "bob", "eve"):
        assert len(app.audit.list(tenant="*", who=who)) == 5
