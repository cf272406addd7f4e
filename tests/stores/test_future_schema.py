"""Tests of this code on a newer schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.stores.future_schema import migrate_to_the_future

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.retention import Selection, Selector
from tidemill.errors import SchemaTooNew, StoreCorrupt
from tidemill.ids import new_id
from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations
from tidemill.testing.conformance.kit import asks

KNOWN = len(migrations.load("sqlite"))

_REVERT = (
    *(f"drop table tidemill.{name}" for name in ("depth_samples", "worker_scales", "worker_pauses")),
    *(f"alter table tidemill.workers drop column {name}" for name in ("report", "place", "supervisor")),
    "drop table tidemill.placements",
    *(f"drop table tidemill.{name}" for name in ("deploys", "error_marks", "failures")),
    "alter table tidemill.tasks drop column deployed_at",
    "drop table tidemill.streams",
    *(f"drop table tidemill.{name}" for name in ("rollup_times", "rollups", "ends")),
    "drop table tidemill.occurrences",
    "drop table tidemill.trigger_sources",
    "drop table tidemill.archived_flows",
    "alter table tidemill.keys drop column grant_json",
    "drop table tidemill.alerts",
    "drop table tidemill.job_events",
    "drop table tidemill.sessions",
    "drop index tidemill.logs_at",
    "alter table tidemill.workers drop column schema_version",
    *(f"drop table tidemill.{name}" for name in ("unreachable_jobs", "flows", "joins")),
    *(f"alter table tidemill.dependencies drop column {name}" for name in ("shard", "condition")),
    *(f"drop index tidemill.{name}" for name in ("details_group", "details_flow")),
    *(
        f"alter table tidemill.details drop column {name}"
        for name in ("may_fail", "group_shard", "group_id", "position", "node", "flow_id")
    ),
    *(
        f"alter table tidemill.{name} drop column tied"
        for name in ("history", "running", "parked", "scheduled", "ready")
    ),
    *(f"drop table tidemill.{name}" for name in ("events", "waits", "signals")),
    "drop table tidemill.blobs",
    "drop table tidemill.archive_entries",
    "drop table tidemill.archive_files",
    "alter table tidemill.keys drop column max_priority",
    "drop table tidemill.releases",
)
"""The changes of versions 25 to 7, reverted from the last one on. Version 9 can be applied to its own result."""

_REVERT_MONTHS = (
    "drop function tidemill.time_bucket",
    "drop function tidemill.drop_archive_months",
    "drop function tidemill.make_archive_month",
    "alter table tidemill.archive detach partition tidemill.archive_before",
    "insert into tidemill.archive_before select * from tidemill.archive",
    "drop table tidemill.archive",
    "drop function tidemill.id_floor",
    "alter table tidemill.archive_before rename to archive",
    "alter table tidemill.archive rename constraint archive_before_pkey to archive_pkey",
    "alter index tidemill.archive_before_ended rename to archive_ended",
    "alter index tidemill.archive_before_task rename to archive_task",
    "alter index tidemill.archive_before_correlation rename to archive_correlation",
    "alter index tidemill.archive_before_parent rename to archive_parent",
)
"""The archive of version 10 on PostgreSQL, back to one table."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    address = (
        f"sqlite:///{tmp_path}/jobs.db"
        if request.param == "sqlite"
        else str(request.getfixturevalue("fresh_postgres_url"))
    )
    store = open_store(address)
    store.migrate()
    store.close()
    return address


def ask(url: str, sql: str) -> list[tuple[object, ...]]:
    """Run SQL in which table names are written as on PostgreSQL."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as connection:
            answer = connection.execute(sql.encode())
            return answer.fetchall() if answer.description else []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        return file.execute(sql.replace("tidemill.", "tidemill_")).fetchall()


def test_a_newer_schema_that_serves_this_code_is_used(url: str) -> None:
    migrate_to_the_future(url)
    store = open_store(url)
    store.check()
    job = NewJob(new_id(), "t")
    store.enqueue([job])
    (claim,) = store.claim(asks(store, new_id(), store.lanes(), 1))
    assert claim.id == job.id
    assert store.schema() == (KNOWN + 1, KNOWN, (), KNOWN)
    store.close()


def test_older_code_leaves_the_migrations_of_a_newer_schema_unchanged(url: str) -> None:
    migrate_to_the_future(url)
    before = ask(url, "select version, checksum from tidemill.migrations order by version")
    store = open_store(url)
    assert store.migrate() == []
    store.close()
    assert ask(url, "select version, checksum from tidemill.migrations order by version") == before
    assert ask(url, "select value from tidemill.meta where key = 'serves'") == [(str(KNOWN),)]


def test_a_newer_schema_that_does_not_serve_this_code_is_refused(url: str) -> None:
    migrate_to_the_future(url, serves=KNOWN + 1)
    store = open_store(url)
    for act in (store.check, store.lanes, store.schema, store.migrate):
        with pytest.raises(
            SchemaTooNew,
            match=rf"has version {KNOWN + 1} and serves code from version {KNOWN + 1} on, "
            rf"this Tidemill supports {KNOWN}; .*pip install --upgrade",
        ):
            act()
    store.close()


def test_an_open_store_keeps_working_while_a_newer_release_migrates(url: str) -> None:
    store = open_store(url)
    store.check()
    migrate_to_the_future(url)
    store.check()
    store.enqueue([NewJob(new_id(), "t")])
    assert len(store.lanes()) == 1
    store.close()


def test_the_checksums_of_known_migrations_are_still_compared(url: str) -> None:
    migrate_to_the_future(url)
    ask(url, "update tidemill.migrations set checksum = 'x' where version = 2")
    store = open_store(url)
    with pytest.raises(StoreCorrupt, match="0002_operation"):
        store.check()
    store.close()


def test_a_migration_never_lowers_the_oldest_served_version() -> None:
    steps = [
        migrations.Migration(1, "a", "-- expand: a"),
        migrations.Migration(2, "b", "-- contract: b\n-- serves: 2\n"),
        migrations.Migration(3, "c", "-- expand: c\n-- serves: 1\n"),
    ]
    assert [migrations.oldest_served(steps[:count]) for count in (0, 1, 2, 3)] == [0, 1, 2, 2]


def test_versions_7_to_25_can_be_reverted_and_applied_again(url: str) -> None:
    store = open_store(url)
    job = NewJob(new_id(), "t")
    store.enqueue([job])
    (claim,) = store.claim(asks(store, new_id(), store.lanes(), 1))
    store.finish([Finish(claim, COMPLETED)])
    store.put_archive(store.archivable(Selection(Selector()), policy="now", tier="archive"))
    store.close()
    for statement in [*_REVERT, *(_REVERT_MONTHS if url.startswith("postgres") else ())]:
        ask(url, statement)
    ask(url, "delete from tidemill.migrations where version >= 7")
    store = open_store(url)
    assert store.migrate() == [
        "0007_releases",
        "0008_key_priority",
        "0009_origins",
        "0010_archive_files",
        "0011_blobs",
        "0012_signals",
        "0013_flows",
        "0014_log_search",
        "0015_sessions",
        "0016_events",
        "0017_key_grants",
        "0018_archived_flows",
        "0019_occurrences",
        "0020_rollups",
        "0021_streams",
        "0022_task_records",
        "0023_failures",
        "0024_placements",
        "0025_fleet",
    ]
    store.check()
    assert [document.id for document in store.archived([job.id], tenant=ALL_TENANTS)] == [job.id]
    store.close()
