"""Every write path, interrupted at every place in every way, leaves all of it or nothing, and what is done again is done once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path as File

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.faults.interrupted import WAYS, Cell, Course, Ground, opened
from tests.faults.victims import Victims
from tests.faults.write_paths import EXEMPT, PATHS, READS

from tidemill.errors import StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.sql.queries import load
from tidemill.testing.failpoints import Failpoints, Place, writes

SAMPLE = frozenset(
    {"enqueue", "enqueue in a user's transaction", "claim", "finish", "step", "reclaim", "fire", "pause"}
)
"""What is tried in a short run; all of it in a long one."""

NAMES = [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long) for name in PATHS]

PATIENCE = 60.0

_OPEN = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
"""

_WIPE = """
select string_agg(format('delete from %I.%I', schemaname, tablename), '; ')
from pg_tables where schemaname = 'tidemill' and tablename not in ('migrations', 'meta')
"""


class SqliteGround:
    """A file; the next one is a new copy of one that is empty."""

    def __init__(self, folder: File) -> None:
        self._folder, self._number = folder, 0
        self.url = f"sqlite:///{folder}/0.db?synchronous=normal"
        with opened(self.url) as store:
            store.check()

    def wipe(self) -> None:
        self._number += 1
        shutil.copy(self._folder / "0.db", self._folder / f"{self._number}.db")
        self.url = f"sqlite:///{self._folder}/{self._number}.db?synchronous=normal"

    def other(self) -> AbstractContextManager[Store]:
        return opened(self.url)

    def sever(self) -> None:
        raise StoreUnavailable("the disk reports an error")

    def bury(self) -> None:
        """The locks of a file go with their process."""


class PostgresGround:
    """A database whose sessions are ended by the server itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._around = ExitStack()
        self._other = self._around.enter_context(opened(url))
        self._other.migrate()
        self._server = psycopg.connect(url, autocommit=True)
        # The audit refuses to be emptied; a replica does not ask its triggers.
        self._server.execute("set session_replication_role = replica")
        row = self._server.execute(_WIPE).fetchone()
        assert row is not None
        self._deletes: str = row[0]

    def wipe(self) -> None:
        self._server.execute(self._deletes.encode())

    def sever(self) -> None:
        """The one session that is idle within a transaction is ended, and is gone when this returns."""
        found = self._server.execute(
            "select pid, pg_terminate_backend(pid, 60000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle in transaction'"
        ).fetchall()
        assert [ended for _, ended in found] == [True]

    def bury(self) -> None:
        eventually(lambda: self._server.execute(_OPEN).fetchone() == (0,), PATIENCE)

    def other(self) -> AbstractContextManager[Store]:
        return nullcontext(self._other)  # one for all: to open it takes longer than all it is asked

    def close(self) -> None:
        self._around.close()
        self._server.close()


@pytest.fixture(scope="module")
def postgres_ground(postgres_url: str) -> Iterator[Ground]:
    ground = PostgresGround(postgres_url)
    yield ground
    ground.close()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with Victims() as victims:
        yield victims


@pytest.mark.parametrize("name", NAMES)
def test_a_path_that_is_interrupted_anywhere_on_sqlite_is_gone_whole_or_not_at_all(
    name: str, tmp_path: File, victims: Victims
) -> None:
    visit_all(SqliteGround(tmp_path), name, victims)


@pytest.mark.parametrize("name", NAMES)
def test_a_path_that_is_interrupted_anywhere_on_postgresql_is_gone_whole_or_not_at_all(
    name: str, postgres_ground: Ground, victims: Victims
) -> None:
    visit_all(postgres_ground, name, victims)


def visit_all(ground: Ground, name: str, victims: Victims) -> None:
    """Every cell of a path; none may be left out."""
    course = Course(ground, PATHS[name], victims)
    cells = course.cells()
    assert {(cell.place, cell.way) for cell in cells} == {
        (place, way) for place, ways in WAYS.items() for way in ways
    }
    for cell in cells:
        try:
            course.visit(cell)
        except BaseException as error:
            error.add_note(f"{name}: {cell.way} {cell.place} {cell.nth}")
            raise


# The list is whole -------------------------------------------------------------------------------------------------------


def test_every_verb_that_writes_is_on_a_path() -> None:
    covered = set[str]().union(*(path.verbs for path in PATHS.values()))
    verbs = set(Store.__abstractmethods__)
    assert verbs - covered - READS - set(EXEMPT) == set(), "give these a path in tests/faults"
    assert covered <= verbs
    assert not covered & READS
    assert READS | set(EXEMPT) <= verbs


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_verb_that_is_said_to_read_has_no_query_that_writes(dialect: str) -> None:
    queries = load(dialect)
    assert [verb for verb in sorted(READS & set(queries)) if writes(queries[verb].body)] == []


def test_a_path_that_does_not_call_what_it_says_is_refused(tmp_path: File) -> None:
    wrong = replace(PATHS["claim"], verbs=frozenset({"claim", "finish"}))
    with pytest.raises(AssertionError, match="finish"):
        Course(SqliteGround(tmp_path), wrong, Victims())


def test_a_write_that_is_not_atomic_is_found(tmp_path: File) -> None:
    """Two transactions where one is promised: killed in between, half of it is there."""
    halves = replace(
        PATHS["enqueue a batch"],
        act=lambda store, jobs: [store.enqueue([job]) for job in jobs],
    )
    ground = SqliteGround(tmp_path)
    with pytest.raises(AssertionError, match="it takes 4 transactions"):
        Course(ground, halves, Victims())
    course = Course(ground, replace(halves, commits=4), Victims())
    with pytest.raises(AssertionError, match="it was not done, and cannot be done"):
        course.visit(Cell(Place.AFTER, 1, "answer lost"))


def test_a_point_is_reached_once_and_by_its_own_thread_only() -> None:
    points, said = Failpoints(), list[str]()
    points.arm(Place.WITHIN, lambda: said.append("here"), nth=2)
    for _ in range(4):
        points.reach(Place.WITHIN, "q")
    assert said == ["here"]
    assert points.reached
