"""Tests of the first enqueue into a SQLite file without Tidemill tables."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from tests.client.connections_kit import ORDER, engine, path_of, prepare

from tidemill import App
from tidemill.client import own_connection
from tidemill.client.own_connection.adapters import Sqlite3Adapter
from tidemill.client.own_connection.sansio import UserStatement
from tidemill.errors import SchemaForeign, SchemaOutdated
from tidemill.stores.sql.driver import Row


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'shop.db'}?shared=1"
    prepare(url)
    return url


@pytest.fixture(params=["sqlite3", "sqlalchemy"])
def connection(url: str, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection | Session]:
    """A connection of the user that holds the file's write lock."""
    if request.param == "sqlite3":
        with closing(sqlite3.connect(path_of(url))) as file:
            file.execute(ORDER)
            yield file
    else:
        with engine(url) as made, Session(made) as session:
            session.execute(sqlalchemy.text(ORDER))
            yield session


class AsyncSqlite3Host(Sqlite3Adapter):
    """The user's connection as an asynchronous driver would wrap it."""

    async def execute(self, line: UserStatement) -> list[Row]:  # type: ignore[override]
        return super().execute(line)


@pytest.fixture
def asynchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    async def host(given: sqlite3.Connection) -> AsyncSqlite3Host:
        return AsyncSqlite3Host(given)

    monkeypatch.setattr(own_connection, "_async_host", host)


def test_an_app_that_migrates_creates_its_tables_before_any_transaction_locks(url: str) -> None:
    with App(url, migrate=True) as app, closing(sqlite3.connect(path_of(url))) as file:
        send = app.task(_send)
        file.execute(ORDER)
        job = send.using(connection=file).enqueue(order=1)
        file.commit()
        assert app.jobs.get(job.id).task == send.name


def test_without_tables_an_enqueue_in_a_transaction_fails_at_once(
    url: str, connection: sqlite3.Connection | Session
) -> None:
    with App(url) as app, pytest.raises(SchemaOutdated, match="tidemill db migrate"):
        app.task(_send).using(connection=connection).enqueue(order=1)


@pytest.mark.usefixtures("asynchronous")
def test_without_tables_an_async_enqueue_in_a_transaction_fails_at_once(url: str) -> None:
    async def enqueue() -> None:
        with closing(sqlite3.connect(path_of(url))) as file:
            file.execute(ORDER)
            await app.task(_send).using(connection=file).aenqueue(order=1)

    with App(url) as app, pytest.raises(SchemaOutdated, match="tidemill db migrate"):
        asyncio.run(asyncio.wait_for(enqueue(), 10))


@pytest.mark.usefixtures("asynchronous")
def test_an_async_enqueue_works_once_the_app_has_migrated(url: str) -> None:
    async def enqueue() -> None:
        with closing(sqlite3.connect(path_of(url))) as file:
            file.execute(ORDER)
            await app.task(_send).using(connection=file).aenqueue(order=1)
            file.commit()

    with App(url, migrate=True) as app:
        asyncio.run(asyncio.wait_for(enqueue(), 10))
        assert app.jobs.count() == 1


def test_an_app_that_migrates_still_refuses_a_file_of_another_program(url: str) -> None:
    with pytest.raises(SchemaForeign):
        App(url.removesuffix("?shared=1"), migrate=True)


def _send(order: int) -> None:
    """Send one order."""
