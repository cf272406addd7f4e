"""Sizes of the live tables of a store, for the tests of retention."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

from tidemill import App

LIVE_TABLES = (
    "ready", "scheduled", "running", "history", "executions", "details", "logs", "uniques", "checkpoints",
)  # fmt: skip


def live_rows(app: App) -> int:
    """The number of rows in the live tables of a SQL store."""
    url = app.store_url() or ""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return sum(
                file.execute(f"select count(*) from tidemill_{name}").fetchone()[0] for name in LIVE_TABLES
            )
    with psycopg.connect(url) as connection:
        found = [
            connection.execute(f"select count(*) from tidemill.{name}").fetchone() for name in LIVE_TABLES
        ]
        return sum(row[0] for row in found if row is not None)


def bounded_bytes(path: Path) -> int:
    """The size of a SQLite file, without the audit log, which is kept, and the rollups, which grow for 400 days."""
    with closing(sqlite3.connect(path)) as file:
        (kept,) = file.execute(
            "select sum(s.pgsize) from dbstat s join sqlite_schema m on m.name = s.name "
            "where m.tbl_name in ('tidemill_audit', 'tidemill_rollups', 'tidemill_rollup_times')"
        ).fetchone()
        (pages,) = file.execute("pragma page_count").fetchone()
        (page,) = file.execute("pragma page_size").fetchone()
    return int(pages * page - kept)
