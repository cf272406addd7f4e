"""Tests of the errors that replace database errors on the user's connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from tests.client.connections_kit import django_database, engine, job, path_of

from tidemill.client.own_connection import enqueue_on
from tidemill.domain.job import UniqueHold
from tidemill.errors import JobExists, SchemaOutdated, StoreBusy, StoreCorrupt, StoreUnavailable, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store


@pytest.fixture
def in_postgres(migrated_postgres_url: str) -> Iterator[Store]:
    store = open_store(migrated_postgres_url)
    store.check()
    yield store
    store.close()


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    store.check()
    yield store
    store.close()


def test_a_read_only_transaction_raises_a_clear_error(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        connection.read_only = True
        with pytest.raises(StoreUnavailable, match="only read"):
            enqueue_on(connection, in_postgres, [job()])


def test_a_role_without_privileges_raises_a_clear_error(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        connection.execute("create role stranger")
        connection.execute("set local role stranger")
        with pytest.raises(StoreUnavailable, match="grant the role"):
            enqueue_on(connection, in_postgres, [job()])


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_lock_timeout_raises_store_busy(in_postgres: Store, wrapped: bool) -> None:
    with (
        psycopg.connect(in_postgres.url) as other,
        engine(in_postgres.url) as made,
        made.connect() as alchemy,
    ):
        enqueue_on(other, in_postgres, [job(unique=UniqueHold("k"))])
        with psycopg.connect(in_postgres.url) as connection:
            mine: Any = alchemy if wrapped else connection
            (alchemy.exec_driver_sql if wrapped else connection.execute)("set local lock_timeout = '50ms'")
            with pytest.raises(StoreBusy, match="roll it back"):
                enqueue_on(mine, in_postgres, [job(unique=UniqueHold("k"))])
        other.rollback()


def test_a_job_stored_concurrently_by_another_session_raises_job_exists(in_postgres: Store) -> None:
    one = job()
    with psycopg.connect(in_postgres.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1")
        in_postgres.enqueue([one])
        with pytest.raises(JobExists, match="in the meantime"):
            enqueue_on(connection, in_postgres, [one])


def test_a_locked_sqlite_file_raises_store_busy(in_sqlite: Store) -> None:
    path = path_of(in_sqlite.url)
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0.05)) as mine:
        other.execute("begin immediate")
        with pytest.raises(StoreBusy):
            enqueue_on(mine, in_sqlite, [job()])
        other.rollback()
        assert enqueue_on(mine, in_sqlite, [job()])[0].created


def test_a_transaction_that_has_failed_is_refused(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("select 1 / 0")
        with pytest.raises(UsageError, match="roll it back"):
            enqueue_on(connection, in_postgres, [job()])
    with engine(in_postgres.url) as made, made.connect() as alchemy:
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            alchemy.execute(sqlalchemy.text("select 1 / 0"))
        with pytest.raises(UsageError, match="roll it back"):
            enqueue_on(alchemy, in_postgres, [job()])


def test_data_that_violates_a_table_constraint_is_refused(in_postgres: Store) -> None:
    refused = pytest.raises(StoreCorrupt, match="refused the data")
    with django_database(in_postgres.url) as db, refused, db.transaction.atomic(using="jobs"):
        enqueue_on("jobs", in_postgres, [job(priority=1000)])


def test_missing_tables_raise_an_error_with_the_migrate_command(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        enqueue_on(connection, in_postgres, [job()])
        connection.execute("drop table tidemill.uniques")
        with pytest.raises(SchemaOutdated, match="tidemill db migrate"):
            enqueue_on(connection, in_postgres, [job()])


def test_other_driver_errors_are_passed_on_unchanged(in_postgres: Store, in_sqlite: Store) -> None:
    connection = psycopg.connect(in_postgres.url)
    connection.close()
    with pytest.raises(psycopg.OperationalError):
        enqueue_on(connection, in_postgres, [job()])
    file = sqlite3.connect(path_of(in_sqlite.url))
    file.close()
    with pytest.raises(sqlite3.ProgrammingError):
        enqueue_on(file, in_sqlite, [job()])
