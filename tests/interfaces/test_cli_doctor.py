"""``tidemill doctor``: checks, advice and exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, call, make_shop

from tidemill.cli.doctor_sqlite import look_at_file
from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.domain.records import Pause, PauseKind
from tidemill.ids import new_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def examined(*words: str, shop: Shop | None = None) -> tuple[int, dict[str, tuple[str, str]]]:
    done = shop.run("doctor", "--json") if shop is not None else call("doctor", *words, "--json")
    checks = json.loads(done.stdout)["checks"]
    return done.exit_code, {check["check"]: (check["status"], check["text"]) for check in checks}


def test_a_sound_store_passes_every_check_except_those_of_this_machine(shop: Shop) -> None:
    with shop.app() as app:
        app.store.register(Worker(new_id(), "w1"), lease=timedelta(hours=1))
    code, found = examined(shop=shop)
    assert code == 0
    wrong = {check for check, (status, _) in found.items() if status != "ok"}
    assert wrong <= {"sqlite"}
    assert {"app", "store", "schema", "file", "journal", "durability", "wake-ups", "workers"} <= set(found)


def test_every_problem_is_reported_with_its_remedy(shop: Shop) -> None:
    shop.run("jobs", "enqueue", "send", "to=x")
    shop.run("jobs", "enqueue", "look", "what=x")
    with shop.app() as app:
        gone = app.store.register(Worker(new_id(), "old"), lease=timedelta(hours=1))
        marks = Watermarks()
        marks.seen(app.store.lanes(["mail"]))
        assert app.store.claim(ClaimRequest(gone.id, marks.lanes(), 1))
        app.store.retire([gone.id])
        app.store.pause([Pause(PauseKind.QUEUE, "mail", "flood", "ann")])
    code, found = examined(shop=shop)
    assert code == 1
    assert found["workers"][0] == "fail"
    assert "tidemill worker" in found["workers"][1]
    assert found["orphans"] == (
        "warn",
        "1 job is held by workers that are gone; start a worker to reclaim them",
    )
    assert "tidemill queues resume mail" in found["pauses"][1]
    with shop.app() as app:
        app.store.register(Worker(new_id(), "w1", tasks=("send",)), lease=timedelta(hours=1))
    code, found = examined(shop=shop)
    assert code == 0
    assert "no living worker knows task look" in found["tasks"][1]
    said = shop.run("doctor").stdout
    assert "warn  orphans:" in said
    assert "0 fail" in said


def test_an_app_that_cannot_be_imported_fails_and_the_store_is_still_checked(tmp_path: Path) -> None:
    code, found = examined("--app", "no_such_module:app")
    assert code == 1
    assert found["app"][0] == "fail"
    code, found = examined("--app", "no_such_module:app", "--store", f"sqlite:///{tmp_path}/jobs.db")
    assert code == 1
    assert found["schema"][0] == "ok"


def test_an_unreachable_store_fails_in_one_line() -> None:
    code, found = examined("--store", "postgresql://127.0.0.1:1/x?connect_timeout=1")
    assert code == 1
    assert list(found) == ["store"]
    assert "cannot reach" in found["store"][1]


def test_missing_tables_name_the_migrate_command(fresh_postgres_url: str) -> None:
    code, found = examined("--store", fresh_postgres_url)
    assert code == 1
    assert "tidemill db migrate" in found["schema"][1]
    assert call("db", "migrate", "--store", fresh_postgres_url).exit_code == 0
    code, found = examined("--store", fresh_postgres_url)
    assert code == 0
    assert found["clock"][0] == "ok"
    assert found["wake-ups"][0] == "ok"


@pytest.mark.long
def test_a_pooler_that_blocks_notifications_is_reported(pgbouncer_url: str) -> None:
    call("db", "migrate", "--store", pgbouncer_url)
    _, found = examined("--store", pgbouncer_url)
    assert found["wake-ups"][0] == "warn"
    assert "PgBouncer" in found["wake-ups"][1]


def test_reduced_durability_and_a_journal_other_than_wal_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.execute("create table some (n)")
    connection.commit()
    connection.close()
    found = {check: status for status, check, _ in look_at_file(f"sqlite:///{path}?synchronous=normal")}
    assert found["durability"] == "warn"
    assert found["journal"] == "fail"
    missing = list(look_at_file(f"sqlite:///{tmp_path}/none/jobs.db"))
    assert missing[0][0] == "fail"
    assert "mkdir -p" in missing[0][2]


@pytest.mark.parametrize(
    "change",
    [
        ["drop trigger tidemill_audit_no_delete"],
        [
            "drop trigger tidemill_audit_no_delete",
            "create trigger tidemill_audit_no_delete before delete on tidemill_audit begin select 1; end",
        ],
    ],
)
def test_a_removed_or_weakened_trigger_of_the_audit_log_is_a_failure(shop: Shop, change: list[str]) -> None:
    assert examined(shop=shop)[1]["audit"][0] == "ok"
    with closing(sqlite3.connect(shop.url.removeprefix("sqlite:///"))) as raw:
        for statement in change:
            raw.execute(statement)
        raw.commit()
    code, found = examined(shop=shop)
    assert code == 1
    assert found["audit"][0] == "fail"
    assert "tidemill_audit_no_delete" in found["audit"][1]


@pytest.mark.parametrize(
    ("held", "ended", "warned"),
    [
        ("duties", "duties:fire", False),
        ("duties:fire", "duties", False),
        ("duties:promote", "duties:fire", True),
        ("app:index", "duties:fire", True),
        ("app:index", "duties", True),
    ],
)
def test_a_lease_that_ran_out_is_a_problem_unless_the_workers_use_the_other_kind(
    shop: Shop, held: str, ended: str, warned: bool
) -> None:
    with shop.app() as app:
        worker = app.store.register(Worker(new_id(), "w1"), lease=timedelta(hours=1))
        assert app.store.acquire(held, worker.id, ttl=timedelta(hours=1))
        past = app.store.now() - timedelta(minutes=1)
        assert app.store.acquire(ended, worker.id, ttl=timedelta(seconds=1), now=past)
    _, found = examined(shop=shop)
    assert ("leases" in found) == warned
    assert not warned or f"lease {ended} ran out" in found["leases"][1]
