"""Flows that are started, and nodes that are completed, in the user's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from tests.client.connections_kit import bare, engine, path_of
from tests.grounds import url_of

from tidemill import App, Context, each
from tidemill.errors import UsageError


class World:
    """An app with tasks, and its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url, migrate=True)
        world = self

        @self.app.task
        def double(number: int) -> int:
            return 2 * number

        @self.app.task
        def total(parts: list[int]) -> int:
            return sum(parts)

        @self.app.task
        def own(ctx: Context) -> int:
            with world.connect() as connection:
                ctx.complete(connection, 20)
                connection.commit()
            return 20

        self.double, self.total, self.own = double, total, own

    @contextmanager
    def connect(self) -> Iterator[Any]:
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(path_of(self.url))) as connection:
                yield connection
        else:
            with closing(psycopg.connect(bare(self.url))) as connection:
                yield connection

    def flow(self, key: str | None = None) -> Any:
        flow = self.app.flow("own", key=key)
        first = flow.add(self.double, number=1)
        mapped = flow.map(self.double, number=each([1, 2, 3])).after(first)
        flow.returns(flow.add(self.total, parts=mapped.results).result)
        return flow

    def drain(self) -> None:
        self.app.testing().drain()

    def audited(self) -> list[str]:
        return [record.entry.action for record in self.app.audit.list()]


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(url_of(request.param, tmp_path, request))
    yield made
    made.app.close()


def test_a_flow_begins_when_the_users_transaction_commits(world: World) -> None:
    with world.connect() as connection:
        run = world.flow().start(connection=connection)
        assert world.app.flows.list() == []
        connection.commit()
    world.drain()
    (found,) = world.app.flows.list()
    assert found.id == run.id
    assert str(found.status) == "completed"
    assert found.result(timeout=1) == 12
    assert found.counts().remaining == 0
    assert world.audited() == ["flow.started"]


def test_a_flow_of_a_transaction_that_rolls_back_never_was(world: World) -> None:
    with world.connect() as connection:
        world.flow(key="once").start(connection=connection)
        connection.rollback()
    world.drain()
    assert world.app.flows.list() == []
    assert world.app.jobs.count() == 0
    assert world.audited() == []
    with world.connect() as connection:
        world.flow(key="once").start(connection=connection)
        connection.commit()
    world.drain()
    assert [str(run.status) for run in world.app.flows.list()] == ["completed"]


def test_a_key_returns_the_first_flow_also_within_one_transaction(world: World) -> None:
    with world.connect() as connection:
        one = world.flow(key="k").start(connection=connection)
        two = world.flow(key="k").start(connection=connection)
        connection.commit()
        three = world.flow(key="k").start(connection=connection)
        connection.commit()
    assert one.id == two.id == three.id
    assert world.flow(key="k").start().id == one.id
    world.drain()
    assert one.refresh().result(timeout=1) == 12
    assert len(world.app.flows.list()) == 1


def test_a_flow_of_many_nodes_with_a_ceiling_is_started_in_one_transaction(world: World) -> None:
    flow = world.app.flow("many")
    mapped = flow.map(world.double, number=each(list(range(1_500)))).at_once(1_000)
    flow.returns(flow.add(world.total, parts=mapped.results).result)
    with world.connect() as connection:
        run = flow.start(connection=connection)
        connection.commit()
    world.drain()
    assert run.refresh().result(timeout=1) == 2 * sum(range(1_500))


def test_a_map_over_an_empty_list_is_complete_at_the_start(world: World) -> None:
    flow = world.app.flow("none")
    flow.returns(flow.add(world.total, parts=flow.map(world.double, number=each([])).results).result)
    with world.connect() as connection:
        run = flow.start(connection=connection)
        connection.commit()
    world.drain()
    assert run.refresh().result(timeout=1) == 0


def test_a_sqlalchemy_connection_starts_a_flow(world: World) -> None:
    with engine(world.url) as made, made.connect() as connection:
        connection.execute(sqlalchemy.text("select 1"))
        run = world.flow().start(connection=connection)
        connection.commit()
    world.drain()
    assert run.refresh().result(timeout=1) == 12


def test_a_node_completes_in_the_users_transaction_and_its_end_is_counted(world: World) -> None:
    flow = world.app.flow("complete")
    first = flow.add(world.own)
    flow.returns(flow.add(world.double, number=first.result).result)
    run = flow.start()
    world.drain()
    assert run.result(timeout=1) == 40
    assert run.counts().remaining == 0


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_asynchronous_connection_starts_a_flow(migrated_postgres_url: str, driver: str) -> None:
    world = World(migrated_postgres_url)

    async def story() -> Any:
        if driver == "asyncpg":
            connection = await asyncpg.connect(bare(world.url))
            try:
                async with connection.transaction():
                    run = await world.flow(key="a").astart(connection=connection)
            finally:
                await connection.close()
            return run
        async with await psycopg.AsyncConnection.connect(bare(world.url)) as connection:
            run = await world.flow(key="a").astart(connection=connection)
            await connection.commit()
            return run

    with world.app:
        run = asyncio.run(story())
        world.drain()
        assert run.refresh().result(timeout=1) == 12
        assert (asyncio.run(world.flow(key="a").astart())).id == run.id


def test_a_store_in_memory_has_no_connections() -> None:
    world = World("memory://")
    with world.app:
        with pytest.raises(UsageError, match="connection= needs PostgreSQL or SQLite"):
            world.flow().start(connection=object())
        assert world.app.flows.list() == []
