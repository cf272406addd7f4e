"""``tidemill db`` in a real process: output and exit codes."""

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
from tidemill.stores.sql.migrations import load, oldest_served

APPLIED = sorted(file.stem for file in (Path(sqlite.__file__).parent / "migrations").glob("*.sql"))[1:]
"""Every migration except the one that creates the migration table."""


def tidemill(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_migrate_creates_the_tables_once_and_reports_it(fresh_postgres_url: str) -> None:
    before = tidemill("db", "status", "--store", fresh_postgres_url)
    assert before.returncode == 1
    assert f"schema version 0 of {len(APPLIED)}" in before.stdout
    assert "pending 0001_jobs" in before.stdout

    done = tidemill("db", "migrate", "--store", fresh_postgres_url)
    assert done.returncode == 0
    assert "applied 0001_jobs" in done.stdout

    again = tidemill("db", "migrate", "--store", fresh_postgres_url)
    assert "nothing to apply" in again.stdout
    after = tidemill("db", "status", "--store", fresh_postgres_url)
    assert after.returncode == 0
    assert f"serves code from version {oldest_served(load('postgres'))} on" in after.stdout


def test_the_store_url_may_come_from_the_environment_and_output_may_be_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    said = tidemill("db", "migrate", "--json", TIDEMILL_STORE=url)
    served = oldest_served(load("sqlite"))
    facts = {"store": url, "version": len(APPLIED), "serves": served}
    assert json.loads(said.stdout) == facts | {"applied": APPLIED}
    state = json.loads(tidemill("db", "status", "--json", TIDEMILL_STORE=url).stdout)
    assert state == facts | {"wanted": len(APPLIED), "pending": []}


def test_the_printed_sql_creates_a_complete_database(tmp_path: Path, fresh_postgres_url: str) -> None:
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


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_statement_is_printed_with_its_parts(dialect: str) -> None:
    printed = tidemill("db", "sql", dialect, "finish").stdout
    assert printed.startswith("-- finish: ")
    assert "insert into tidemill" in printed
    assert "id, tenant, queue, task, priority, max_attempts" in printed
    assert "include:" not in printed


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ["db", "sql", "sqlite", "step"],
            2,
            "unknown query 'step'; expected one of acknowledge_alerts, acquire, ",
        ),
        (["db", "migrate", "--store", "redis://x"], 2, "unknown store redis://"),
        (["db", "migrate", "--store", "jobs.db"], 2, "not a store URL"),
        (["db", "sql", "oracle"], 2, "there is no SQL for 'oracle'"),
        (
            ["db", "status", "--store", "postgresql://127.0.0.1:1/x"],
            1,
            "cannot reach postgresql://127.0.0.1:1/x",
        ),
        (["db", "status"], 2, "Missing option '--app' or '--store'"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(words: list[str], code: int, sentence: str) -> None:
    said = tidemill(*words, TIDEMILL_STORE="")
    assert said.returncode == code
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
