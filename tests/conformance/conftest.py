"""A shared PostgreSQL store, opened once and emptied between tests."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tidemill.errors import StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

pytest.register_assert_rewrite(
    *(
        f"tests.conformance.{name}"
        for name in ("accounts", "actions", "limit_account", "model", "workflow_checks", "workflow_world")
    )
)

_TABLES = """
select string_agg(format('delete from %I.%I', schemaname, tablename), '; ')
from pg_tables
where schemaname = 'tidemill' and tablename not in ('migrations', 'meta')
"""


class SharedPostgres:
    """One PostgreSQL store for many tests; it is opened again if a test has closed it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened = open_store(url, migrate=True)
        self._opened.migrate()
        self._connection = psycopg.connect(url, autocommit=True)
        # The audit's triggers forbid deletes; a replica role does not fire them.
        self._connection.execute("set session_replication_role = replica")
        row = self._connection.execute(_TABLES).fetchone()
        assert row is not None
        self._wipe: str = row[0]

    def fresh(self) -> Store:
        """Return the open and empty store."""
        try:
            self._opened.check()
        except StoreUnavailable:
            self._opened = open_store(self._url)
        self._connection.execute(self._wipe)
        return self._opened

    def another(self) -> Store:
        """Open a second store on the same database; the caller closes it."""
        return open_store(self._url)

    def close(self) -> None:
        self._connection.close()
        self._opened.close()


@pytest.fixture(scope="module")
def shared_postgres(postgres_url: str) -> Iterator[SharedPostgres]:
    """The PostgreSQL store of this module."""
    shared = SharedPostgres(postgres_url)
    yield shared
    shared.close()
