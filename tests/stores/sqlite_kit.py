"""Helpers for the tests of the SQLite store."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tidemill.clock import Clock, SystemClock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, NewJob
from tidemill.ids import new_id
from tidemill.stores.sql.sqlite.driver import SqliteDriver
from tidemill.stores.sql.store import SqlStore
from tidemill.testing.conformance.kit import asks

EVERY = JobFilter(ALL_TENANTS)
NOBODY = 65534
"""The id of the unprivileged user."""


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
    return store.claim(asks(store, new_id(), store.lanes(), limit))


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


def in_child(action: Callable[[], object]) -> str:
    """Run an action in a forked process; return its error, or an empty text."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException as error:  # noqa: BLE001  (sent to the parent, which checks it)
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as output:
        return output.read()


def as_nobody(action: Callable[[], object]) -> str:
    """Run an action as an unprivileged user; return its error, or an empty text."""

    def action_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        action()

    return in_child(action_as_nobody)
