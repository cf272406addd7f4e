"""Tests of connections that cannot carry a job, and of their errors."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from tests.client.connections_kit import alchemical, bare, django_database, engine, job, path_of, prepare
from tests.servers.postgres import TestPostgres

from tidemill.client.own_connection import aenqueue_on, enqueue_on
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.errors import SchemaOutdated, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

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


def refused(act: Callable[[], object], *words: str) -> None:
    with pytest.raises(UsageError) as caught:
        act()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def arefused(store: Store, opened: Callable[[], Awaitable[Any]], *words: str) -> None:
    """The async variant; ``opened`` returns the connection and the function that closes it."""

    async def story() -> None:
        connection, close = await opened()
        try:
            with pytest.raises(UsageError) as caught:
                await aenqueue_on(connection, store, [job()])
        finally:
            await close()
        for word in words:
            assert word in str(caught.value)

    asyncio.run(story())


# Without a transaction ---------------------------------------------------------------------------------------------------


def test_sqlite3_without_a_transaction_is_refused(in_sqlite: Store) -> None:
    with closing(sqlite3.connect(path_of(in_sqlite.url), isolation_level=None)) as connection:
        refused(lambda: enqueue_on(connection, in_sqlite, [job()]), "no transaction open", "begin")
        assert not connection.in_transaction
    assert in_sqlite.count(EVERY) == {}


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sqlite3 has no attribute autocommit before Python 3.12"
)
def test_sqlite3_in_autocommit_is_refused(in_sqlite: Store) -> None:
    options: dict[str, Any] = {"autocommit": True}
    with closing(sqlite3.connect(path_of(in_sqlite.url), **options)) as connection:
        refused(lambda: enqueue_on(connection, in_sqlite, [job()]), "no transaction open")
    assert in_sqlite.count(EVERY) == {}


def test_psycopg_in_autocommit_without_a_transaction_block_is_refused(in_postgres: Store) -> None:
    with psycopg.connect(in_postgres.url, autocommit=True) as connection:
        refused(
            lambda: enqueue_on(connection, in_postgres, [job()]),
            "autocommit",
            "with connection.transaction()",
        )

    async def opened() -> tuple[Any, Any]:
        made = await psycopg.AsyncConnection.connect(in_postgres.url, autocommit=True)
        return made, made.close

    arefused(in_postgres, opened, "autocommit", "async with connection.transaction()")
    assert in_postgres.count(EVERY) == {}


def test_asyncpg_without_a_transaction_is_refused(in_postgres: Store) -> None:
    async def opened() -> tuple[Any, Any]:
        made = await asyncpg.connect(in_postgres.url)
        return made, made.close

    arefused(in_postgres, opened, "no transaction open", "async with connection.transaction()")
    assert in_postgres.count(EVERY) == {}


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_async_sqlalchemy_in_autocommit_is_refused(in_postgres: Store, driver: str) -> None:
    async def opened() -> tuple[Any, Any]:
        made = create_async_engine(
            alchemical(in_postgres.url, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        connection = await made.connect()
        return connection, connection.close

    arefused(in_postgres, opened, "AUTOCOMMIT")
    assert in_postgres.count(EVERY) == {}


@pytest.mark.parametrize("dialect", ["in_postgres", "in_sqlite"])
def test_sqlalchemy_in_autocommit_is_refused(request: pytest.FixtureRequest, dialect: str) -> None:
    store: Store = request.getfixturevalue(dialect)
    with engine(store.url) as made:
        alone = made.execution_options(isolation_level="AUTOCOMMIT")
        with alone.connect() as connection, Session(alone) as session:
            refused(lambda: enqueue_on(connection, store, [job()]), "AUTOCOMMIT")
            refused(lambda: enqueue_on(session, store, [job()]), "AUTOCOMMIT")
    assert store.count(EVERY) == {}


@pytest.mark.parametrize("dialect", ["in_postgres", "in_sqlite"])
def test_django_outside_an_atomic_block_is_refused(request: pytest.FixtureRequest, dialect: str) -> None:
    store: Store = request.getfixturevalue(dialect)
    with django_database(store.url) as db:
        refused(
            lambda: enqueue_on("jobs", store, [job()]), "no atomic block", "transaction.atomic(using='jobs')"
        )
        refused(lambda: enqueue_on(db.connections["jobs"], store, [job()]), "no atomic block")
    assert store.count(EVERY) == {}


# Wrong arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [None, 7, object(), b"default", sqlite3])
def test_an_unknown_object_is_refused_with_a_list_of_supported_kinds(in_sqlite: Store, thing: object) -> None:
    kinds = ("sqlite3.Connection", "psycopg", "asyncpg", "SQLAlchemy", "Session", "Django")
    refused(lambda: enqueue_on(thing, in_sqlite, [job()]), *kinds)
    refused(lambda: asyncio.run(aenqueue_on(thing, in_sqlite, [job()])), *kinds)


def test_an_engine_or_a_cursor_is_not_a_connection(in_sqlite: Store) -> None:
    with engine(in_sqlite.url) as made, closing(sqlite3.connect(":memory:")) as connection:
        refused(lambda: enqueue_on(made, in_sqlite, [job()]), "sqlalchemy.Engine", "give one of")
        refused(lambda: enqueue_on(connection.cursor(), in_sqlite, [job()]), "sqlite3.Cursor", "give one of")


def test_an_async_connection_is_refused_with_a_hint_to_use_aenqueue(in_postgres: Store) -> None:
    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(in_postgres.url) as connection:
            refused(
                lambda: enqueue_on(connection, in_postgres, [job()]), "psycopg.AsyncConnection", "aenqueue"
            )
        plain = await asyncpg.connect(in_postgres.url)
        refused(lambda: enqueue_on(plain, in_postgres, [job()]), "asyncpg.Connection", "aenqueue")
        await plain.close()
        made = create_async_engine(alchemical(in_postgres.url, "asyncpg"))
        for given in (AsyncSession(made), AsyncConnection(made)):
            refused(partial(enqueue_on, given, in_postgres, [job()]), "sqlalchemy.Async", "aenqueue")
        with pytest.raises(UsageError, match="not started yet"):
            await aenqueue_on(AsyncConnection(made), in_postgres, [job()])

    asyncio.run(story())


def test_a_sync_connection_is_refused_by_the_async_functions(in_sqlite: Store) -> None:
    with closing(sqlite3.connect(path_of(in_sqlite.url))) as connection, django_database(in_sqlite.url) as db:
        for given in (connection, "jobs", db.connections["jobs"], Session()):
            refused(
                partial(asyncio.run, aenqueue_on(given, in_sqlite, [job()])),
                "not asynchronous",
                "use enqueue, start or complete,",
            )


def test_a_store_that_is_not_a_database_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        refused(
            lambda: enqueue_on(connection, open_store("memory://"), [job()]),
            "memory://",
            "PostgreSQL or SQLite",
        )


def test_a_session_without_a_bind_is_refused(in_sqlite: Store) -> None:
    refused(lambda: enqueue_on(Session(), in_sqlite, [job()]), "bind_arguments")


def test_an_unknown_django_database_alias_is_refused(in_sqlite: Store) -> None:
    with django_database(in_sqlite.url):
        refused(lambda: enqueue_on("nowhere", in_sqlite, [job()]), "no database 'nowhere'", "jobs")


def test_enqueueing_imports_no_driver_that_the_user_has_not_loaded(tmp_path: Path) -> None:
    program = f"""
import sqlite3, sys
from tidemill.client.own_connection import enqueue_on
from tidemill.domain.job import NewJob
from tidemill.errors import UsageError
from tidemill.ids import new_id
from tidemill.stores.open import open_store
store = open_store("sqlite:///{tmp_path / "jobs.db"}")
store.check()
connection = sqlite3.connect({str(tmp_path / "jobs.db")!r})
assert enqueue_on(connection, store, [NewJob(new_id(), "work")])[0].created
try:
    enqueue_on("default", store, [NewJob(new_id(), "work")])
except UsageError as error:
    assert "has not loaded Django" in str(error)
print([name for name in ("psycopg", "asyncpg", "sqlalchemy", "django") if name in sys.modules])
connection.close()
store.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# Another database --------------------------------------------------------------------------------------------------------


def test_a_connection_of_another_dialect_is_refused(in_postgres: Store, in_sqlite: Store) -> None:
    with (
        closing(sqlite3.connect(path_of(in_sqlite.url))) as file,
        psycopg.connect(in_postgres.url) as connection,
    ):
        refused(lambda: enqueue_on(file, in_postgres, [job()]), "another database than the store", "SQLite")
        refused(
            lambda: enqueue_on(connection, in_sqlite, [job()]),
            "another database than the store",
            "PostgreSQL",
        )


def test_a_copy_of_the_stores_database_is_refused(
    postgres: TestPostgres, in_postgres: Store, in_sqlite: Store, tmp_path: Path
) -> None:
    in_postgres.close()
    name = in_postgres.url.rpartition("/")[2]
    copy = postgres.create_database(name + "_copy", template=name)
    store = open_store(bare(in_postgres.url))
    try:
        with psycopg.connect(copy) as connection:
            refused(lambda: enqueue_on(connection, store, [job()]), "another database", "_copy")
    finally:
        store.close()
        postgres.drop_database(name + "_copy")

    in_sqlite.close()
    shutil.copy(path_of(in_sqlite.url), tmp_path / "copy.db")
    again = open_store(in_sqlite.url)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as file:
        refused(lambda: enqueue_on(file, again, [job()]), "another database", "copy.db")
    again.close()


def test_a_symlink_to_the_stores_file_is_accepted(in_sqlite: Store, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path_of(in_sqlite.url))
    with closing(sqlite3.connect(tmp_path / "link.db")) as file, file:
        assert enqueue_on(file, in_sqlite, [job()])[0].created


def test_tables_in_an_attached_file_are_not_used(in_sqlite: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as file:
        file.execute("attach ? as jobs", (path_of(in_sqlite.url),))
        refused(lambda: enqueue_on(file, in_sqlite, [job()]), "another database", "app.db")


def test_a_file_without_tidemill_tables_names_the_migrate_command(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    prepare(url)
    store = open_store(url + "?shared=1")
    with closing(sqlite3.connect(path_of(url))) as file:
        file.execute("insert into orders values ('a chair')")
        with pytest.raises(SchemaOutdated, match="run tidemill db migrate --store 'sqlite:"):
            enqueue_on(file, store, [job()])
        file.commit()
        store.migrate()
        assert enqueue_on(file, store, [job()])[0].created
    store.close()


def test_a_store_without_tables_names_the_migrate_command(fresh_postgres_url: str) -> None:
    store = open_store(fresh_postgres_url)
    with (
        psycopg.connect(fresh_postgres_url) as connection,
        pytest.raises(SchemaOutdated, match="tidemill db migrate"),
    ):
        enqueue_on(connection, store, [job()])
    store.close()
