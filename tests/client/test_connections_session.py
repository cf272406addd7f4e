"""Tests that the user's session stays unchanged and workers wake at commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest
import sqlalchemy
from psycopg.adapt import Dumper, Loader
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tests.client.connections_kit import (
    ON_POSTGRES,
    ORDERS,
    Errand,
    bare,
    django_database,
    engine,
    job,
    path_of,
)

from tidemill.client.own_connection import enqueue_on
from tidemill.client.own_connection.dialects import _UNHEX, statements
from tidemill.clock import ManualClock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Details, JobRow, NewJob, UniqueHold
from tidemill.domain.states import JobState
from tidemill.errors import StoreBusy, StoreError, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.postgres.values import DUMPERS
from tidemill.stores.sql.store import SqlStore

EVERY = JobFilter(ALL_TENANTS)


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


def stored(store: Store, *jobs: NewJob) -> list[JobRow]:
    return store.get([each.id for each in jobs], tenant=ALL_TENANTS)


# Wake-ups ----------------------------------------------------------------------------------------------------------------


def test_workers_are_notified_at_the_commit_and_not_before(in_postgres: Store) -> None:
    listener = in_postgres.listen()
    with psycopg.connect(in_postgres.url) as connection:
        enqueue_on(connection, in_postgres, [job(queue="mail"), job(queue="mail"), job(queue="odd “%s”")])
        assert listener.wait(0.2) == frozenset()
        connection.commit()
        assert listener.wait(5) == {"ready:mail", "ready:odd “%s”"}
    listener.close()


def test_a_rollback_or_a_duplicate_job_notifies_no_worker(in_postgres: Store) -> None:
    in_postgres.enqueue([job(unique=UniqueHold("k"))])
    listener = in_postgres.listen()
    with psycopg.connect(in_postgres.url) as connection:
        enqueue_on(connection, in_postgres, [job()])
        connection.rollback()
        assert not enqueue_on(connection, in_postgres, [job(unique=UniqueHold("k"))])[0].created
        connection.commit()
    assert listener.wait(0.2) == frozenset()
    listener.close()


def test_a_store_without_notify_does_not_notify_on_the_users_connection(
    in_postgres: Store, migrated_postgres_url: str
) -> None:
    quiet = open_store(migrated_postgres_url + "?notify=0")
    listener = in_postgres.listen()
    with psycopg.connect(migrated_postgres_url) as connection:
        enqueue_on(connection, quiet, [job()])
    assert listener.wait(0.2) == frozenset()
    listener.close()
    quiet.close()


# Schemas -----------------------------------------------------------------------------------------------------------------


def test_a_store_in_another_schema_gets_its_own_jobs(fresh_postgres_url: str) -> None:
    plain, other = open_store(fresh_postgres_url), open_store(fresh_postgres_url + "?schema=shop")
    other.migrate()
    listener = other.listen()
    one, two = job(), job()
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("set search_path to nowhere")
        enqueue_on(connection, other, [one])
        connection.commit()
        assert listener.wait(5) == {"ready:default"}
        plain.migrate()
        enqueue_on(connection, plain, [two])
        enqueue_on(connection, other, [job()])
    assert (len(stored(plain, one, two)), len(stored(other, one, two))) == (1, 1)
    assert other.count(EVERY) == {JobState.PENDING: 2}
    listener.close()
    plain.close()
    other.close()


def test_a_database_whose_tables_were_recreated_is_recognised_again(fresh_postgres_url: str) -> None:
    store = open_store(fresh_postgres_url)
    store.migrate()
    with psycopg.connect(fresh_postgres_url) as connection:
        enqueue_on(connection, store, [job()])
        connection.execute("drop schema tidemill cascade")
        connection.commit()
        store.migrate()
        assert enqueue_on(connection, store, [job()])[0].created
    store.close()


def test_the_store_returns_its_installation_id(in_postgres: Store, in_sqlite: Store) -> None:
    for store in (in_postgres, in_sqlite):
        assert isinstance(store, SqlStore)
        assert str(UUID(store.installation())) == store.installation()
        assert store.whereabouts() == store.whereabouts(again=True)


# psycopg -----------------------------------------------------------------------------------------------------------------


def test_the_psycopg_session_is_left_unchanged(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url, prepare_threshold=0) as connection:
        settings = "select name, setting from pg_settings order by name"
        before = connection.execute(settings).fetchall()
        for _ in range(3):
            enqueue_on(connection, in_postgres, [job()])
        assert connection.execute(settings).fetchall() == before
        prepared = connection.execute("select statement from pg_prepared_statements").fetchall()
        assert not [text for (text,) in prepared if "tidemill" in text]
        for kind, _ in DUMPERS:
            with pytest.raises(psycopg.ProgrammingError):
                connection.adapters.get_dumper(kind, psycopg.adapt.PyFormat.AUTO)


class _Shouting(Dumper):
    def dump(self, obj: Any) -> bytes:
        return f"<{obj}>".encode()


class _Spelling(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).hex()


def test_the_users_type_adapters_do_not_affect_the_stored_values(in_postgres: Store) -> None:
    key = UniqueHold("k")
    holder = job(unique=key)
    in_postgres.enqueue([holder])
    with psycopg.connect(in_postgres.url) as connection:
        for kind in (UUID, list, timedelta):
            connection.adapters.register_dumper(kind, _Shouting)
        connection.adapters.register_loader(
            "uuid", type("Binary", (_Spelling,), {"format": psycopg.pq.Format.BINARY})
        )
        one = job(details=Details(parent_id=new_id()))
        answers = enqueue_on(connection, in_postgres, [one, job(unique=key)])
    assert [answer.id for answer in answers] == [one.id, holder.id]
    assert stored(in_postgres, one)[0].timeout == one.timeout


def test_a_connection_with_another_client_encoding_works(in_postgres: Store) -> None:
    one = job("grüßen", args='{"a":"ß"}', unique=UniqueHold("ü"))
    with psycopg.connect(in_postgres.url, client_encoding="latin1") as connection:
        enqueue_on(connection, in_postgres, [one])
    (found,) = stored(in_postgres, one)
    assert (found.task, found.args, found.unique_key) == (one.task, one.args, "ü")


def test_an_open_pipeline_is_supported(in_postgres: Store) -> None:
    one = job()
    with psycopg.connect(in_postgres.url, autocommit=True) as connection, connection.pipeline():
        with pytest.raises(UsageError, match="autocommit"):
            enqueue_on(connection, in_postgres, [job()])
        with connection.transaction():
            enqueue_on(connection, in_postgres, [one])
    assert len(stored(in_postgres, one)) == 1


def test_in_an_old_transaction_delays_count_from_now_and_not_from_its_start(in_postgres: Store) -> None:
    one = job(delay=timedelta(seconds=60))
    with psycopg.connect(in_postgres.url) as connection:
        row = connection.execute("select now() + interval '0.2 seconds' from pg_sleep(0.2)").fetchone()
        assert row is not None
        enqueue_on(connection, in_postgres, [one])
    (found,) = stored(in_postgres, one)
    assert found.created_at >= row[0]
    assert found.run_at == found.created_at + timedelta(seconds=60)


@pytest.mark.parametrize("user", ON_POSTGRES)
def test_a_delay_of_a_day_is_24_hours_even_across_a_clock_change(in_postgres: Store, user: str) -> None:
    zone, now = "America/New_York", datetime.now(UTC)
    delay = next(
        delay
        for delay in (timedelta(days=days) for days in range(1, 366))
        if (now + delay).astimezone(ZoneInfo(zone)).utcoffset() != now.astimezone(ZoneInfo(zone)).utcoffset()
    ) + timedelta(days=1)
    url = in_postgres.url
    with psycopg.connect(bare(url), autocommit=True) as connection:
        connection.execute(ORDERS.encode())
        connection.execute(f"alter database {urlsplit(url).path[1:]} set timezone to '{zone}'".encode())
    plain, held = job(delay=delay, timeout=delay), job(unique=UniqueHold("k", window=delay))
    ON_POSTGRES[user](Errand(url, in_postgres, [[plain, held]]))
    later, _ = stored(in_postgres, plain, held)
    assert later.run_at - later.created_at == delay
    assert later.timeout == delay
    with psycopg.connect(bare(url)) as connection:
        (until,) = connection.execute("select window_ends_at from tidemill.uniques").fetchone() or (None,)
    assert until == later.created_at + delay


def test_rolling_back_the_users_savepoint_removes_the_job(in_postgres: Store, in_sqlite: Store) -> None:
    for store in (in_postgres, in_sqlite):
        kept, gone = job(), job()
        with engine(store.url) as made, Session(made) as session:
            enqueue_on(session, store, [kept])
            nested = session.begin_nested()
            enqueue_on(session, store, [gone])
            nested.rollback()
            session.commit()
        assert [each.id for each in stored(store, kept, gone)] == [kept.id]


def test_a_batch_that_fails_with_store_busy_stores_nothing(
    in_postgres: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = UniqueHold("k")
    in_postgres.enqueue([job(unique=key)])
    monkeypatch.setattr("tidemill.stores.sql.lifecycle._ROUNDS", 1)
    with psycopg.connect(in_postgres.url) as connection, pytest.raises(StoreBusy):
        enqueue_on(connection, in_postgres, [job(), job(unique=UniqueHold("free")), job(unique=key)])
    with psycopg.connect(in_postgres.url) as connection:
        with pytest.raises(StoreBusy):
            enqueue_on(connection, in_postgres, [job(), job(unique=key)])
        connection.commit()
    assert in_postgres.count(EVERY) == {JobState.PENDING: 1}


# Frameworks --------------------------------------------------------------------------------------------------------------


def test_a_scoped_session_works_as_a_session(in_sqlite: Store) -> None:
    one = job()
    with engine(in_sqlite.url) as made:
        session = scoped_session(sessionmaker(made))
        enqueue_on(session, in_sqlite, [one])
        session.commit()
        session.remove()
    assert len(stored(in_sqlite, one)) == 1


def test_a_transaction_that_sqlalchemy_begins_on_sqlite_is_joined(in_sqlite: Store) -> None:
    """SQLAlchemy's documented setup: sqlite3 does not manage transactions, and SQLAlchemy sends BEGIN."""
    one, two = job(), job()
    with engine(in_sqlite.url) as made:
        sqlalchemy.event.listen(made, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        sqlalchemy.event.listen(made, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with made.connect() as connection:
            enqueue_on(connection, in_sqlite, [one])
            connection.rollback()
            enqueue_on(connection, in_sqlite, [two])
            connection.commit()
    assert [each.id for each in stored(in_sqlite, one, two)] == [two.id]


@pytest.mark.parametrize("dialect", ["in_postgres", "in_sqlite"])
def test_django_connections_are_accepted_as_alias_object_and_proxy(
    request: pytest.FixtureRequest, dialect: str
) -> None:
    store: Store = request.getfixturevalue(dialect)
    with django_database(store.url) as db:
        # Like django.db.connection, which is a proxy for "default".
        proxy = type(db.connection)(db.connections, "jobs")
        with db.transaction.atomic(using="jobs"):
            enqueue_on("jobs", store, [job()])
            enqueue_on(db.connections["jobs"], store, [job()])
            enqueue_on(proxy, store, [job()])
        db.transaction.set_autocommit(False, using="jobs")
        enqueue_on("jobs", store, [job()])
        db.transaction.rollback(using="jobs")
        db.transaction.set_autocommit(True, using="jobs")
    assert store.count(EVERY) == {JobState.PENDING: 3}


def test_server_side_binding_in_django_is_supported(in_postgres: Store) -> None:
    one = job(details=Details(tags=("a",)))
    options = {"server_side_binding": True}
    with django_database(bare(in_postgres.url), OPTIONS=options) as db, db.transaction.atomic(using="jobs"):
        enqueue_on("jobs", in_postgres, [one, job()])
    assert stored(in_postgres, one)[0].details.tags == ("a",)


# SQLite ------------------------------------------------------------------------------------------------------------------


def test_an_enqueue_that_fails_half_way_leaves_nothing_in_the_users_transaction(in_sqlite: Store) -> None:
    with closing(sqlite3.connect(path_of(in_sqlite.url))) as file:
        file.execute("create table orders(name text)")
        file.execute(
            "create trigger broken before insert on tidemill_scheduled begin select raise(abort, 'broken'); end"
        )
        file.execute("insert into orders values ('a chair')")
        with pytest.raises(StoreError):
            enqueue_on(file, in_sqlite, [job(), job(unique=UniqueHold("k")), job(delay=timedelta(hours=1))])
        assert file.in_transaction
        file.commit()
        assert file.execute("select count(*) from orders").fetchall() == [(1,)]
        file.execute("drop trigger broken")
    assert in_sqlite.count(EVERY) == {}
    assert in_sqlite.enqueue([job(unique=UniqueHold("k"))])[0].created


def test_enqueueing_changes_neither_tables_nor_settings_of_the_file(in_sqlite: Store) -> None:
    tables = "select name from sqlite_master order by name"
    with closing(sqlite3.connect(path_of(in_sqlite.url))) as file:
        before = file.execute(tables).fetchall()
        settings = [
            file.execute(f"pragma {name}").fetchone()
            for name in ("foreign_keys", "busy_timeout", "synchronous")
        ]
        enqueue_on(file, in_sqlite, [job(details=Details(parent_id=new_id()))])
        file.commit()
        assert file.execute(tables).fetchall() == before
        after = [
            file.execute(f"pragma {name}").fetchone()
            for name in ("foreign_keys", "busy_timeout", "synchronous")
        ]
        assert after == settings


def test_no_statement_uses_a_function_that_the_users_sqlite_may_lack() -> None:
    for name in load("sqlite"):
        for statement in statements().get(name, {}).statements:
            assert "unhex(" not in _UNHEX.sub("", statement.sql)


def test_timestamps_come_from_the_clock_of_the_store(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}", clock=clock)
    store.check()
    one, two = job(delay=timedelta(minutes=1)), job()
    with closing(sqlite3.connect(path_of(store.url))) as file, file:
        enqueue_on(file, store, [one])
        enqueue_on(file, store, [two], now=clock.now() + timedelta(days=1))
    first, second = stored(store, one, two)
    assert (first.created_at, first.run_at) == (clock.now(), clock.now() + timedelta(minutes=1))
    assert second.created_at == clock.now() + timedelta(days=1)
    store.close()


def test_the_store_can_be_opened_first_while_the_user_writes(in_sqlite: Store) -> None:
    again = open_store(in_sqlite.url)
    in_sqlite.close()
    with closing(sqlite3.connect(path_of(again.url))) as file:
        file.execute("begin exclusive")
        assert enqueue_on(file, again, [job()])[0].created
        file.commit()
    assert again.count(EVERY) == {JobState.PENDING: 1}
    again.close()
