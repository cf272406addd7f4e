"""One user per kind of connection, each with its own transaction."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tidemill.client.own_connection import aenqueue_on, afinish_on, enqueue_on, finish_on
from tidemill.domain.job import Enqueued, Finish, LogEntry, NewJob, ProgressReport
from tidemill.domain.streams import StreamEntry
from tidemill.engine.completion import Unwritten
from tidemill.errors import TidemillError
from tidemill.ids import new_id
from tidemill.stores.base import Store

Answer = list[Enqueued] | bool | TidemillError
ORDERS = "create table orders(name text)"
ORDER = "insert into orders values ('a chair')"


class Completion:
    """The completion of a job, with log lines and progress reports that are not written yet."""

    def __init__(
        self,
        finish: Finish,
        lines: Sequence[LogEntry] = (),
        reports: Sequence[ProgressReport] = (),
        items: Sequence[StreamEntry] = (),
    ) -> None:
        self.finish, self.lines, self.reports, self.items = finish, lines, reports, items
        self.flushed = False

    def flush(self) -> None:
        self.flushed = True

    def unwritten(self) -> Unwritten:
        return Unwritten(self.lines, self.reports, self.items)


Step = Sequence[NewJob] | Callable[[], object] | Completion


class Errand(NamedTuple):
    """One user transaction: batches to enqueue, and checks from outside in between."""

    url: str
    store: Store
    steps: Sequence[Step]
    commit: bool = True


User = Callable[[Errand], list[Answer]]


def job(task: str = "work", **facts: Any) -> NewJob:
    return NewJob(new_id(), task, **facts)


def bare(url: str) -> str:
    """The URL without the query parameters that only Tidemill understands."""
    return url.partition("?")[0]


def path_of(url: str) -> str:
    return unquote(urlsplit(url).path)[1:]


def prepare(url: str) -> None:
    """Create the user's own table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path_of(url))) as file, file:
            file.execute(ORDERS)
    else:
        with psycopg.connect(bare(url)) as connection:
            connection.execute(ORDERS)


def orders(url: str) -> int:
    """The number of rows in the user's own table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path_of(url))) as file:
            return int(file.execute("select count(*) from orders").fetchone()[0])
    with psycopg.connect(bare(url)) as connection:
        row = connection.execute("select count(*) from orders").fetchone()
        assert row is not None
        return int(row[0])


def through(connection: object, errand: Errand) -> list[Answer]:
    """Run the steps. A Tidemill error is recorded as the answer to its step, and the next step runs."""
    answers: list[Answer] = []
    for step in errand.steps:
        if callable(step):
            step()
            continue
        try:
            if isinstance(step, Completion):
                answers.append(finish_on(connection, errand.store, step.finish, step))
            else:
                answers.append(enqueue_on(connection, errand.store, step))
        except TidemillError as error:
            answers.append(error)
    return answers


async def athrough(connection: object, errand: Errand) -> list[Answer]:
    answers: list[Answer] = []
    for step in errand.steps:
        if callable(step):
            await asyncio.to_thread(step)
            continue
        try:
            if isinstance(step, Completion):
                answers.append(await afinish_on(connection, errand.store, step.finish, step))
            else:
                answers.append(await aenqueue_on(connection, errand.store, step))
        except TidemillError as error:
            answers.append(error)
    return answers


class Undone(Exception):
    """Leaves the user's block without a commit."""


def end(errand: Errand) -> None:
    if not errand.commit:
        raise Undone


# sqlite3 -----------------------------------------------------------------------------------------------------------------


def of_sqlite3(errand: Errand) -> list[Answer]:
    """sqlite3 opens the transaction at the user's first write, or at Tidemill's."""
    with closing(sqlite3.connect(path_of(errand.url))) as connection:
        connection.row_factory = sqlite3.Row
        answers = through(connection, errand)
        connection.execute(ORDER)
        connection.commit() if errand.commit else connection.rollback()
    return answers


def of_sqlite3_by_hand(errand: Errand) -> list[Answer]:
    """The user opens transactions explicitly."""
    with closing(sqlite3.connect(path_of(errand.url), isolation_level=None)) as connection:
        connection.text_factory = bytes
        connection.execute("begin")
        connection.execute(ORDER)
        answers = through(connection, errand)
        connection.execute("commit" if errand.commit else "rollback")
    return answers


def of_sqlite3_always(errand: Errand) -> list[Answer]:
    """The mode of Python 3.12 in which a transaction is always open."""
    options: dict[str, Any] = {"autocommit": False}
    with closing(sqlite3.connect(path_of(errand.url), **options)) as connection:
        answers = through(connection, errand)
        connection.execute(ORDER)
        connection.commit() if errand.commit else connection.rollback()
    return answers


# psycopg and asyncpg -----------------------------------------------------------------------------------------------------


def of_psycopg(errand: Errand) -> list[Answer]:
    """psycopg opens the transaction at the first statement."""
    with psycopg.connect(bare(errand.url), row_factory=psycopg.rows.dict_row) as connection:
        answers = through(connection, errand)
        connection.execute(ORDER)
        connection.commit() if errand.commit else connection.rollback()
    return answers


def of_psycopg_block(errand: Errand) -> list[Answer]:
    """Autocommit with a transaction block, and cursors that use another parameter style."""
    factory: Any = psycopg.RawCursor
    with psycopg.connect(bare(errand.url), autocommit=True, cursor_factory=factory) as connection:
        answers: list[Answer] = []
        with suppress(Undone), connection.transaction():
            connection.execute(ORDER)
            answers += through(connection, errand)
            end(errand)
    return answers


def of_psycopg_async(errand: Errand) -> list[Answer]:
    async def story() -> list[Answer]:
        async with await psycopg.AsyncConnection.connect(bare(errand.url)) as connection:
            await connection.execute(ORDER.encode())
            answers = await athrough(connection, errand)
            await (connection.commit() if errand.commit else connection.rollback())
            return answers

    return asyncio.run(story())


def of_asyncpg(errand: Errand) -> list[Answer]:
    async def story() -> list[Answer]:
        connection = await asyncpg.connect(bare(errand.url))
        try:
            return await asyncpg_story(connection, errand)
        finally:
            await connection.close()

    return asyncio.run(story())


def of_asyncpg_pool(errand: Errand) -> list[Answer]:
    async def story() -> list[Answer]:
        async with (
            asyncpg.create_pool(bare(errand.url), min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            return await asyncpg_story(connection, errand)

    return asyncio.run(story())


async def asyncpg_story(connection: Any, errand: Errand) -> list[Answer]:
    answers: list[Answer] = []
    with suppress(Undone):
        async with connection.transaction():
            await connection.execute(ORDER)
            answers += await athrough(connection, errand)
            end(errand)
    return answers


# SQLAlchemy --------------------------------------------------------------------------------------------------------------


def alchemical(url: str, driver: str = "psycopg") -> str:
    if url.startswith("sqlite"):
        return f"sqlite:///{path_of(url)}"
    return bare(url).replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(alchemical(url), poolclass=NullPool)
    yield made
    made.dispose()


def of_sqlalchemy(errand: Errand) -> list[Answer]:
    with engine(errand.url) as made, made.connect() as connection:
        answers = through(connection, errand)
        connection.execute(sqlalchemy.text(ORDER))
        connection.commit() if errand.commit else connection.rollback()
    return answers


def of_sqlalchemy_session(errand: Errand) -> list[Answer]:
    with engine(errand.url) as made, Session(made) as session:
        session.execute(sqlalchemy.text(ORDER))
        answers = through(session, errand)
        session.commit() if errand.commit else session.rollback()
    return answers


def of_sqlalchemy_async(driver: str) -> User:
    async def story(errand: Errand) -> list[Answer]:
        made = create_async_engine(alchemical(errand.url, driver), poolclass=NullPool)
        async with made.connect() as connection:
            answers = await athrough(connection, errand)
            await connection.execute(sqlalchemy.text(ORDER))
            await (connection.commit() if errand.commit else connection.rollback())
        await made.dispose()
        return answers

    return lambda errand: asyncio.run(story(errand))


def of_sqlalchemy_async_session(driver: str) -> User:
    async def story(errand: Errand) -> list[Answer]:
        made = create_async_engine(alchemical(errand.url, driver), poolclass=NullPool)
        async with AsyncSession(made) as session:
            answers = await athrough(session, errand)  # before the session runs a statement of its own
            await session.execute(sqlalchemy.text(ORDER))
            await (session.commit() if errand.commit else session.rollback())
        await made.dispose()
        return answers

    return lambda errand: asyncio.run(story(errand))


# Django ------------------------------------------------------------------------------------------------------------------


@contextmanager
def django_database(url: str, **options: Any) -> Iterator[Any]:
    """Django's connection handler, with this database under the alias ``jobs``."""
    conf, db = importlib.import_module("django.conf"), importlib.import_module("django.db")
    if not conf.settings.configured:
        conf.settings.configure(DATABASES={}, USE_TZ=True, INSTALLED_APPS=[], LOGGING_CONFIG=None)
        importlib.import_module("django").setup()
    if url.startswith("sqlite"):
        facts: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    else:
        parts = urlsplit(url)
        facts = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username or "",
                 "PASSWORD": parts.password or "", "HOST": parts.hostname or "", "PORT": parts.port or ""}  # fmt: skip
    db.connections.databases["jobs"] = db.connections.configure_settings(
        {"default": {}, "jobs": facts | options}
    )["jobs"]
    try:
        yield db
    finally:
        db.connections["jobs"].close()
        del db.connections["jobs"]
        del db.connections.databases["jobs"]


def of_django(errand: Errand) -> list[Answer]:
    with django_database(errand.url) as db:
        db.connections["jobs"].force_debug_cursor = True
        answers: list[Answer] = []
        with suppress(Undone), db.transaction.atomic(using="jobs"):
            with db.connections["jobs"].cursor() as cursor:
                cursor.execute(ORDER)
            answers += through("jobs", errand)
            end(errand)
    return answers


ON_SQLITE: dict[str, User] = {
    "sqlite3": of_sqlite3,
    "sqlite3, transactions by hand": of_sqlite3_by_hand,
    "sqlite3, always in a transaction": of_sqlite3_always,
    "sqlalchemy Connection": of_sqlalchemy,
    "sqlalchemy Session": of_sqlalchemy_session,
    "django": of_django,
}
ON_POSTGRES: dict[str, User] = {
    "psycopg": of_psycopg,
    "psycopg, transaction block": of_psycopg_block,
    "psycopg AsyncConnection": of_psycopg_async,
    "asyncpg": of_asyncpg,
    "asyncpg from a pool": of_asyncpg_pool,
    "sqlalchemy Connection": of_sqlalchemy,
    "sqlalchemy Session": of_sqlalchemy_session,
    "sqlalchemy AsyncConnection, psycopg": of_sqlalchemy_async("psycopg"),
    "sqlalchemy AsyncConnection, asyncpg": of_sqlalchemy_async("asyncpg"),
    "sqlalchemy AsyncSession, psycopg": of_sqlalchemy_async_session("psycopg"),
    "sqlalchemy AsyncSession, asyncpg": of_sqlalchemy_async_session("asyncpg"),
    "django": of_django,
}
