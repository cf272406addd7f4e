"""New stores for tests, copied from one that this process migrated once.

Tests of migrations, and tests that need a new empty file, create their own.
"""

from __future__ import annotations

import functools
import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.servers.database_pool import DatabasePool
from tests.servers.postgres import TestPostgres

from tidemill.stores.open import open_store

THOROUGH = bool(os.environ.get("CI")) or os.environ.get("TIDEMILL_TEST_ALL") == "1"
"""Whether this run favours coverage over speed."""


def url_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a new store of the kind that a fixture's parameter names."""
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return new_file(folder)
        case _:
            return str(request.getfixturevalue("migrated_postgres_url"))


def new_file(folder: Path, name: str = "jobs.db") -> str:
    """The URL of a new SQLite file with all tables and no rows."""
    path = folder / name
    path.write_bytes(_migrated_file())
    return f"sqlite:///{path}"


@functools.cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/jobs.db")
        store.migrate()
        store.close()
        return Path(folder, "jobs.db").read_bytes()


def new_database(server: TestPostgres) -> AbstractContextManager[str]:
    """Lend a database with all tables and no rows for the block, and yield its URL."""
    return pool_of(server).lend()


@functools.cache
def pool_of(server: TestPostgres) -> DatabasePool:
    """The databases of this process on a server. Each process has its own."""
    return DatabasePool(server, _migrate, f"tidemill_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")


def _migrate(url: str) -> None:
    store = open_store(url, migrate=True)
    store.migrate()
    store.close()
