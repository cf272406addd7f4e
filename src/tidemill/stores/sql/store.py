"""The SQL store: one implementation for every dialect, over its driver and its named queries."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from tidemill.stores.base import Listener, SchemaStatus, Store
from tidemill.stores.sql.archive import SqlArchive
from tidemill.stores.sql.cluster import SqlLeases, SqlWorkers
from tidemill.stores.sql.control import SqlControl
from tidemill.stores.sql.driver import Driver
from tidemill.stores.sql.flow import SqlFlow
from tidemill.stores.sql.operation import SqlSettings
from tidemill.stores.sql.reading import SqlQueries
from tidemill.stores.sql.records import SqlRecords


class SqlStore(
    SqlFlow, SqlControl, SqlQueries, SqlRecords, SqlWorkers, SqlLeases, SqlSettings, SqlArchive, Store
):
    """A store in a relational database."""

    def __init__(self, driver: Driver) -> None:
        self._db = driver
        self.url = driver.url

    def schema(self) -> SchemaStatus:
        return self._db.schema()

    def migrate(self) -> list[str]:
        return self._db.migrate()

    def check(self) -> None:
        self._db.check()

    def transaction(self) -> AbstractContextManager[None]:
        return self._db.transaction()

    def notify(self, topics: Iterable[str]) -> None:
        self._db.notify(topics)

    def listen(self) -> Listener:
        return self._db.listen()

    def close(self) -> None:
        self._db.close()
