"""What the tests of the SQLite store share."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tidemill.clock import Clock, SystemClock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.ids import new_id
from tidemill.stores.sql.sqlite.driver import SqliteDriver
from tidemill.stores.sql.store import SqlStore

EVERY = JobFilter(ALL_TENANTS)
NOBODY = 65534
"""The number of the user without special rights."""


def open_file(path: Path | str, clock: Clock | None = None, **options: str) -> SqlStore:
    return SqlStore(SqliteDriver(str(path), f"sqlite:///{path}", clock or SystemClock(), options))


def driver_of(store: SqlStore) -> SqliteDriver:
    assert isinstance(store._db, SqliteDriver)
    return store._db


def writer_of(store: SqlStore) -> sqlite3.Connection:
    store.check()
    writer = driver_of(store)._session._writer
    assert writer is not None
    return writer


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"pragma {name}").fetchone()[0]


def put(store: SqlStore, count: int = 1) -> list[NewJob]:
    jobs = [NewJob(new_id(), "work") for _ in range(count)]
    assert all(answer.created for answer in store.enqueue(jobs))
    return jobs


def claim(store: SqlStore, limit: int = 1000) -> list[Claim]:
    return store.claim(ClaimRequest(new_id(), store.lanes(), limit))


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


def in_child(act: Callable[[], object]) -> str:
    """What an act says in a forked process: an error, or nothing."""
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  (told to the parent, which judges)
            os.write(go, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(go)
    os.waitpid(child, 0)
    with os.fdopen(come) as told:
        return told.read()


def as_nobody(act: Callable[[], object]) -> str:
    """What an act says when a user without special rights does it."""

    def act_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        act()

    return in_child(act_as_nobody)
