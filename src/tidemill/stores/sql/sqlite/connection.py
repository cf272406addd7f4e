"""Connections to one SQLite file, and waiting for its locks.

SQLite's own busy handler sleeps ever longer, up to a tenth of a second, and lets one process starve. So it is switched off, and
this module retries after a short random pause.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import resources
from typing import TypeVar

from tidemill.errors import StoreUnavailable
from tidemill.stores.sql.sqlite.failures import busy, is_busy
from tidemill.stores.sql.sqlite.settings import SqliteSettings

T = TypeVar("T")

OLDEST = (3, 37, 0)
_SHORTEST, _LONG, _LONGEST, _GROWTH = 0.0002, 0.0015, 0.010, 1.1


class LockTimeout:
    """Retries while the file is busy, for a limited time."""

    def __init__(self, seconds: float, path: str) -> None:
        self.seconds = seconds
        self._path = path

    def __call__(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise
        return self._again(act)

    def _again(self, act: Callable[[], T]) -> T:
        waited, longest = 0.0, _LONG
        while True:
            pause = random.uniform(_SHORTEST, longest)  # noqa: S311  (order among equals, no secret)
            time.sleep(pause)
            waited += pause
            longest = min(longest * _GROWTH, _LONGEST)
            try:
                return act()
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise
                if waited >= self.seconds:
                    raise busy(self._path) from error


def connect(path: str) -> sqlite3.Connection:
    """A bare connection: nothing is set, read or written yet."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreUnavailable(
            f"this Python has SQLite {sqlite3.sqlite_version}, Tidemill needs 3.37; use a newer Python or PostgreSQL"
        )
    connection = sqlite3.connect(
        path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    if sqlite3.sqlite_version_info < (3, 41, 0):  # built in from then on
        connection.create_function("unhex", 1, _unhex, deterministic=True)
    return connection


def make_writer(connection: sqlite3.Connection, settings: SqliteSettings, patience: LockTimeout) -> None:
    """Set up a connection for writing: write-ahead log, durability, and the temporary tables of batches."""
    (mode,) = patience(lambda: connection.execute("pragma journal_mode = wal").fetchone())
    if mode != "wal":
        raise StoreUnavailable(
            f"SQLite cannot use a write-ahead log here (journal mode {mode!r}); use a local disk"
        )
    for pragma in (
        f"synchronous = {settings.synchronous}",
        "busy_timeout = 0",
        "cache_size = -65536",
        "temp_store = memory",
        "secure_delete = fast",  # some builds overwrite all deleted data by default, which costs a tenth of the speed
        "foreign_keys = on",
        "wal_autocheckpoint = 4000",
        "journal_size_limit = 67108864",
    ):
        connection.execute(f"pragma {pragma}").close()
    for statement in split(resources.files(__package__).joinpath("session.sql").read_text("utf-8")):
        connection.execute(statement)


def make_reader(connection: sqlite3.Connection) -> None:
    """Set up a connection for reading only. It never checkpoints: the writing connection does."""
    for pragma in (
        "query_only = on",
        "busy_timeout = 0",
        "cache_size = -65536",
        "temp_store = memory",
        "wal_autocheckpoint = 0",
    ):
        connection.execute(f"pragma {pragma}").close()


def shut(connection: sqlite3.Connection, *, checkpoint: bool = False) -> None:
    """Close a connection in any state; parts of the log that others use remain."""
    with closing(connection), suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("rollback")
        if checkpoint:
            connection.execute("pragma wal_checkpoint(truncate)").close()


def split(script: str) -> Iterator[str]:
    """The statements of an SQL script, with triggers intact."""
    gathered = ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered.strip()
            gathered = ""
    if any(line.strip() and not line.strip().startswith("--") for line in gathered.splitlines()):
        yield gathered.strip()


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
