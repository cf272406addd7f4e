"""``tidemill db``, as a person and as a program use it: a real process, its output and its exit code."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tidemill.stores.open import open_store
from tidemill.stores.sql import sqlite

APPLIED = sorted(file.stem for file in (Path(sqlite.__file__).parent / "migrations").glob("*.sql"))[1:]
"""Every migration but the one that makes the ledger of migrations."""


def tidemill(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_migrate_makes_the_tables_once_and_says_so(fresh_postgres_url: str) -> None:
    before = tidemill("db", "status", "--store", fresh_postgres_url)
    assert before.returncode == 1
    assert f"schema version 0 of {len(APPLIED)}" in before.stdout
    assert "pending 0001_jobs" in before.stdout

    done = tidemill("db", "migrate", "--store", fresh_postgres_url)
    assert done.returncode == 0
    assert "applied 0001_jobs" in done.stdout

    again = tidemill("db", "migrate", "--store", fresh_postgres_url)
    assert "nothing to apply" in again.stdout
    assert tidemill("db", "status", "--store", fresh_postgres_url).returncode == 0


def test_the_address_may_come_from_the_environment_and_json_is_for_programs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    said = tidemill("db", "migrate", "--json", TIDEMILL_STORE=url)
    assert json.loads(said.stdout) == {"store": url, "applied": APPLIED, "version": len(APPLIED)}
    state = json.loads(tidemill("db", "status", "--json", TIDEMILL_STORE=url).stdout)
    assert state == {"store": url, "version": len(APPLIED), "wanted": len(APPLIED), "pending": []}


def test_the_printed_sql_makes_a_database_that_needs_nothing_more(
    tmp_path: Path, fresh_postgres_url: str
) -> None:
    with sqlite3.connect(tmp_path / "jobs.db") as file:
        file.executescript(tidemill("db", "sql", "sqlite").stdout)
    file.close()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(tidemill("db", "sql", "postgres").stdout.encode())
    for url in (f"sqlite:///{tmp_path}/jobs.db", fresh_postgres_url):
        store = open_store(url)
        store.check()
        assert store.lanes() == []
        store.close()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["db", "migrate", "--store", "redis://x"], 2, "there is no store for redis://"),
        (["db", "migrate", "--store", "jobs.db"], 2, "this is not a store's address"),
        (["db", "sql", "oracle"], 2, "there is no SQL for 'oracle'"),
        (
            ["db", "status", "--store", "postgresql://127.0.0.1:1/x"],
            1,
            "cannot reach postgresql://127.0.0.1:1/x",
        ),
        (["db", "status"], 2, "Missing option '--store'"),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(words: list[str], code: int, sentence: str) -> None:
    said = tidemill(*words, TIDEMILL_STORE="")
    assert said.returncode == code
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
