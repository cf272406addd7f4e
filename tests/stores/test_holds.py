"""Tests of how each store implements holds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.servers.postgres import TestPostgres
from tests.stores.sqlite_kit import in_child, open_file

from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Lock, Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.prepared_connection import readable
from tidemill.stores.sql.sqlite import file_locks

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE = 30.0
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

HOLDER = """
import os, sys, time
from tidemill.stores.open import open_store

store = open_store(sys.argv[1])
hold = store.hold("duties")
assert hold is not None and hold.held()
child = os.fork() if sys.argv[2] == "fork" else None
if child != 0:
    print(child or "", flush=True)
time.sleep(600)
"""
"""A program that takes a hold, and optionally forks a child that outlives it."""


@pytest.fixture(scope="module")
def database(postgres: TestPostgres) -> Iterator[str]:
    name = f"holds_{new_id().hex[-12:]}"
    url = postgres.create_database(name)
    store = open_store(url)
    store.migrate()
    store.close()
    yield url
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/jobs.db", "postgres": database}[request.param]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


def take(store: Store, name: str = "duties") -> Lock:
    hold = store.hold(name)
    assert hold is not None
    return hold


def free(store: Store) -> bool:
    """Return whether the hold can be taken; release it again."""
    hold = store.hold("duties")
    if hold is not None:
        hold.release()
    return hold is not None


def soon(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


# ------------------------------------------------------------------------------------------ holders that terminate


@contextlib.contextmanager
def holder(url: str, how: str) -> Iterator[tuple[subprocess.Popen[str], int | None]]:
    """Start a process that takes the hold; yield it with the id of its forked child, if any."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDER, url, how],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    child = int(line) if line else None
    try:
        yield process, child
    finally:
        process.kill()
        process.wait(PATIENCE)
        if child is not None:
            os.kill(child, signal.SIGKILL)
        process.stdout.close()


@FORKS
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_process_loses_its_hold(store: Store, url: str, how: str) -> None:
    with holder(url, how) as (process, child):
        assert store.hold("duties") is None
        process.kill()
        soon(lambda: free(store))
        if child is not None:
            # Raises if the child has ended.
            os.kill(child, 0)


@FORKS
def test_a_forked_child_neither_has_nor_releases_the_hold(store: Store) -> None:
    hold = take(store)

    def act() -> None:
        assert not hold.held()
        hold.release()
        assert store.hold("duties") is None
        store.close()

    assert in_child(act) == ""
    assert hold.held()
    assert store.hold("duties") is None
    hold.release()
    take(store).release()


@FORKS
def test_a_forked_child_can_take_its_own_hold(store: Store) -> None:
    take(store).release()
    assert in_child(lambda: take(store)) == ""
    soon(lambda: free(store))


@FORKS
def test_a_forked_memory_store_is_independent() -> None:
    store = MemoryStore()
    hold = take(store)

    def act() -> None:
        assert not hold.held()
        hold.release()
        assert take(store).held()
        assert not hold.held()

    assert in_child(act) == ""
    assert hold.held()
    assert store.hold("duties") is None
    store.close()
    assert not hold.held()


def test_a_hold_taken_while_the_store_closes_is_released(url: str) -> None:
    first, second = open_store(url), open_store(url)
    first.check()
    closing = threading.Thread(target=first.close)
    closing.start()
    try:
        with contextlib.suppress(StoreUnavailable):
            while True:
                hold = first.hold("duties")
                if hold is not None:
                    hold.release()
    finally:
        closing.join()
    take(second).release()
    second.close()


# ------------------------------------------------------------------------------------------------------ PostgreSQL


@pytest.fixture
def pg(database: str) -> Iterator[Store]:
    store = open_store(f"{database}?pool=1")
    yield store
    store.close()


def backends(raw: psycopg.Connection[tuple[object, ...]]) -> list[object]:
    """Return the sessions that hold advisory locks in this database."""
    mine = "select oid from pg_database where datname = current_database()"
    ask = f"select pid from pg_locks where locktype = 'advisory' and database = ({mine})"
    return [pid for (pid,) in raw.execute(ask).fetchall()]


def test_a_hold_uses_no_connection_of_the_pool(pg: Store) -> None:
    holds = [take(pg, f"duty {n}") for n in range(3)]
    pg.check()
    assert all(hold.held() for hold in holds)


def test_a_hold_can_be_taken_in_a_transaction_on_the_only_connection(pg: Store, database: str) -> None:
    with pg.transaction():
        pg.lanes()
        hold = take(pg)
        assert pg.hold("duties") is None
        hold.release()
        with psycopg.connect(database) as raw:
            assert backends(raw) == []


def test_a_hold_is_lost_with_its_session_and_can_be_retaken(pg: Store, database: str) -> None:
    hold = take(pg)
    with psycopg.connect(database, autocommit=True) as raw:
        (pid,) = backends(raw)
        raw.execute("select pg_terminate_backend(%s, 10000)", (pid,))
        soon(lambda: not hold.held())
        again = take(pg)
        hold.release()
        assert again.held()
        again.release()
        assert backends(raw) == []


def test_a_server_message_does_not_lose_the_hold(pg: Store, database: str) -> None:
    hold = take(pg)
    connection = hold._connection  # type: ignore[attr-defined]
    connection.execute("listen news")
    with psycopg.connect(database, autocommit=True) as raw:
        for _ in range(3):
            raw.execute("notify news")
            soon(lambda: readable([connection.fileno()], 0))
            assert hold.held()
            assert not readable([connection.fileno()], 0)
        assert len(backends(raw)) == 1
    hold.release()


def test_the_session_of_a_hold_has_no_idle_timeout_but_keepalives(pg: Store) -> None:
    hold = take(pg)
    connection = hold._connection  # type: ignore[attr-defined]
    ask = "select current_setting('idle_session_timeout'), current_setting('tcp_keepalives_idle')"
    assert connection.execute(ask).fetchone() == ("0", "3")
    hold.release()


def test_two_installations_in_one_database_have_separate_holds(database: str) -> None:
    one, two = open_store(database), open_store(f"{database}?schema=second", migrate=True)
    holds = [take(one), take(two)]
    assert [hold.held() for hold in holds] == [True, True]
    one.close()
    two.close()


def test_a_hold_without_a_server_is_unavailable() -> None:
    store = open_store("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    with pytest.raises(StoreUnavailable, match="cannot reach"):
        store.hold("duties")
    store.close()


# ---------------------------------------------------------------------------------------------------------- SQLite


def lock_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.lock"))


def test_the_lock_file_is_next_to_the_database_and_is_removed(tmp_path: Path) -> None:
    store = open_file(tmp_path / "jobs.db")
    hold = take(store)
    take(store, "a/b")
    assert lock_files(tmp_path) == ["jobs.db-a%2Fb.lock", "jobs.db-duties.lock"]
    hold.release()
    assert lock_files(tmp_path) == ["jobs.db-a%2Fb.lock"]
    store.close()
    assert lock_files(tmp_path) == []


def test_a_stale_lock_file_is_ignored(tmp_path: Path) -> None:
    store = open_file(tmp_path / "jobs.db")
    (tmp_path / "jobs.db-duties.lock").touch()
    assert take(store).held()
    store.close()


def test_one_database_with_two_paths_has_one_hold(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    stores = [open_file(tmp_path / name) for name in ("jobs.db", "link.db")]
    take(stores[0])
    assert stores[1].hold("duties") is None
    for store in stores:
        store.close()


def test_a_hold_is_lost_when_its_file_is_removed(tmp_path: Path) -> None:
    store = open_file(tmp_path / "jobs.db")
    hold = take(store)
    (tmp_path / "jobs.db-duties.lock").unlink()
    assert not hold.held()
    again = take(store)
    hold.release()
    assert again.held()
    assert lock_files(tmp_path) == ["jobs.db-duties.lock"]
    store.close()


def test_a_lock_file_that_cannot_be_created_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    store = open_file(tmp_path / "jobs.db")
    (tmp_path / "jobs.db-duties.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match=r"duties\.lock cannot be locked .* coordination 'lease'"):
        store.hold("duties")
    assert not (tmp_path / "elsewhere").exists()
    store.close()


def test_a_system_without_file_locks_requires_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_LOCKABLE", False)
    store = open_file(tmp_path / "jobs.db")
    with pytest.raises(BadSettings, match=r"no file locks.* use coordination 'lease'"):
        store.hold("duties")
    store.close()


def test_no_file_stays_open(tmp_path: Path) -> None:
    store = open_file(tmp_path / "jobs.db")
    for _ in range(20):
        hold = take(store)
        assert store.hold("duties") is None
        hold.release()
    take(store)
    store.close()
    links = (
        [link.resolve() for link in Path("/proc/self/fd").iterdir()] if Path("/proc/self/fd").is_dir() else []
    )
    assert [link for link in links if tmp_path in link.parents] == []
