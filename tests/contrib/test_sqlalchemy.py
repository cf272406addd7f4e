"""Jobs that are enqueued after the commit of a SQLAlchemy session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tidemill import App, BoundTask
from tidemill.contrib.sqlalchemy import enqueue_after_commit
from tidemill.errors import BadArguments, UsageError


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:
        yield made


@pytest.fixture
def double(app: App) -> BoundTask[[int], int]:
    @app.task(name="double")
    def double_it(number: int) -> int:
        return 2 * number

    return double_it


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with made.begin() as connection:
        connection.execute(text("create table orders(id integer)"))
    yield made
    made.dispose()


def order(session: Session, id: int) -> None:
    session.execute(text("insert into orders values (:id)"), {"id": id})


def numbers(app: App) -> list[Any]:
    return sorted(job.args["number"] for job in app.jobs.list().items)


def test_a_job_is_enqueued_by_the_commit_and_dropped_by_a_rollback(
    app: App, engine: Engine, double: BoundTask[[int], int]
) -> None:
    with Session(engine) as session:
        order(session, 1)
        enqueue_after_commit(session, double, 1)
        enqueue_after_commit(session, double.using(queue="night"), 2)
        assert numbers(app) == []
        session.commit()
        assert numbers(app) == [1, 2]
        enqueue_after_commit(session, double, 3)
        session.rollback()
        order(session, 4)
        session.commit()
    assert numbers(app) == [1, 2]


def test_a_session_that_is_closed_or_fails_enqueues_nothing(
    app: App, engine: Engine, double: BoundTask[[int], int]
) -> None:
    with Session(engine) as session:
        enqueue_after_commit(session, double, 1)
    with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
        enqueue_after_commit(session, double, 2)
        raise ZeroDivisionError
    with Session(engine) as session, session.begin():
        order(session, 1)
    assert numbers(app) == []


def test_a_savepoint_keeps_or_drops_its_own_jobs(
    app: App, engine: Engine, double: BoundTask[[int], int]
) -> None:
    with Session(engine) as session, session.begin():
        enqueue_after_commit(session, double, 1)
        with session.begin_nested():
            enqueue_after_commit(session, double, 2)
        with suppress(ZeroDivisionError), session.begin_nested():
            enqueue_after_commit(session, double, 3)
            with session.begin_nested():
                enqueue_after_commit(session, double, 4)
            raise ZeroDivisionError
        assert numbers(app) == []
    assert numbers(app) == [1, 2]


def test_arguments_are_validated_before_the_commit(
    app: App, engine: Engine, double: BoundTask[[int], int]
) -> None:
    wrong: Any = "one"
    session = scoped_session(sessionmaker(engine))
    with pytest.raises(BadArguments):
        enqueue_after_commit(session, double, wrong)
    enqueue_after_commit(session, double, 1)
    session.commit()
    session.remove()
    assert numbers(app) == [1]


def test_an_async_session_is_refused(double: BoundTask[[int], int]) -> None:
    wrong: Any = AsyncSession()
    with pytest.raises(UsageError, match="not a AsyncSession"):
        enqueue_after_commit(wrong, double, 1)
