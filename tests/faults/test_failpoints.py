"""Tests that every interrupted write path is atomic and can be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path as File

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.faults.failpoints import Failpoint, Failpoints, writes
from tests.faults.fork_server import ForkServer
from tests.faults.interruptions import WAYS, Database, Interruption, PathRun, opened
from tests.faults.write_paths import EXEMPT, PATHS, READS

from tidemill.errors import StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.sql.named_queries import load

SAMPLE = frozenset(
    {"enqueue", "enqueue in a user's transaction", "claim", "finish", "step", "reclaim", "fire", "pause"}
)
"""Paths of a short test run; a long one covers all."""

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


class SqliteDatabase:
    """A SQLite file; `wipe` switches to a new copy of an empty one."""

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

    def break_connection(self) -> None:
        raise StoreUnavailable("the disk reports an error")

    def wait_for_cleanup(self) -> None:
        """Do nothing: a file's locks end with their process."""


class PostgresDatabase:
    """A database whose sessions the server itself terminates."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._around = ExitStack()
        self._other = self._around.enter_context(opened(url))
        self._other.migrate()
        self._server = psycopg.connect(url, autocommit=True)
        # The audit's triggers forbid deletes; a replica role does not fire them.
        self._server.execute("set session_replication_role = replica")
        row = self._server.execute(_WIPE).fetchone()
        assert row is not None
        self._deletes: str = row[0]

    def wipe(self) -> None:
        self._server.execute(self._deletes.encode())

    def break_connection(self) -> None:
        """Terminate the one session that is idle in a transaction, and wait until it is gone."""
        rows = self._server.execute(
            "select pid, pg_terminate_backend(pid, 60000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle in transaction'"
        ).fetchall()
        assert [ended for _, ended in rows] == [True]

    def wait_for_cleanup(self) -> None:
        eventually(lambda: self._server.execute(_OPEN).fetchone() == (0,), PATIENCE)

    def other(self) -> AbstractContextManager[Store]:
        # One store for all: opening it takes longer than all its queries.
        return nullcontext(self._other)

    def close(self) -> None:
        self._around.close()
        self._server.close()


@pytest.fixture(scope="module")
def postgres_database(postgres_url: str) -> Iterator[Database]:
    database = PostgresDatabase(postgres_url)
    yield database
    database.close()


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_path_is_atomic_on_sqlite(name: str, tmp_path: File, fork_server: ForkServer) -> None:
    check_interruptions(SqliteDatabase(tmp_path), name, fork_server)


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_path_is_atomic_on_postgres(
    name: str, postgres_database: Database, fork_server: ForkServer
) -> None:
    check_interruptions(postgres_database, name, fork_server)


def check_interruptions(database: Database, name: str, fork_server: ForkServer) -> None:
    """Check every interruption of a path."""
    path_run = PathRun(database, PATHS[name], fork_server)
    interruptions = path_run.interruptions()
    assert {(interruption.place, interruption.way) for interruption in interruptions} == {
        (place, way) for place, ways in WAYS.items() for way in ways
    }
    for interruption in interruptions:
        try:
            path_run.check_interruption(interruption)
        except BaseException as error:
            error.add_note(f"{name}: {interruption.way} {interruption.place} {interruption.nth}")
            raise


# Completeness ------------------------------------------------------------------------------------------------------------


def test_every_writing_verb_is_on_a_path() -> None:
    covered = set[str]().union(*(path.verbs for path in PATHS.values()))
    verbs = set(Store.__abstractmethods__)
    assert verbs - covered - READS - set(EXEMPT) == set(), "give these a path in tests/faults"
    assert covered <= verbs
    assert not covered & READS
    assert READS | set(EXEMPT) <= verbs


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_reading_verb_has_no_writing_query(dialect: str) -> None:
    queries = load(dialect)
    assert [verb for verb in sorted(READS & set(queries)) if writes(queries[verb].body)] == []


def test_a_path_must_call_its_verbs(tmp_path: File) -> None:
    wrong = replace(PATHS["claim"], verbs=frozenset({"claim", "finish"}))
    with pytest.raises(AssertionError, match="finish"):
        PathRun(SqliteDatabase(tmp_path), wrong, ForkServer())


def test_a_non_atomic_write_is_detected(tmp_path: File) -> None:
    """Two transactions instead of one: a kill in between leaves half of the batch."""
    halves = replace(
        PATHS["enqueue a batch"],
        act=lambda store, jobs: [store.enqueue([job]) for job in jobs],
    )
    database = SqliteDatabase(tmp_path)
    with pytest.raises(AssertionError, match="the path takes 4 transactions"):
        PathRun(database, halves, ForkServer())
    path_run = PathRun(database, replace(halves, commits=4), ForkServer())
    with pytest.raises(AssertionError, match="the write did not happen, and cannot be repeated"):
        path_run.check_interruption(Interruption(Failpoint.AFTER, 1, "answer lost"))


def test_an_armed_failpoint_fires_once() -> None:
    points, reached = Failpoints(), list[str]()
    points.arm(Failpoint.WITHIN, lambda: reached.append("here"), nth=2)
    for _ in range(4):
        points.reach(Failpoint.WITHIN, "q")
    assert reached == ["here"]
    assert points.reached
