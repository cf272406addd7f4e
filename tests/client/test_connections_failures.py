"""What the database refuses on the user's own connection is said in our words, whoever wrapped the error."""

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

from tidemill.client.connections import enqueue_on
from tidemill.domain.job import UniqueHold
from tidemill.errors import JobExists, SchemaOutdated, StoreBusy, StoreCorrupt, StoreUnavailable, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store


@pytest.fixture
def in_postgres(fresh_postgres_url: str) -> Iterator[Store]:
    store = open_store(fresh_postgres_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    store.check()
    yield store
    store.close()


def test_a_transaction_that_may_only_read_is_told_so(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        connection.read_only = True
        with pytest.raises(StoreUnavailable, match="only read"):
            enqueue_on(connection, in_postgres, [job()])


def test_a_role_without_rights_is_told_so(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        connection.execute("create role stranger")
        connection.execute("set local role stranger")
        with pytest.raises(StoreUnavailable, match="grant the role"):
            enqueue_on(connection, in_postgres, [job()])


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_wait_that_is_too_long_for_the_user_is_busy(in_postgres: Store, wrapped: bool) -> None:
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


def test_a_job_that_somebody_else_stores_meanwhile_is_said_to_exist(in_postgres: Store) -> None:
    one = job()
    with psycopg.connect(in_postgres.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1")
        in_postgres.enqueue([one])
        with pytest.raises(JobExists, match="meanwhile"):
            enqueue_on(connection, in_postgres, [one])


def test_a_file_that_others_write_to_is_busy(in_sqlite: Store) -> None:
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


def test_data_that_the_tables_do_not_take_is_refused(in_postgres: Store) -> None:
    refused = pytest.raises(StoreCorrupt, match="refused the data")
    with django_database(in_postgres.url) as db, refused, db.transaction.atomic(using="jobs"):
        enqueue_on("jobs", in_postgres, [job(priority=1000)])


def test_tables_that_are_gone_name_the_command(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url) as connection:
        enqueue_on(connection, in_postgres, [job()])
        connection.execute("drop table tidemill.uniques")
        with pytest.raises(SchemaOutdated, match="tidemill db migrate"):
            enqueue_on(connection, in_postgres, [job()])


def test_an_error_that_is_nobodys_but_the_drivers_stays_as_it_is(
    in_postgres: Store, in_sqlite: Store
) -> None:
    connection = psycopg.connect(in_postgres.url)
    connection.close()
    with pytest.raises(psycopg.OperationalError):
        enqueue_on(connection, in_postgres, [job()])
    file = sqlite3.connect(path_of(in_sqlite.url))
    file.close()
    with pytest.raises(sqlite3.ProgrammingError):
        enqueue_on(file, in_sqlite, [job()])
